"""Bad evidence by name: each edit bends a good bundle in one way and says exactly what must be found in it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ledger.canonical import digest, sha256
from ledger.claim import Level
from tests.verifier import forge
from tests.verifier.forge import Document, Files, Parts, canonical

H0 = "records/qualification.native.H0.1.json"
H1 = "records/qualification.native.H1.1.json"
MOVED = "records/transfer.cross-order.H0.2.json"
OTHER = sha256(b"another")

Expected = list[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One way to bend a bundle; `found` is everything that must be found, in order."""

    name: str
    make: Callable[[Parts], Files]
    found: Expected
    level: Level = "records"
    anchor: str | None = None


Keep = Callable[[Callable[[Parts], Files]], Callable[[Parts], Files]]
EDITS: list[Edit] = []


def edit(*found: tuple[str, str], level: Level = "records", anchor: str | None = None) -> Keep:
    """List the function as an edit that must give `found`."""

    def keep(make: Callable[[Parts], Files]) -> Callable[[Parts], Files]:
        name = make.__name__
        EDITS.append(Edit(name=name, make=make, found=list(found), level=level, anchor=anchor))
        return make

    return keep


def bent(path: str, *keys: str | int, to: Any) -> Callable[[Parts], Files]:
    """Set one value of one record; log, manifest and summary fit again."""

    def make(parts: Parts) -> Files:
        here: Any = parts.records[path]
        for key in keys[:-1]:
            here = here[key]
        here[keys[-1]] = to
        return forge.seal(parts)

    return make


def record_edit(code: str, *keys: str | int, to: Any, where: str, name: str, path: str = H0) -> None:
    """An edit of one value of one record."""
    EDITS.append(Edit(name=name, make=bent(path, *keys, to=to), found=[(code, f"{path}:{where}")]))


def summary_edit(code: str, key: str, to: Any, where: str, name: str) -> None:
    """An edit of one value of bundle.json."""

    def make(parts: Parts) -> Files:
        return forge.seal(parts, summary=lambda summary: {**summary, key: to})

    EDITS.append(Edit(name=name, make=make, found=[(code, where)]))


def counted(**counts: int) -> Callable[[Document], Document]:
    """A summary whose counts are so much more."""

    def bend(summary: Document) -> Document:
        changed = {key: summary["counts"][key] + more for key, more in counts.items()}
        return {**summary, "counts": {**summary["counts"], **changed}}

    return bend


# -- V1xx --------------------------------------------------------------------------------------------------


@edit(("V101", "plan.lock"))
def manifest_lists_another_digest(parts: Parts) -> Files:
    lock = sha256(canonical(parts.lock)).encode()
    return forge.seal(parts, manifest=lambda lines: [line.replace(lock, OTHER.encode()) for line in lines])


@edit(("V101", "plan.lock"))
def manifest_lists_another_size(parts: Parts) -> Files:
    def bend(lines: list[bytes]) -> list[bytes]:
        size = len(canonical(parts.lock))
        return [line.replace(b'"size":%d}' % size, b'"size":%d}' % (size + 1)) for line in lines]

    return forge.seal(parts, manifest=bend)


@edit(("V102", f"objects/{OTHER}.safetensors"))
def manifest_lists_a_file_that_is_gone(parts: Parts) -> Files:
    line = canonical({"path": f"objects/{OTHER}.safetensors", "size": 1, "sha256": OTHER}) + b"\n"
    return forge.seal(
        parts, manifest=lambda lines: sorted([*lines, line]), summary=counted(files=1, objects=1)
    )


@edit(("V103", "routing.json"))
def a_file_is_not_listed(parts: Parts) -> Files:
    return forge.seal(
        parts,
        manifest=lambda lines: [line for line in lines if b"routing.json" not in line],
        summary=counted(files=-1),
    )


@edit(("V105", "files.jsonl:88, path"), ("V105", "files.jsonl:88, size"), ("V105", "files.jsonl:88, sha256"))
def a_manifest_line_is_empty(parts: Parts) -> Files:
    return forge.seal(parts, manifest=lambda lines: [*lines, b"{}\n"])


@edit(("V105", "files.jsonl:88"))
def the_manifest_is_torn(parts: Parts) -> Files:
    return forge.seal(parts, manifest=lambda lines: [*lines, b'{"path":"rou'])


