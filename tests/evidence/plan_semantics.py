"""Cases that only meaning catches: treatments, claims, re-execution; everything is made to fit again."""

from typing import Any

from ledger.canonical import digest, sha256
from tests.evidence.base_bundle import base_parts, plan_bytes
from tests.evidence.case import case
from tests.verifier import forge
from tests.verifier.edits import H0, H1, OTHER
from tests.verifier.forge import Files, Parts

NATIVE = [f"records/qualification.native.{history}.{n}.json" for history in ("H0", "H1") for n in (1, 2)]
CROSS = [f"records/transfer.cross-order.{history}.{n}.json" for history in ("H0", "H1") for n in (1, 2)]
CAPTURES = (
    "04103674e5956c99cf86741102eb034ae5c6664da5cf812af92add7222b6cf15",
    "e93f7473d245a8bfbde35af4d66345941fb5ce8dbdc287a1ff09f00abee11cfe",
)
#: As a kernel of a GPU is called.
GPU_SYMBOL = "marlin_moe_wna16::Marlin<half>"
#: The alignment of native under H0 with its second slot copied over its first.
TWICE = "8860f7d4da71b4793c8cbe773d9bac36eea5d89549cda38581a72f342a270448"


def ledger(parts: Parts, old: bytes, new: bytes, count: int = 1) -> Files:
    """The bundle with another ledger, relinked."""
    if old not in parts.ledger:
        raise ValueError(f"expected {old!r} in the ledger")
    parts.ledger = parts.ledger.replace(old, new, count)
    forge.relink(parts)
    return forge.seal(parts)


@case(
    "empty-folder",
    "E1: a ledger over an empty folder: there is nothing, and that is no success.",
    ("V100", "."),
)
def empty_folder(_parts: Parts) -> Files:
    return {}


@case(
    "a-run-is-not-finished",
    "What a runner leaves that was stopped: no manifest and no summary yet. It is missing, not malformed, whatever"
    " lies in it, and the report says how to go on.",
    ("V112", "."),
)
def a_run_is_not_finished(parts: Parts) -> Files:
    files = forge.seal(parts)
    for path in ("bundle.json", "files.jsonl", *CROSS):
        del files[path]
    return {**files, "runner.lock": b"", "staging/1/request.json": b"{}"}


@case(
    "all-but-one-record-deleted",
    "E2: all records but one are gone, manifest and log made to fit. Each missing process is named; never that all"
    " that are here agree.",
    *[("V401", path) for path in [*NATIVE[1:], *CROSS]],
)
def all_but_one(parts: Parts) -> Files:
    kept = parts.records[H0]
    parts.records = {H0: kept}
    parts.attempts = [event for event in parts.attempts if event["attempt"] == kept["attempt"]]
    forge.prune(parts)
    return forge.seal(parts)


@case(
    "zero-processes",
    "E5: claims over no process at all, in a bundle that is otherwise whole.",
    *[("V401", path) for path in [*NATIVE, *CROSS]],
)
def zero_processes(parts: Parts) -> Files:
    parts.records, parts.attempts = {}, []
    forge.prune(parts)
    return forge.seal(parts)


@case(
    "record-truncated",
    "E4: a record cut short is malformed, with everything around it made to fit.",
    ("V202", H0),
)
def record_truncated(parts: Parts) -> Files:
    parts.extra[H0] = forge.canonical(parts.records[H0])[:-40]
    return forge.seal(parts)


@case(
    "captured-and-never-recorded",
    "E9: a process killed after its capture and before its record, and not run again: its cell has no record. The"
    " capture that it left is no finding of its own, since whose it is cannot be told.",
    ("V401", H0),
)
def captured_and_never_recorded(parts: Parts) -> Files:
    del parts.records[H0]
    for event in parts.attempts:
        if event.get("record") == H0:
            event.update(outcome="killed", reason="ended by signal 9", exit_code=None, signal=9, record=None)
    return forge.seal(parts)


