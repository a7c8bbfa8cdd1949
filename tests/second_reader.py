"""A second reader of bundles: `python second_reader.py FOLDER` prints verdicts; exit code as the verifier's.

Standard library only. From the JSON files alone (plan.lock lists the cells) it works out digests, coverage,
schedules and the equalities behind the claims of route_block and quick. It cannot see what only plan.yaml and
ledger.yaml say (arrivals, environments, assumptions), does not judge alignments, and opens no capture (C11).
"""

import hashlib
import json
import re
import sys
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Any

EXITS = {"malformed": 2, "ambiguous": 2, "refuted": 1, "missing": 3, "supported": 0}  # the first one wins
SURFACES, HISTORIES = ("w13", "activation", "w2", "output"), ("H0", "H1")
DOCUMENTS = ("attempts.jsonl", "build.json", "ledger.yaml", "plan.lock", "plan.yaml", "routing.json")
TOP = (*DOCUMENTS, "bundle.json", "files.jsonl")
NAME = re.compile(r"records/([^./]+)\.([^./]+)\.([^./]+)\.([0-9]+)(?![0-9]).*")
PLACE = re.compile(r"records/[\w.-]+|alignments/([0-9a-f]{64})\.json|objects/([0-9a-f]{64})\.safetensors")
#: = or !, cell, cell [, surface]: bytes are equal or differ under each history; `~`: under the other history.
CLAIMS = {
    "C01": ["! native ~native"], "C02": ["= replay native", "! replay ~replay"], "C06": [], "C10": [],
    "C03": ["= cross-order ~native", "= replay native"],
    "C04": ["= within-block native", "! block-boundary native"],
    "C05": ["= block-boundary ~native", "= within-block native"],
    "C07": ["= forced-grid ~forced-grid w13", "! native ~native w13"],
    "C08": ["= canonical ~canonical", "! canonical native", "! canonical ~native", "! native ~native"],
    "C09": ["= native native", "= replay replay", "= cross-order cross-order", "= canonical canonical",
            "= within-block within-block", "= block-boundary block-boundary", "= forced-grid forced-grid"],
}  # fmt: skip
FAULTS = (LookupError, TypeError, ValueError, AttributeError, StopIteration, RecursionError)
plain = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode
path_of = "records/{phase}.{cell}.{history}.{replicate}.json".format_map


def sha(data: Any) -> str:
    return hashlib.sha256(data if isinstance(data, bytes) else plain(data).encode()).hexdigest()


def read(data: bytes) -> Any:
    """One canonical JSON object; decimals and double keys do not come out as they went in."""
    value = json.loads(data, parse_float=str, parse_constant=str)
    if not isinstance(value, dict) or plain(value).encode() != data:
        raise ValueError("not a canonical JSON object")
    return value