@edit(("V106", "files.jsonl:2"))
def manifest_lines_are_swapped(parts: Parts) -> Files:
    return forge.seal(parts, manifest=lambda lines: [lines[1], lines[0], *lines[2:]])


@edit(("V106", "files.jsonl:2"))
def a_manifest_line_is_there_twice(parts: Parts) -> Files:
    return forge.seal(parts, manifest=lambda lines: [lines[0], lines[0], *lines[1:]])


@edit(("V102", "Plan.yaml"), ("V106", "files.jsonl:17"), ("V109", "Plan.yaml"))
def two_paths_differ_in_case(parts: Parts) -> Files:
    line = canonical({"path": "Plan.yaml", "size": 1, "sha256": OTHER}) + b"\n"
    return forge.seal(parts, manifest=lambda lines: sorted([*lines, line]), summary=counted(files=1))


summary_edit("V107", "files", OTHER, "files.jsonl", "the_summary_names_another_manifest")


@edit(("V108", "bundle.json:counts.records"))
def the_summary_counts_wrongly(parts: Parts) -> Files:
    return forge.seal(parts, summary=counted(records=1))


@edit(("V109", "README.md"))
def a_file_has_no_place(parts: Parts) -> Files:
    parts.extra["README.md"] = b"hello\n"
    return forge.seal(parts)


@edit(("V110", "attempts.jsonl"))
def a_log_line_has_no_end(parts: Parts) -> Files:
    return forge.seal(parts, log=lambda lines: [*lines, b"x" * 70_000])


@edit(("V110", H0))
def a_record_is_huge(parts: Parts) -> Files:
    parts.extra[H0] = canonical(parts.records[H0]) + b" " * 2**20
    return forge.seal(parts)


@edit(("V111", f"objects/{OTHER}.safetensors"))
def a_capture_is_misnamed(parts: Parts) -> Files:
    parts.objects[OTHER] = parts.objects[parts.records[H0]["capture"]]
    parts.records[H0]["capture"] = OTHER
    return forge.seal(parts)


# -- V2xx --------------------------------------------------------------------------------------------------


@edit(("V201", "routing.json"))
def a_document_is_gone(parts: Parts) -> Files:
    files = forge.seal(parts)
    del files["routing.json"]
    return forge.reseal(files, parts)


@edit(("V202", H0))
def a_record_is_written_with_spaces(parts: Parts) -> Files:
    parts.extra[H0] = canonical(parts.records[H0]).replace(b",", b", ", 1)
    return forge.seal(parts)


@edit(("V203", f"{H0}:capture"))
def a_record_lacks_a_key(parts: Parts) -> Files:
    del parts.records[H0]["capture"]
    return forge.seal(parts)


@edit(("V203", f"{H0}:replicate"))
def a_record_has_a_bool_for_a_number(parts: Parts) -> Files:
    parts.records[H0]["replicate"] = True
    return forge.seal(parts)


@edit(("V204", "plan.yaml:1: names"))
def the_plan_has_an_unknown_key(parts: Parts) -> Files:
    parts.plan = b"names: quick\n" + parts.plan
    forge.relink(parts)
    return forge.seal(parts)


@edit(("V204", "ledger.yaml:1"))
def the_ledger_has_an_anchor(parts: Parts) -> Files:
    parts.ledger = b"&a\n" + parts.ledger
    forge.relink(parts)
    return forge.seal(parts)


# -- V3xx --------------------------------------------------------------------------------------------------


@edit(("V301", "plan.yaml"), anchor=OTHER)
def the_plan_is_not_the_expected_one(parts: Parts) -> Files:
    return forge.seal(parts)


summary_edit("V302", "plan", OTHER, "bundle.json:plan", "the_summary_names_another_plan")
record_edit("V303", "plan", to=OTHER, where="plan", name="a_record_names_another_plan")
summary_edit("V304", "ledger", OTHER, "bundle.json:ledger", "the_summary_names_another_ledger")
summary_edit("V305", "lock", OTHER, "bundle.json:lock", "the_summary_names_another_lock")
summary_edit("V306", "name", "slow", "bundle.json:name", "the_summary_has_another_name")
summary_edit("V306", "evidence", "gpu", "bundle.json:evidence", "a_simulation_poses_as_a_gpu")
record_edit("V306", "evidence", to="gpu", where="evidence", name="a_record_poses_as_a_gpus")


