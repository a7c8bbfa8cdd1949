# fmt: off
"""A second reader of bundles: `python second_reader.py FOLDER [SHA256]`, standard library and JSON only.

Checks yield rows (where, found, wanted): those that differ are faults. 200 lines are all it may have.
"""
import hashlib
import json
import sys
from collections import defaultdict
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

NOT_READ = "plan.yaml, ledger.yaml and tensors but by digest; if alignments are legal; archives; re-execution"
EXITS = {"malformed": 2, "refuted": 1, "missing": 3, "supported": 0, "out-of-scope": 0}  # the first one wins
SURFACES, HISTORIES, TICK_US = ("w13", "activation", "w2", "output"), ("H0", "H1"), 10_000
FOLDERS, KERNELS = ("alignments", "objects", "records"), ("vllm==0.22.0", "vllm==0.29.0")
MARKERS = ("started", "fixture-verified", "history-applied", "aligned", "executed", "captured", "recorded")
DOCUMENTS = ("attempts.jsonl", "build.json", "ledger.yaml", "plan.lock", "plan.yaml", "routing.json")
#: = or !, cell, cell [, surface]: bytes are equal or differ under each history; `~`: under the other history.
CLAIMS = {
    "C01": ["! native ~native", "= native native"], "C02": ["= replay native", "! replay ~replay"],
    "C03": ["= cross-order ~native", "= replay native"], "C06": [], "C09": [], "C10": [], "C11": [],
    "C04": ["= within-block native", "! block-boundary native"],
    "C05": ["= block-boundary ~native", "= within-block native"],
    "C07": ["= forced-grid ~forced-grid w13", "! native ~native w13"],
    "C08": ["= canonical ~canonical", "! canonical native", "! canonical ~native", "! native ~native"],
}
plain = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode
path_of = "records/{phase}.{cell}.{history}.{replicate}.json".format_map

def sha(data: Any) -> str:
    return hashlib.sha256(data if isinstance(data, bytes) else plain(data).encode()).hexdigest()

def read(data: bytes) -> Any:  # a canonical JSON object: decimals and double keys come out otherwise
    value = json.loads(data, parse_float=str, parse_constant=str)
    if not isinstance(value, dict) or plain(value).encode() != data:
        raise ValueError("not a canonical JSON object")
    return value