@case(
    "both-arms-ran-the-same",
    "E8: the transferred cells kept their own alignments, records and bits in agreement: legal alignments, and not"
    " the treatment.",
    *[("V503", f"{path}:treatment.alignment.sha256") for path in sorted(CROSS)],
)
def both_arms_ran_the_same(parts: Parts) -> Files:
    for path in CROSS:
        own = parts.records[path.replace("transfer.cross-order", "qualification.native")]
        record = parts.records[path]
        record["treatment"]["alignment"]["sha256"] = own["treatment"]["alignment"]["sha256"]
        for key in ("surfaces", "trajectory", "capture"):
            record[key] = own[key]
    return forge.seal(parts)


@case(
    "treatment-that-cannot-matter",
    "A plan whose two histories give one alignment: its transfer changes nothing, and a control would look like a"
    " result.",
    ("V315", "plan.yaml:transfer.cross-order.alignment"),
)
def treatment_that_cannot_matter(_parts: Parts) -> Files:
    plan = (
        plan_bytes()
        .replace(b"47, 20,\n", b"47, 37,\n")
        .replace(b"18, 19, 21, 22, 23, 24,\n", b"18, 19, 20, 21, 22, 23,\n")
    )
    plan = plan.replace(
        b"25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38,",
        b"24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 38,",
    )
    return forge.seal(base_parts(plan=plan))


@case(
    "records-swapped",
    "Two records under each other's name, log and manifest redone: each lies where its identity does not put it.",
    ("V404", H0),
    ("V404", H1),
)
def records_swapped(parts: Parts) -> Files:
    records = parts.records
    records[H0], records[H1] = records[H1], records[H0]
    for event in parts.attempts:
        path = event.get("record")
        if path in {H0, H1}:
            event["record"] = H1 if path == H0 else H0
    return forge.seal(parts)


def _process_of(parts: Parts, path: str) -> Any:
    return parts.records[path]["process"]


@case(
    "one-process-twice",
    "A second replicate copied from the first: same boot, pid and start, whatever its nonce says.",
    ("V405", "records/transfer.cross-order.H1.2.json:process"),
)
def one_process_twice(parts: Parts) -> Files:
    earlier = _process_of(parts, H0)
    _process_of(parts, CROSS[3]).update({key: earlier[key] for key in ("pid", "started_us", "boot_id")})
    return forge.seal(parts)


@case(
    "claim-refuted",
    "A claim that the evidence contradicts: exit code 1, and the evidence itself is in order.",
    ("V901", "ledger.yaml:C02.outcome[0]"),
    ("V901", "ledger.yaml:C02.outcome[1]"),
)
def claim_refuted(parts: Parts) -> Files:
    return ledger(parts, b"{kind: equal,", b"{kind: differs,", 2)


@case(
    "mutation-not-refused",
    "A ledger that declares a code which nothing refuses its mutation with: what it promises of the verifier fails.",
    ("V902", "ledger.yaml:mutations.M-surface-digest"),
)
def mutation_not_refused(parts: Parts) -> Files:
    return ledger(parts, b"level: records, code: V804}", b"level: records, code: V810}")


@case(
    "treatment-not-delivered",
    "A claim whose treatment, as it states it, did not arrive: then its outcome is not looked at.",
    ("V903", "ledger.yaml:C01.delivered[0]"),
)
def treatment_not_delivered(parts: Parts) -> Files:
    return ledger(
        parts,
        b"differs_from_native: false, memberships: differ",
        b"differs_from_native: false, memberships: equal",
    )


@case(
    "mutation-that-cannot-be-made",
    "A mutation of a captured bit, in a bundle released without captures: missing, not passed over.",
    ("V904", "ledger.yaml:mutations.M-surface-digest"),
)
def mutation_that_cannot_be_made(parts: Parts) -> Files:
    parts.objects, parts.raw = {}, "left-out"
    return ledger(
        parts, b"M-surface-digest, operation: surface-digest", b"M-surface-digest, operation: tensor-bit"
    )