@edit(("V304", "plan.lock:ledger.name"))
def the_lock_names_another_ledger(parts: Parts) -> Files:
    parts.lock["ledger"]["name"] = "slow"
    return forge.seal(parts)


@edit(("V307", "plan.lock:cells[0]"), ("V307", "plan.lock:cells[1]"))
def the_lock_has_another_order(parts: Parts) -> Files:
    cells = parts.lock["cells"]
    cells[0], cells[1] = cells[1], cells[0]
    return forge.seal(parts)


@edit(("V308", "plan.lock:launches[0].ctas_per_sm"))
def the_lock_has_another_launch(parts: Parts) -> Files:
    parts.lock["launches"][0]["ctas_per_sm"] += 1
    return forge.seal(parts)


@edit(("V309", "plan.lock:padded_blocks"))
def the_lock_counts_other_blocks(parts: Parts) -> Files:
    parts.lock["padded_blocks"] += 1
    return forge.seal(parts)


@edit(("V310", "plan.lock:fixture.digest"))
def the_fixtures_digest_is_another(parts: Parts) -> Files:
    parts.lock["fixture"]["digest"] = OTHER
    for record in parts.records.values():
        record["fixture"] = OTHER
    return forge.seal(parts)


@edit(("V311", "routing.json"))
def the_lock_froze_another_routing(parts: Parts) -> Files:
    fixture = parts.lock["fixture"]
    fixture["routing"] = OTHER
    fixture["digest"] = digest({key: value for key, value in fixture.items() if key != "digest"})
    for record in parts.records.values():
        record["fixture"] = fixture["digest"]
    return forge.seal(parts)


@edit(("V312", "routing.json:topk_weights_bits[3]"))
def a_routing_weight_is_zero(parts: Parts) -> Files:
    parts.routing["topk_weights_bits"][3][1] = 0
    forge.relink(parts)
    return forge.seal(parts)


@edit(("V312", "routing.json:topk_ids[0][1]"))
def a_pinned_route_is_elsewhere(parts: Parts) -> Files:
    parts.routing["topk_ids"][0][1] = 6
    forge.relink(parts)
    return forge.seal(parts)


@edit(("V313", "ledger.yaml:C03.outcome[0]"))
def a_claim_cites_a_cell_that_is_not_there(parts: Parts) -> Files:
    parts.ledger = parts.ledger.replace(
        b"left: {cell: cross-order, history: H0}", b"left: {cell: crossed, history: H0}"
    )
    forge.relink(parts)
    return forge.seal(parts)


@edit(("V314", "plan.yaml:build.kernel"))
def the_plans_kernel_is_not_known(parts: Parts) -> Files:
    parts.plan = parts.plan.replace(b"vllm==0.22.0", b"vllm==0.11.0")
    parts.build["kernel"] = "vllm==0.11.0"
    forge.relink(parts)
    return forge.seal(parts)


@edit(("V314", "plan.yaml:build.launch"))
def the_plan_asks_for_endless_work(parts: Parts) -> Files:
    parts.plan = parts.plan.replace(b"ctas_per_sm: 3", b"ctas_per_sm: 9007199254740991")
    for launch in parts.lock["launches"]:
        launch["ctas_per_sm"] = 2**53 - 1
    forge.relink(parts)
    return forge.seal(parts, log=None)


EDITS[-1].found.extend([("V308", "plan.lock:launches[0].grid"), ("V308", "plan.lock:launches[1].grid")])
EDITS[-1].found.sort(key=lambda item: item[0])


@edit(
    ("V315", "plan.yaml:ablation.within-block.H0.swap"), ("V315", "plan.yaml:ablation.within-block.H1.swap")
)
def a_swap_is_not_within_a_block(_parts: Parts) -> Files:
    plan = (forge.ROOT / "plans" / "quick.yaml").read_bytes()
    return forge.seal(forge.good_parts(plan=plan.replace(b"[6, 9]", b"[20, 37]")))


@edit(("V316", "plan.lock:fixture.tensors.hidden"))
def a_fixture_tensor_has_another_shape(parts: Parts) -> Files:
    parts.lock["fixture"]["tensors"]["hidden"]["shape"][0] += 1
    forge.relink(parts)
    return forge.seal(parts)