def schedule(lock: Any, place: int, grid: int) -> Any:
    """[block, column tile, slices] of w13 (place 0) or w2 (1): rounds of whole tiles, then stripes over K."""
    launch, shapes = lock["launches"][place], lock["fixture"]["tensors"]
    (_, k, _), (_, groups, n) = (shapes[launch["name"] + end]["shape"] for end in ("_qweight", "_scales"))
    columns, depth, group = n // launch["tile_n"], k // launch["tile_k"], k // groups // launch["tile_k"]
    tiles, unit = lock["padded_blocks"] * columns, max(1, group) if groups > 1 else 1
    rest = tiles if tiles <= grid else tiles % grid + (0 if 3 * (tiles % grid) > grid else grid)
    step = (depth * rest + grid * unit - 1) // (grid * unit) * unit
    for tile in range(tiles):
        low = (tile - tiles + rest) * depth  # below 0: one of the whole tiles
        ctas = range(low // step, (low + depth - 1) // step + 1)
        cut = [[cta, max(low, cta * step) - low, min(low + depth, cta * step + step) - low] for cta in ctas]
        yield [tile // columns, tile % columns, cut if low >= 0 else [[tile % grid, 0, depth]]]

def attempts(b: Any) -> Any:
    """The log: chain, clock, each attempt started and ended once, in the lock's order, as it says."""
    before, clock, highest, runner, cells = "0" * 64, 0, 0, 0, [*b.planned]
    running, firsts, valid = dict[int, Any](), dict[int, None](), list[str]()
    for event in map(read, b.data["attempts.jsonl"].splitlines()):
        kind, number, now = event["event"], event.get("attempt"), event["time_us"]
        ascends = now >= clock if kind != "resumed" else True, number > highest if kind == "started" else True
        yield "attempts.jsonl", [event["previous"], *ascends], [before, True, True]
        before, clock, runner = sha(event), now, runner + (kind == "resumed")
        if kind == "started":
            highest, running[number], firsts[cells.index(path_of(event))] = number, (runner, event), None
        elif kind == "ended":
            (began, start), code, well = running.pop(number), event["exit_code"], event["outcome"] == "valid"
            exits = {"valid": code == 0 and not event["signal"], "invalid": code == 0, "failed": code != 0}
            told = event["record"] is not None, not event["reason"].strip(), exits.get(event["outcome"], True)
            yield "attempts.jsonl", told, [well, well, True]
            b.runs[number] = began, start, event, now if began == runner else 2**53
            valid += [path_of(start)] if well else []
    yield "attempts.jsonl", [[*running], [*firsts], sorted(valid)], [[], sorted(firsts), sorted({*valid})]

def record(b: Any, path: str) -> Any:
    """One record by its cell and attempt; what goes to `said` must be the same wherever it is said."""
    own, cell, (runner, start, end, last) = b.value[path], b.planned[path], b.runs[b.value[path]["attempt"]]
    process, treatment, arm = own["process"], own["treatment"], (own["cell"], own["history"])
    argv, aligned, flags = process["argv"], treatment["alignment"], process["flags"]
    seeded = process["hash_seed"] == process["environment"].get("PYTHONHASHSEED", "random")
    times = [start["time_us"], *(mark["time_us"] for mark in own["markers"]), last]
    surfaces, cpu = {one["name"]: one["sha256"] for one in own["surfaces"]}, own["engine"] == "simulated"
    for place, (gemm, grid) in enumerate(zip(treatment["gemms"], cell["grids"], strict=True)):
        pinned = {key: value for key, value in b.lock["launches"][place].items() if key != "ctas_per_sm"}
        yield path, gemm, {**gemm, **pinned, "grid": grid, "slices": sha([*schedule(b.lock, place, grid)])}
    yield path, [path_of(own), path_of(start), end["outcome"]], [path, path, "valid"]
    yield path, [start["nonce"], end["record"], times], [process["nonce"], sha(b.data[path]), sorted(times)]
    yield path, own["trajectory"], sha([*surfaces.values()])
    yield path, [[mark["name"] for mark in own["markers"]], [*surfaces]], [MARKERS, SURFACES]
    yield path, [word for word in argv if word.startswith(("/", "~")) or "=/" in word], []
    yield path, aligned["source"] == "constructed", cell["alignment"] == "constructed"
    needed = {"U10", *["U2"] * (own["activation"]["ambiguous_elements"] > 0)} if cpu else set()
    yield path, needed <= {*own["assumptions"]}, True
    files = [f"alignments/{aligned['sha256']}.json", f"objects/{own['capture']}.safetensors"]
    b.cited |= {*files[: 1 + (b.summary["raw"] == "included")]}
    b.arms[arm].append(surfaces)
    b.ran.append((process["boot_id"], start["time_us"], times[1], process["started_us"]))
    origin = "stable" if cell["alignment"] == "stable" else cell["donor"] or (own["history"] if cpu else path)
    b.said.append({
        **{key: own[key] for key in ("plan", "fixture", "software", "engine", "evidence")},
        "shapes": [[one["dtype"], one["shape"]] for one in own["surfaces"]],
        "candidate": own["activation"]["candidate"], f"boot of runner {runner}": process["boot_id"],
        "isolation": [argv[0], {"-s", "-P"} <= {*argv}, flags["no_user_site"], flags["safe_path"], seeded],
        "environment": process["environment"], "containment": process["containment"],
        "buffers": [aligned["sorted_length"], aligned["expert_length"]], f"nonce {process['nonce']}": path,
        f"process {process['boot_id']} {process['pid']} {process['started_us']}": path,
        f"capture {own['capture']}": own["trajectory"], f"assumptions {arm}": own["assumptions"],
        "simulated": all(gemm["symbol"].startswith("simulated:") for gemm in treatment["gemms"]),
        **{f"{gemm['name']} on {gemm['grid']} CTAs": gemm["symbol"] for gemm in treatment["gemms"]},
        **({f"alignment {origin} {cell['swap']}": aligned["sha256"]} if files[0] in b.data else {}),
    })

def checks(b: Any) -> Any:
    """All rows: documents, manifest, log, records; then what only all tell: agreement, clocks, coverage."""
    b.value = {path: read(data) for path, data in b.data.items() if path.endswith((".json", ".lock"))}
    b.lock, b.summary, build = (b.value[path] for path in ("plan.lock", "bundle.json", "build.json"))
    b.planned, routing = {path_of(cell): cell for cell in b.lock["cells"]}, b.value["routing.json"]
    digest, lines = {path: sha(data) for path, data in b.data.items()}, b.data["files.jsonl"].splitlines()
    listed = {line["path"]: line for line in map(read, lines)}
    counts = {kind: sum(path.startswith(kind) for path in listed) for kind in FOLDERS}
    counts |= {"files": len(lines), "attempts": b.data["attempts.jsonl"].count(b'"event":"started"')}
    told = {"plan": digest["plan.yaml"], "ledger": digest["ledger.yaml"], "name": b.lock["plan"]["name"]}
    more = {"lock": digest["plan.lock"], "files": digest["files.jsonl"], "counts": counts}
    yield "bundle.json", b.summary, {**b.summary, **told, **more}
    yield "the anchor", b.anchor in {"", told["plan"], more["lock"]}, True
    yield "files.jsonl", [len({*map(str.lower, listed)}), *listed], [len(lines), *sorted(listed)]
    for path in {*b.data} - {"bundle.json", "files.jsonl"}:
        line = {"path": path, "sha256": digest[path], "size": len(b.data[path])}
        named = f"alignments/{digest[path]}.json", f"objects/{digest[path]}.safetensors"
        yield path, [path in {*DOCUMENTS, *b.planned, *named}, listed.get(path)], [True, line]
    tensors, fixture, gpu = b.lock["fixture"]["tensors"], {**b.lock["fixture"]}, build["engine"] == "vllm"
    for name, key, least in (("topk_ids", "topk_ids", 0), ("topk_weights", "topk_weights_bits", 1)):
        stored = sha(b"".join(one.to_bytes(4, "little") for row in routing[key] for one in row))
        yield "routing.json", [tensors[name]["sha256"], min(map(min, routing[key])) >= least], [stored, True]
    yield "plan.lock", fixture.pop("digest"), sha(fixture)
    for one in b.lock["launches"]:
        grid, threads = build["device"]["sms"] * one["ctas_per_sm"], one["tile_k"] * one["tile_n"] // 64
        yield "plan.lock", one, {**one, "grid": grid, "threads": threads}
    yield "build.json", [build["kernel"] in KERNELS, build["source"] != {}], [True, True]
    b.said += [{"engine": one["engine"], "evidence": one["evidence"]} for one in (b.summary, build)]
    b.said += [{key: b.lock[key]["sha256"] for key in ("plan", "ledger")}, {
        "routing": fixture["routing"], "tokens": tensors["hidden"]["shape"][0]}, {
        "simulated": build["driver"] is None}, {"simulated": build["arithmetic"] in ("numpy", "numba")}, {
        **told, "routing": digest["routing.json"], "tokens": routing["tokens"], "fixture": sha(fixture),
        "software": digest["build.json"], "isolation": ["$PYTHON", True, 1, 1, True], "simulated": not gpu,
        "evidence": "gpu" if gpu else "simulated", "candidate": "device" if gpu else "rn32"}]
    yield from attempts(b)
    yield from (row for path in b.data if path.startswith("records") for row in record(b, path))
    for what, value in (item for said in b.said for item in said.items()):
        b.told[what].add(plain(value))
    yield from ((what, len(values), 1) for what, values in b.told.items())
    b.gone |= {*b.planned, *b.cited, *listed} - {*b.data}
    for (boot, _, first, start), (same, later, _, other) in product(b.ran, repeat=2):  # start - first: sleep
        yield "clocks", boot == same and first <= later and start - first > other + TICK_US - later, False
    yield "uncited", [path for path in {*b.data} - b.cited if path.startswith(FOLDERS[:2]) and not b.gone], []

def claim(b: Any, name: str) -> str:
    """The worst verdict on a claim's relations, where the lock has their cells; C06: of swapped routes."""
    cells, found = {cell["cell"]: cell for cell in b.planned.values()}, ["supported"] * (name == "C10")
    relations = [f"= {cell} {cell}" for cell in cells] if name == "C09" else CLAIMS[name]
    for (sign, left, right, *surfaces), place in product(map(str.split, relations), (0, 1)):
        other = right.strip("~"), HISTORIES[1 - place if right[0] == "~" else place]
        pairs = [*product(b.arms[left, HISTORIES[place]], b.arms[other])]
        equal = {one[key] == two[key] for one, two in pairs for key in surfaces or SURFACES}
        known, once = {left, other[0]} <= {*cells}, left == right and len(pairs) < 4  # that is no repetition
        found += ["missing" if once else "supported" if equal == {sign == "="} else "refuted"] * known
    if name == "C06" and "block-boundary" in cells:
        native = b.value[f"alignments/{json.loads(min(b.told['alignment H0 None']))}.json"]
        swap, slots = cells["block-boundary"]["swap"]["routes"], native["sorted_token_ids"]
        blocks = sorted(slots.index(route) // native["block_size_m"] for route in swap)
        tiles = [[*schedule(b.lock, place, one["grid"])] for place, one in enumerate(b.lock["launches"])]
        cut = [[[p[1:] for p in parts] for at, _, parts in one if at == x] for one in tiles for x in blocks]
        good = {*map(len, cut[0])} == {1} and 1 not in map(len, cut[1]) and cut[2] == cut[3]
        found.append("supported" if good else "refuted")
    return min(found, key=[*EXITS].index, default="out-of-scope")

def judge(root: Path, anchor: str = "") -> tuple[dict[str, str], int, list[str]]:
    """Every claim's verdict, the exit code, and what is at fault: then that is every claim's verdict."""
    b: Any = SimpleNamespace(data={}, runs={}, said=[], ran=[], cited=set(), anchor=anchor)
    b.told, b.arms, faults = defaultdict(set), defaultdict(list), list[str]()
    for file in root.rglob("*"):
        path, most = file.relative_to(root).as_posix(), 2**33 if file.parent.name == "objects" else 2**26
        if file.is_file() and not file.is_symlink() and file.stat().st_size <= most:
            b.data[path] = file.read_bytes()
        elif file.is_symlink() or path not in FOLDERS:
            faults.append(path)
    b.gone = {*DOCUMENTS, "bundle.json", "files.jsonl"} - {*b.data}
    try:
        faults += [at for at, found, wanted in (() if b.gone else checks(b)) if plain(found) != plain(wanted)]
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError, ArithmeticError) as fault:
        faults.append(f"what cannot be read: {fault!r}")
    whole = "missing" if "bundle.json" in b.gone else "malformed" if faults else "missing" if b.gone else ""
    verdicts = {name: whole or claim(b, name) for name in CLAIMS}
    return verdicts, EXITS[min(verdicts.values(), key=[*EXITS].index)], faults + sorted(b.gone)

if __name__ == "__main__":
    answer, exit_code, at_fault = judge(Path(sys.argv[1]), *sys.argv[2:])
    print(json.dumps({**answer, "faults": at_fault, "not checked": NOT_READ}, indent=1))
    sys.exit(exit_code)