@case(
    "too-few-processes",
    "A plan of one replicate, and claims that it repeats: nothing can repeat.",
    ("V905", "ledger.yaml:C01.control[0]"),
    ("V905", "ledger.yaml:C02.control[0]"),
    ("V905", "ledger.yaml:C03.outcome[0]"),
)
def too_few_processes(parts: Parts) -> Files:
    plan = plan_bytes().replace(b"replicates: 2", b"replicates: 1")
    text = parts.ledger.replace(b"processes: 8,", b"processes: 4,").replace(
        b"processes: 4}", b"processes: 2}"
    )
    return forge.seal(base_parts(plan=plan, ledger=text.replace(b"replicate: 2", b"replicate: 1")))


@case(
    "fixture-of-another-recipe",
    "A fixture whose tensors are not those of the plan's recipe, digests in agreement everywhere: only making it anew"
    " shows it. Then no record can be compared.",
    ("V850", "plan.lock:fixture.digest"),
    level="reexecute",
)
def fixture_of_another_recipe(parts: Parts) -> Files:
    parts.lock["fixture"]["tensors"]["hidden"]["sha256"] = OTHER
    forge.relink(parts)
    return forge.seal(parts)


def _bits(parts: Parts, surface: str) -> dict[str, dict[str, bytes]]:
    """The captures by address, one bit of one surface flipped in each."""
    found = {}
    for address, data in parts.objects.items():
        record = next(item for item in parts.records.values() if item["capture"] == address)
        begin = 8 + int.from_bytes(data[:8], "little")
        tensors = {}
        for item in record["surfaces"]:
            size = 2 * item["shape"][0] * item["shape"][1]
            tensors[item["name"]] = data[begin : begin + size]
            begin += size
        tensors[surface] = bytes([tensors[surface][0] ^ 1]) + tensors[surface][1:]
        found[address] = tensors
    return found


@case(
    "bits-no-engine-computed",
    "One bit of one surface, in every record alike and in their captures: every claim still holds, every digest fits,"
    " and no engine computes these bits.",
    *[("V851", f"{path}:surfaces.output") for path in [*NATIVE, *CROSS]],
    level="reexecute",
)
def bits_no_engine_computed(parts: Parts) -> Files:
    return _other_bits(parts)


def _other_bits(parts: Parts) -> Files:
    bent = _bits(parts, "output")
    for record in parts.records.values():
        tensors = bent[record["capture"]]
        for surface in record["surfaces"]:
            surface["sha256"] = sha256(tensors[surface["name"]])
        record["trajectory"] = digest([surface["sha256"] for surface in record["surfaces"]])
        shapes = {surface["name"]: surface["shape"] for surface in record["surfaces"]}
        forge.store(parts, record, forge.safetensors(tensors, shapes))
    forge.prune(parts)
    return forge.seal(parts)


@case(
    "ambiguous-elements-made-up",
    "A record that counts open gate values which the arithmetic does not meet: more doubt than there was.",
    ("V853", f"{H0}:activation.ambiguous_elements"),
    level="reexecute",
)
def ambiguous_elements_made_up(parts: Parts) -> Files:
    record = parts.records[H0]
    record["activation"]["ambiguous_elements"] += 7
    record["assumptions"] = sorted({*record["assumptions"], "U2"}, key=lambda name: int(name[1:]))
    return forge.seal(parts)


@case(
    "slices-no-engine-executed",
    "Slices of another schedule. The verifier works the schedule out by itself, so level records says it first (V603);"
    " re-execution says the same of its own accord, and can say it no other way: the two codes always go together.",
    ("V603", f"{H0}:treatment.gemms[0].slices"),
    ("V852", f"{H0}:treatment.gemms.w13.slices"),
    level="reexecute",
)
def slices_no_engine_executed(parts: Parts) -> Files:
    parts.records[H0]["treatment"]["gemms"][0]["slices"] = OTHER
    return forge.seal(parts)


def _of_a_gpu(parts: Parts) -> Parts:
    """The same bits as the record of a GPU cohort would hold them."""
    gpu = base_parts(plan=plan_bytes().replace(b"engine: simulated", b"engine: vllm"))
    for record in gpu.records.values():
        record["activation"]["candidate"] = "device"
    _launched(gpu, GPU_SYMBOL)
    gpu.build["arithmetic"] = "a fixed stand-in"
    forge.relink(gpu)
    return gpu if parts.records else parts