@edit(("V316", "plan.lock:fixture.tensors.topk_ids.sha256"))
def the_fixtures_routing_is_another(parts: Parts) -> Files:
    fixture = parts.lock["fixture"]
    fixture["tensors"]["topk_ids"]["sha256"] = OTHER
    fixture["digest"] = digest({key: value for key, value in fixture.items() if key != "digest"})
    for record in parts.records.values():
        record["fixture"] = fixture["digest"]
    return forge.seal(parts)


# -- V4xx --------------------------------------------------------------------------------------------------


def without(parts: Parts, path: str) -> None:
    """Take a record out, with its attempt."""
    number = parts.records.pop(path)["attempt"]
    parts.attempts = [event for event in parts.attempts if event["attempt"] != number]


def attempt(parts: Parts, number: int, **changes: Any) -> list[Document]:
    """Another attempt at the process of attempt 1, with changes in either event."""
    first, last = parts.attempts[:2]
    events = [{**first, "time_us": 10**9}, {**last, "time_us": 10**9}]
    for event in events:
        event["attempt"] = number
        event.update({key: value for key, value in changes.items() if key in event})
    return events


FAILED = {"outcome": "failed", "reason": "exit code 1", "exit_code": 1, "record": None}


@edit(("V401", H0))
def a_cell_has_no_record(parts: Parts) -> Files:
    without(parts, H0)
    return forge.seal(parts)


@edit(("V402", "records/qualification.native.H0.6.json"), ("V413", "attempts.jsonl:141.cell"))
def a_record_is_one_too_many(parts: Parts) -> Files:
    path = "records/qualification.native.H0.6.json"
    record = parts.copy().records[H0]
    record.update(replicate=6, attempt=71)
    record["process"].update(nonce="f" * 32, pid=9999, started_us=10**9)
    record["markers"] = [{**marker, "time_us": 10**9} for marker in record["markers"]]
    parts.records[path] = record
    parts.attempts += attempt(
        parts, 71, record=path, nonce="f" * 32, cell="native", history="H0", replicate=6
    )
    return forge.seal(parts)


@edit(("V403", H0))
def two_files_claim_one_cell_one_of_them_empty(parts: Parts) -> Files:
    parts.extra["records/qualification.native.H0.1.copy.json"] = b""
    return forge.seal(parts)


@edit(("V403", H0))
def two_records_claim_one_cell(parts: Parts) -> Files:
    parts.extra["records/copy.json"] = canonical(parts.records[H0])
    return forge.seal(parts)


@edit(("V404", "records/native.json"))
def a_record_has_another_name(parts: Parts) -> Files:
    record = parts.records.pop(H0)
    parts.records["records/native.json"] = record
    for event in parts.attempts:
        if event.get("record") == H0:
            event["record"] = "records/native.json"
    return forge.seal(parts)


@edit(("V404", H0), ("V404", H1))
def two_records_are_swapped(parts: Parts) -> Files:
    records = parts.records
    records[H0], records[H1] = records[H1], records[H0]
    for event in parts.attempts:
        event_path = event.get("record")
        if event_path in {H0, H1}:
            event["record"] = H1 if event_path == H0 else H0
    return forge.seal(parts)


@edit(("V405", f"{H0}:process"))
def a_record_is_anothers_process(parts: Parts) -> Files:
    earlier = parts.records["records/ablation.within-block.H0.1.json"]["process"]
    process = parts.records[H0]["process"]
    process.update({key: earlier[key] for key in ("pid", "started_us", "boot_id")})
    return forge.seal(parts)


@edit(("V405", f"{H0}:process"))
def a_record_has_anothers_nonce(parts: Parts) -> Files:
    nonce = parts.records["records/ablation.within-block.H0.1.json"]["process"]["nonce"]
    record = parts.records[H0]
    record["process"]["nonce"] = nonce
    for event in parts.attempts:
        if event["attempt"] == record["attempt"] and event["event"] == "started":
            event["nonce"] = nonce
    return forge.seal(parts)