def schedule(lock: Any, place: int, grid: int) -> list[Any]:
    """[block, column tile, slices] of w13 (place 0) or w2 (1): rounds of whole tiles, then stripes over K."""
    launch, shapes = lock["launches"][place], lock["fixture"]["tensors"]
    k, (_, groups, n) = (shapes[launch["name"] + end]["shape"] for end in ("_qweight", "_scales"))
    columns, depth = n // launch["tile_n"], k[1] // launch["tile_k"]
    tiles, unit = lock["padded_blocks"] * columns, max(1, k[1] // groups // launch["tile_k"])
    rest = tiles if tiles <= grid else tiles % grid + (0 if 3 * (tiles % grid) > grid else grid)
    step, found = -(-depth * rest // grid), [[[tile % grid, 0, depth]] for tile in range(tiles - rest)]
    step = step if groups == 1 else -(-step // unit) * unit
    for low in range(0, rest * depth, depth):
        ctas = range(low // step, (low + depth - 1) // step + 1)
        found.append([[c, max(low, c * step) - low, min(low + depth, c * step + step) - low] for c in ctas])
    return [[tile // columns, tile % columns, parts] for tile, parts in enumerate(found)]


def documents(data: Any, lock: Any, bundle: Any, build: Any) -> Any:
    """Faults of the documents' digests of each other, and of the manifest, as (verdict, path)."""
    digest = {name: sha(found) for name, found in data.items()}
    fixture = {key: value for key, value in lock["fixture"].items() if key != "digest"}
    names = {"plan": "plan.yaml", "ledger": "ledger.yaml", "lock": "plan.lock", "files": "files.jsonl"}
    named = {"name": lock["plan"]["name"], "engine": build["engine"], "evidence": build["evidence"]}
    held = [lock["plan"]["sha256"], lock["ledger"]["sha256"], lock["fixture"]["digest"], fixture["routing"]]
    wanted = [digest["plan.yaml"], digest["ledger.yaml"], sha(fixture), digest.get("routing.json", held[3])]
    if held != wanted or bundle != {**bundle, **named, **{key: digest[name] for key, name in names.items()}}:
        yield "malformed", "plan.lock"
    lines = data["files.jsonl"].splitlines()
    listed = {line["path"]: line for line in map(read, lines)}
    if (len({*map(str.lower, listed)}), [*listed]) != (len(lines), sorted(listed)):
        yield "malformed", "files.jsonl"
    for path in sorted({*data, *listed} - {"bundle.json", "files.jsonl"}):
        line, place = {"path": path, "sha256": digest.get(path)}, PLACE.fullmatch(path)
        good = not {*place.groups()} - {None, line["sha256"]} if place else path in DOCUMENTS
        if path not in data:
            yield "missing", path
        elif not good or listed.get(path) != {**line, "size": len(data[path])}:
            yield "malformed", path


def attempts(data: Any, records: Any) -> Any:
    """Faults of the log: its chain of digests, and one valid attempt with the digest of each record."""
    before, valid = "0" * 64, defaultdict[Any, list[str]](list)
    for line in data["attempts.jsonl"].splitlines():
        event = read(line)
        if event["previous"] != before:
            yield "malformed", "attempts.jsonl"
        before = sha(line)
        valid[event.get("attempt")] += [event["record"]] if event.get("outcome") == "valid" else []
    for path, record in records.items():
        if valid[record["attempt"]] != [sha(data[path])]:
            yield "malformed", path


def fits(record: Any, cell: Any, lock: Any, build: Any, software: str) -> bool:
    """Whether a record is what its cell of the lock asks for, but for its alignment."""
    given, fixed = record["treatment"], [lock["plan"]["sha256"], lock["fixture"]["digest"], software]
    for place, (gemm, grid) in enumerate(zip(given["gemms"], cell["grids"], strict=True)):
        asked = {key: value for key, value in lock["launches"][place].items() if key != "ctas_per_sm"}
        if gemm != {**gemm, **asked, "grid": grid, "slices": sha(schedule(lock, place, grid))}:
            return False
    return (
        [record["plan"], record["fixture"], record["software"]] == fixed
        and [record["engine"], record["evidence"]] == [build["engine"], build["evidence"]]
        and record["trajectory"] == sha([surface["sha256"] for surface in record["surfaces"]])
        and [surface["name"] for surface in record["surfaces"]] == [*SURFACES]
        and (given["alignment"]["source"] == "constructed") == (cell["alignment"] == "constructed")
    )


def holds(claim: str, arms: Any, lock: Any, native: Any) -> bool:
    """Whether a claim's relations hold; C06: the swapped routes' blocks are direct and split at W13."""
    for sign, left, right, *surfaces in map(str.split, CLAIMS[claim]):
        for place, history in enumerate(HISTORIES):
            other = right.strip("~"), HISTORIES[1 - place] if right[0] == "~" else history
            for one, two in product(arms[left, history], arms[other]):
                if any((one[name] == two[name]) != (sign == "=") for name in surfaces or SURFACES):
                    return False
    swap = next(cell["swap"]["routes"] for cell in lock["cells"] if cell["cell"] == "block-boundary")
    blocks = sorted(native["sorted_token_ids"].index(route) // native["block_size_m"] for route in swap)
    tiles = [schedule(lock, place, lock["launches"][place]["grid"]) for place in (0, 1)]
    cut = [[[p[1:] for p in parts] for at, _, parts in one if at == b] for one in tiles for b in blocks]
    return claim != "C06" or ({*map(len, cut[0])} == {1} and 1 not in map(len, cut[1]) and cut[2] == cut[3])


def faults(root: Path) -> Any:
    """Every fault as (verdict, path), who cites which file, surfaces by arm, the lock, a native alignment."""
    data = {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}
    bad = [("missing", name) for name in TOP if name not in data]
    value, claimed = defaultdict[str, Any](dict), defaultdict[str, list[str]](list)
    cites, arms, native = defaultdict[str, set[Any]](set), defaultdict[Any, list[Any]](list), dict[Any, Any]()
    for path, content in data.items():
        named = NAME.fullmatch(path)
        name = "records/{}.{}.{}.{}.json".format(*named.groups()) if named else path
        try:
            value[path] = read(content) if path.endswith((".json", ".lock")) else {}
            name = path_of(value[path]) if "cell" in value[path] and not named else name
        except FAULTS:
            bad.append(("malformed", path))
        if path.startswith("records/"):
            claimed[name].append(path)
    lock, bundle, build = value["plan.lock"], value["bundle.json"], value["build.json"]
    planned = {path_of(cell): cell for cell in lock.get("cells", ())}
    software = sha(data.get("build.json", b""))
    bad += [("missing" if name in planned else "malformed", name) for name in {*planned} ^ {*claimed}]
    for name, paths in claimed.items():
        record, arm = value[paths[0]], tuple(name.split(".")[1:3])
        cites[paths[0]].add(arm)
        try:
            if len(paths) > 1:  # then neither is judged by its content
                bad = [item for item in bad if item[1] not in paths] + [("ambiguous", name)]
            elif record and name in planned:
                given = f"alignments/{record['treatment']['alignment']['sha256']}.json"
                capture = f"objects/{record['capture']}.safetensors"
                arms[arm].append({item["name"]: item["sha256"] for item in record["surfaces"]})
                native.setdefault(arm, value[given])
                cites[given].add(arm)
                cites[capture].add(arm)
                if {given, capture} - {*data} - ({capture} if bundle["raw"] == "left-out" else set()):
                    bad.append(("missing", name))
                good = path_of(record) == paths[0] and fits(record, planned[name], lock, build, software)
                bad += [] if good else [("malformed", paths[0])]
        except FAULTS:
            bad.append(("malformed", paths[0]))
    found = {path: value[path] for path, *more in claimed.values() if value[path] and not more}
    for check in (documents(data, lock, bundle, build), attempts(data, found)):
        try:
            bad += check
        except FAULTS:
            bad += [] if bad else [("malformed", "bundle.json")]
    return bad, cites, arms, lock, native.get(("native", "H0"))


def judge(root: Path) -> tuple[dict[str, str], int]:
    """Every claim's verdict, and the exit code: a fault sinks the claims that rest on what it concerns."""
    bad, cites, arms, lock, native = faults(root)
    verdicts, about = {}, [(verdict, NAME.fullmatch(where), where) for verdict, where in bad]
    sinks = [(v, {n.group(2, 3)} if n else None if w in TOP else cites[w]) for v, n, w in about]
    for claim, relations in CLAIMS.items():
        cells = {word.strip("~") for relation in relations for word in relation.split()} | {"native"}
        rests = {arm for arm in product(cells, HISTORIES) if claim != "C06" or arm == ("native", "H0")}
        sunk = [verdict for verdict, on in sinks if on is None or (on if claim == "C10" else on & rests)]
        sunk = sunk or ["supported" if holds(claim, arms, lock, native) else "refuted"]
        verdicts[claim] = min(sunk, key=[*EXITS].index)
    worst = min([*verdicts.values(), *(verdict for verdict, _ in bad)], key=[*EXITS].index)
    return {**verdicts, "C11": "out-of-scope"}, EXITS[worst]


if __name__ == "__main__":
    answer, exit_code = judge(Path(sys.argv[1]))
    print(json.dumps(answer, indent=1))
    sys.exit(exit_code)