def _launched(parts: Parts, symbol: str) -> Parts:
    """Every launch of every process by one name: one kernel for the cohort (V703), whatever it is called."""
    for record in parts.records.values():
        for gemm in record["treatment"]["gemms"]:
            gemm["symbol"] = symbol
    return parts


EVERY_SYMBOL = [
    ("V705", f"{path}:treatment.gemms[{place}].symbol") for path in (*NATIVE, *CROSS) for place in (0, 1)
]


@case(
    "simulated-launches-bear-a-gpus-symbol",
    "Simulated records whose launches are called what a GPU's kernel is called, all of them alike: a reader who looks"
    " for the kernel must not find it where none ran.",
    *EVERY_SYMBOL,
)
def simulated_launches_bear_a_gpus_symbol(parts: Parts) -> Files:
    return forge.seal(_launched(parts, GPU_SYMBOL))


@case(
    "a-gpus-launches-bear-a-simulated-symbol",
    "The other way round: a cohort that is called a GPU's, with launches that say themselves that they are simulated.",
    *EVERY_SYMBOL,
)
def a_gpus_launches_bear_a_simulated_symbol(parts: Parts) -> Files:
    return forge.seal(_launched(_of_a_gpu(parts), "simulated:moe_wna16_marlin_gemm"))


@case(
    "a-gpu-without-a-driver",
    "A build that is called a GPU's, and names no driver.",
    ("V705", "build.json:driver"),
)
def a_gpu_without_a_driver(parts: Parts) -> Files:
    gpu = _of_a_gpu(parts)
    gpu.build["driver"] = None
    forge.relink(gpu)
    return forge.seal(gpu)


@case(
    "a-gpu-with-a-simulators-arithmetic",
    "A build that is called a GPU's, and names the arithmetic of the simulated engine.",
    ("V705", "build.json:arithmetic"),
)
def a_gpu_with_a_simulators_arithmetic(parts: Parts) -> Files:
    gpu = _of_a_gpu(parts)
    gpu.build["arithmetic"] = "numpy"
    forge.relink(gpu)
    return forge.seal(gpu)


@case(
    "gpu-that-the-model-agrees-with",
    "A cohort of a GPU, re-executed on the simulated engine at the highest level: agreement is said, and is no"
    " evidence of the cohort's.",
    level="reexecute",
)
def gpu_that_the_model_agrees_with(parts: Parts) -> Files:
    return forge.seal(_of_a_gpu(parts))


@case(
    "gpu-that-the-model-does-not-agree-with",
    "The same with another bit in every record's output: a finding of its own kind. It concerns no claim: the model"
    " may be wrong.",
    ("V856", "records/qualification.native.H1.1.json:surfaces.output"),
    level="reexecute",
)
def gpu_that_the_model_does_not_agree_with(parts: Parts) -> Files:
    return _other_bits(_of_a_gpu(parts))


@case(
    "alignment-no-engine-can-run",
    "A route twice in an alignment that is executed again: illegal (V501), and refused by the engine (V854). What the"
    " engine refuses is illegal for the verifier too, so the two codes always go together.",
    ("V501", f"alignments/{TWICE}.json"),
    ("V501", f"alignments/{TWICE}.json"),
    ("V854", f"alignments/{TWICE}.json:grids [24, 24]"),
    level="reexecute",
)
def alignment_no_engine_can_run(parts: Parts) -> Files:
    aligned = dict(parts.alignments[parts.records[H0]["treatment"]["alignment"]["sha256"]])
    slots = list(aligned["sorted_token_ids"])
    aligned["sorted_token_ids"] = [slots[1], *slots[1:]]
    forge.realign(parts, H0, aligned)
    return forge.seal(parts)


@case(
    "captures-there-though-left-out-all-of-them",
    "bundle.json says that captures are left out, and they are all there: which of the two is meant?",
    *[("V803", f"objects/{name}.safetensors") for name in CAPTURES],
)
def captures_there_though_left_out(parts: Parts) -> Files:
    parts.raw = "left-out"
    return forge.seal(parts)