for _keys, _to, _where, _name in (
    (("process", "environment", "TZ"), "CET", "process.environment.TZ", "the_time_zone_is_another"),
    (("process", "environment", "JUNK"), "1", "process.environment.JUNK", "the_environment_leaked"),
    (("process", "flags", "safe_path"), 0, "process.flags.safe_path", "the_interpreter_is_not_isolated"),
    (("process", "hash_seed"), "random", "process.hash_seed", "hashes_are_random"),
):
    record_edit("V406", *_keys, to=_to, where=_where, name=_name)

record_edit("V407", "markers", 3, "time_us", to=0, where="markers[3].time_us", name="time_runs_backwards")


@edit(("V407", f"{H0}:markers"))
def a_marker_is_gone(parts: Parts) -> Files:
    del parts.records[H0]["markers"][-1]
    return forge.seal(parts)


@edit(("V408", "attempts.jsonl:140.previous"))
def the_chain_is_broken(parts: Parts) -> Files:
    def bend(lines: list[bytes]) -> list[bytes]:
        before = sha256(lines[-2][:-1]).encode()
        return [*lines[:-1], lines[-1].replace(before, OTHER.encode())]

    return forge.seal(parts, log=bend)


@edit(("V408", "attempts.jsonl:1.previous"))
def the_start_of_the_log_is_cut_off(parts: Parts) -> Files:
    failed = [{**event, **(FAILED if event["event"] == "ended" else {})} for event in attempt(parts, 0)]
    parts.attempts = [{**event, "time_us": 0} for event in failed] + parts.attempts
    return forge.seal(parts, log=lambda lines: lines[2:], summary=counted(attempts=-1))


@edit(("V409", "attempts.jsonl:141.attempt"))
def an_attempt_never_ended(parts: Parts) -> Files:
    parts.attempts += attempt(parts, 71)[:1]
    return forge.seal(parts)


@edit(("V409", "attempts.jsonl:142.attempt"))
def an_end_has_no_start(parts: Parts) -> Files:
    started, ended = attempt(parts, 71, **FAILED)
    parts.attempts += [started, {**ended, "attempt": 72}, ended]
    return forge.seal(parts)


@edit(("V410", f"{H0}:process.nonce"))
def the_log_gave_another_nonce(parts: Parts) -> Files:
    number = parts.records[H0]["attempt"]
    for event in parts.attempts:
        if event["attempt"] == number and event["event"] == "started":
            event["nonce"] = "e" * 32
    return forge.seal(parts)


@edit(("V410", f"{H0}:attempt"))
def the_log_has_another_records_digest(parts: Parts) -> Files:
    for event in parts.attempts:
        if event.get("record") == H0:
            event["record"] = OTHER
    return forge.seal(parts)


@edit(("V410", f"{H0}:attempt"), ("V410", f"{H0}:attempt"))
def a_failed_attempt_has_a_record(parts: Parts) -> Files:
    for event in parts.attempts:
        if event.get("record") == H0:
            event.update(FAILED)
    return forge.seal(parts)


@edit(("V411", "attempts.jsonl"))
def a_cell_has_two_valid_attempts(parts: Parts) -> Files:
    parts.attempts += attempt(parts, 71, record=OTHER)
    return forge.seal(parts)


record_edit(
    "V412", "process", "argv", 0, to="/usr/bin/python3", where="process.argv[0]", name="a_path_is_real"
)
record_edit(
    "V412", "process", "argv", 1, to="-B", where="process.argv", name="the_site_folder_is_not_left_out"
)


@edit(("V413", "attempts.jsonl:141.cell"))
def an_attempt_is_another_campaigns(parts: Parts) -> Files:
    parts.attempts += attempt(parts, 71, cell="elsewhere", **FAILED)
    return forge.seal(parts)


@edit(("V414", "attempts.jsonl:142.exit_code"))
def a_failure_exited_with_zero(parts: Parts) -> Files:
    parts.attempts += attempt(parts, 71, **{**FAILED, "exit_code": 0})
    return forge.seal(parts)


@edit(("V414", "attempts.jsonl:142.reason"))
def a_failure_has_no_reason(parts: Parts) -> Files:
    parts.attempts += attempt(parts, 71, **{**FAILED, "reason": " "})
    return forge.seal(parts)


@edit(("V415", "attempts.jsonl:139.cell"))
def the_last_two_processes_changed_places(parts: Parts) -> Files:
    events = parts.attempts
    for early, late in ((-4, -2), (-3, -1)):
        keys = ("phase", "cell", "history", "replicate", "nonce", "record")
        one, other = events[early], events[late]
        for key in keys:
            if key in one:
                one[key], other[key] = other[key], one[key]
    one, other = (parts.records[events[place]["record"]] for place in (-3, -1))
    for record, event in ((one, events[-3]), (other, events[-1])):
        record["attempt"] = event["attempt"]
    one["markers"], other["markers"] = other["markers"], one["markers"]
    return forge.seal(parts)


record_edit(
    "V416",
    "process",
    "containment",
    "network",
    to="host",
    where="process.containment.network",
    name="a_process_had_the_network",
    path="records/transfer.cross-order.H1.2.json",
)

record_edit(
    "V417", "markers", 0, "time_us", to=0, where="markers[0].time_us", name="it_ran_before_it_was_started"
)
record_edit(
    "V417", "markers", 6, "time_us", to=10**6, where="markers[6].time_us", name="it_ran_on_after_its_end"
)
record_edit(
    "V418",
    "process",
    "boot_id",
    to=OTHER,
    where="process.boot_id",
    name="one_of_them_ran_elsewhere",
    path=MOVED,
)
record_edit(
    "V419",
    "process",
    "started_us",
    to=10**9,
    where="process.started_us",
    name="a_start_is_moved",
    path=MOVED,
)


@edit(("V419", f"{MOVED}:process.started_us"))
def a_start_is_moved_back(parts: Parts) -> Files:
    """The machine had slept for an hour before all of them."""
    for path, record in parts.records.items():
        record["process"]["started_us"] += 0 if path == MOVED else 3600 * 10**6
    return forge.seal(parts)


# -- V5xx --------------------------------------------------------------------------------------------------


def slots_of(parts: Parts, path: str) -> Document:
    """A record's alignment, to be bent."""
    return dict(parts.alignments[parts.records[path]["treatment"]["alignment"]["sha256"]])


def two_blocks(alignment: Document) -> int:
    """The first block of an expert that fills two."""
    experts = alignment["expert_ids"]
    return next(block for block in range(len(experts) - 1) if experts[block] == experts[block + 1])


def realigned(parts: Parts, path: str, slots: list[int], **changes: Any) -> tuple[Files, str]:
    alignment = {**slots_of(parts, path), "sorted_token_ids": slots, **changes}
    forge.realign(parts, path, alignment)
    return forge.seal(parts), digest(alignment)


def illegal(name: str, bend: Callable[[list[int]], list[int]]) -> None:
    """An edit whose alignment is no alignment of the routing; `where` holds its digest, known when made."""
    found: Expected = []

    def make(parts: Parts) -> Files:
        files, address = realigned(parts, H0, bend(list(slots_of(parts, H0)["sorted_token_ids"])))
        found[:] = [("V501", f"alignments/{address}.json")] * len(found)
        return files

    EDITS.append(Edit(name=name, make=make, found=found))


def _duplicated(slots: list[int]) -> list[int]:
    return [slots[1], *slots[1:]]


illegal("a_route_is_there_twice", _duplicated)
EDITS[-1].found.extend([("V501", "")] * 2)  # one route twice, one nowhere
illegal("a_sentinel_stands_before_a_route", lambda slots: [slots[7], *slots[1:7], slots[0], *slots[8:]])
EDITS[-1].found.extend([("V501", "")] * 2)
record_edit(
    "V502",
    "treatment",
    "alignment",
    "sha256",
    to=OTHER,
    where="treatment.alignment.sha256",
    name="an_alignment_is_gone",
)


@edit(("V503", f"{MOVED}:treatment.alignment.sha256"))
def a_route_moved(parts: Parts) -> Files:
    alignment = slots_of(parts, MOVED)
    slots, cut = list(alignment["sorted_token_ids"]), 8 * (two_blocks(alignment) + 1)
    slots[cut - 1], slots[cut] = slots[cut], slots[cut - 1]
    return realigned(parts, MOVED, slots)[0]


@edit(
    *[
        ("V503", f"records/transfer.cross-order.H0.{n}.json:treatment.alignment.sha256")
        for n in (1, 2, 3, 4, 5)
    ]
)
def an_engine_kept_its_own_alignment(parts: Parts) -> Files:
    own = parts.records[H0]["treatment"]["alignment"]["sha256"]
    for replicate in range(1, 6):
        record = parts.records[f"records/transfer.cross-order.H0.{replicate}.json"]
        record["treatment"]["alignment"]["sha256"] = own
    return forge.seal(parts)


record_edit(
    "V504",
    "treatment",
    "alignment",
    "source",
    to="injected",
    where="treatment.alignment.source",
    name="a_native_alignment_was_injected",
)
record_edit(
    "V505",
    "treatment",
    "alignment",
    "sorted_length",
    to=7,
    where="treatment.alignment.sorted_length",
    name="a_buffer_is_short",
)


@edit(("V506", "alignments/{}.json"))
def an_alignment_is_nobodys(parts: Parts) -> Files:
    alignment = slots_of(parts, H0)
    slots = list(alignment["sorted_token_ids"])
    place = next(p for p in range(1, len(slots)) if p % 8 and 48 not in slots[p - 1 : p + 1])
    slots[place - 1], slots[place] = slots[place], slots[place - 1]
    alignment["sorted_token_ids"] = slots
    parts.alignments[digest(alignment)] = alignment
    _address(digest(alignment))
    return forge.seal(parts)


def _address(address: str) -> None:
    """Fill in the digest that an edit's `found` could not know."""
    for item in EDITS:
        if item.name == "an_alignment_is_nobodys":
            item.found[:] = [("V506", f"alignments/{address}.json")]


# -- V6xx --------------------------------------------------------------------------------------------------

for _code, _key, _to, _name in (
    ("V601", "threads", 256, "a_cta_has_other_threads"),
    ("V601", "tile_n", 256, "a_tile_is_wider"),
    ("V602", "grid", 12, "the_grid_is_ignored"),
    ("V603", "slices", OTHER, "other_slices_were_executed"),
):
    record_edit(_code, "treatment", "gemms", 0, _key, to=_to, where=f"treatment.gemms[0].{_key}", name=_name)


@edit(("V604", f"{H0}:surfaces"))
def a_surface_is_left_out(parts: Parts) -> Files:
    record = parts.records[H0]
    del record["surfaces"][-1]
    record["trajectory"] = digest([surface["sha256"] for surface in record["surfaces"]])
    forge.store(parts, record, b"three of them")
    return forge.seal(parts)


record_edit(
    "V605", "surfaces", 1, "shape", to=[48, 384], where="surfaces[1]", name="a_surface_has_another_shape"
)
record_edit(
    "V605", "surfaces", 0, "dtype", to="bfloat16", where="surfaces[0]", name="a_surface_has_another_type"
)
record_edit("V606", "fixture", to=OTHER, where="fixture", name="a_record_is_of_another_fixture")
record_edit(
    "V607",
    "assumptions",
    to=["U1", "U2", "U3", "U5", "U10"],
    where="assumptions",
    name="an_assumption_is_not_the_plans",
)
record_edit("V607", "assumptions", to=["U2", "U3", "U10"], where="assumptions", name="lane_order_is_not_said")
record_edit(
    "V607", "assumptions", to=["U2", "U3", "U5"], where="assumptions", name="the_bound_of_ex2_is_not_said"
)


@edit(("V607", f"{H0}:assumptions"))
def open_gate_values_are_not_said(parts: Parts) -> Files:
    parts.records[H0].update(
        assumptions=["U3", "U5", "U10"], activation={"candidate": "rn32", "ambiguous_elements": 2}
    )
    return forge.seal(parts)


# -- V7xx --------------------------------------------------------------------------------------------------

record_edit("V701", "software", to=OTHER, where="software", name="a_record_is_of_another_build")
record_edit(
    "V703",
    "treatment",
    "gemms",
    1,
    "symbol",
    to="simulated:other",
    where="treatment.gemms[1].symbol",
    name="another_kernel_ran",
    path=H1,
)
record_edit(
    "V704",
    "activation",
    "candidate",
    to="device",
    where="activation.candidate",
    name="a_simulation_has_a_devices_silu",
)


@edit(("V705", "build.json:driver"))
def a_simulation_has_a_driver(parts: Parts) -> Files:
    parts.build["driver"] = "570.133.07"
    forge.relink(parts)
    return forge.seal(parts)


@edit(("V705", "build.json:arithmetic"))
def a_simulation_has_an_unknown_arithmetic(parts: Parts) -> Files:
    parts.build["arithmetic"] = "_moe_C of vllm 0.22.0"
    forge.relink(parts)
    return forge.seal(parts)


@edit(("V702", "build.json:device.sms"))
def the_device_is_not_the_plans(parts: Parts) -> Files:
    parts.build["device"]["sms"] = 9
    forge.relink(parts)
    return forge.seal(parts)


@edit(("V702", "build.json:source"))
def no_source_was_hashed(parts: Parts) -> Files:
    parts.build["source"] = {}
    forge.relink(parts)
    return forge.seal(parts)


# -- V8xx --------------------------------------------------------------------------------------------------


def tensors_of(parts: Parts, path: str) -> dict[str, bytes]:
    """A record's captured bytes by surface."""
    record = parts.records[path]
    data = parts.objects[record["capture"]]
    begin = 8 + int.from_bytes(data[:8], "little")
    found = {}
    for surface in record["surfaces"]:
        size = 2 * surface["shape"][0] * surface["shape"][1]
        found[surface["name"]] = data[begin : begin + size]
        begin += size
    return found


@edit(("V801", f"{H0}:surfaces[0].sha256"), level="raw")
def a_bit_is_flipped(parts: Parts) -> Files:
    data = bytearray(parts.objects[parts.records[H0]["capture"]])
    data[8 + int.from_bytes(data[:8], "little")] ^= 1
    forge.store(parts, parts.records[H0], bytes(data))
    return forge.seal(parts)


record_edit("V802", "capture", to=OTHER, where="capture", name="a_capture_is_gone")


@edit()
def captures_are_left_out(parts: Parts) -> Files:
    parts.objects, parts.raw = {}, "left-out"
    return forge.seal(parts)


@edit(("V803", f"objects/{sha256(b'one')}.safetensors"), ("V805", f"objects/{sha256(b'one')}.safetensors"))
def captures_are_there_though_left_out(parts: Parts) -> Files:
    parts.objects, parts.raw = {sha256(b"one"): b"one"}, "left-out"
    return forge.seal(parts)


@edit(("V804", f"{H0}:trajectory"))
def a_surface_has_another_digest(parts: Parts) -> Files:
    parts.records[H0]["surfaces"][-1]["sha256"] = OTHER
    return forge.seal(parts)


@edit(("V805", f"objects/{sha256(b'nobody')}.safetensors"))
def a_capture_is_nobodys(parts: Parts) -> Files:
    parts.objects[sha256(b"nobody")] = b"nobody"
    return forge.seal(parts)


@edit(("V806", f"objects/{sha256(b'no capture at all')}.safetensors"), level="raw")
def a_capture_is_none(parts: Parts) -> Files:
    forge.store(parts, parts.records[H0], b"no capture at all")
    return forge.seal(parts)


@edit(level="raw")
def a_capture_lacks_a_tensor(parts: Parts) -> Files:
    record, tensors = parts.records[H0], tensors_of(parts, H0)
    del tensors["w2"]
    shapes = {surface["name"]: surface["shape"] for surface in record["surfaces"]}
    forge.store(parts, record, forge.safetensors(tensors, shapes))
    for item in EDITS:
        if item.name == "a_capture_lacks_a_tensor":
            item.found[:] = [("V807", f"objects/{record['capture']}.safetensors:w2")]
    return forge.seal(parts)


@edit(("V808", f"{H0}:assumptions"), level="raw")
def a_nan_is_not_said(parts: Parts) -> Files:
    tensors = tensors_of(parts, H0)
    tensors["output"] = b"\xff\x7f" + tensors["output"][2:]
    forge.recapture(parts, H0, tensors)
    return forge.seal(parts)


@edit(("V809", "bundle.json:raw"), level="raw")
def captures_are_asked_for_and_left_out(parts: Parts) -> Files:
    return captures_are_left_out(parts)


@edit(("V810", H0 + ":trajectory"))
def one_capture_has_two_trajectories(parts: Parts) -> Files:
    record = parts.records[H0]
    record["surfaces"][-1]["sha256"] = OTHER
    record["trajectory"] = digest([surface["sha256"] for surface in record["surfaces"]])
    return forge.seal(parts)
