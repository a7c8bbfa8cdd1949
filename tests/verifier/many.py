"""A good bundle of many records, written as a stream: `python -m tests.verifier.many FOLDER ARMS REPLICATES`.

The forged bundle of plans/quick.yaml with as many more replay cells as it takes, every record made from the
first one of its arm: what changes is which process it was.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from ledger.canonical import NO_DIGEST, sha256
from ledger.record import RoutingFile, record_path
from tests.verifier import forge
from tests.verifier.forge import Document, Files, Parts, canonical
from verifier.workings import Workings

_OWN = "      - {{name: replay-{place}, alignment: own, histories: [H0, H1]}}\n"
_MARK = "  - name: transfer\n"


def write_many(folder: Path, *, arms: int, replicates: int) -> int:
    """Write the bundle into a new folder; gives the number of records. `arms`: 14 or more, an even number."""
    model = forge.ROOT / "plans" / "quick.yaml"
    more = "".join(_OWN.format(place=place) for place in range((arms - 14) // 2))
    text = (
        model.read_text().replace("replicates: 5", f"replicates: {replicates}").replace(_MARK, more + _MARK)
    )
    ledger = (forge.ROOT / "ledger" / "claims" / "quick.yaml").read_bytes()
    for old, new in (
        (b"processes: 70,", f"processes: {arms * replicates},"),
        (b"qualification, processes: 20", f"qualification, processes: {(arms - 10) * replicates}"),
        (b"transfer, processes: 20", f"transfer, processes: {4 * replicates}"),
        (b"ablation, processes: 30", f"ablation, processes: {6 * replicates}"),
    ):
        ledger = ledger.replace(old, new.encode())
    small = text.replace(f"replicates: {replicates}", "replicates: 1")
    parts = forge.good_parts(plan=small.encode(), ledger=ledger)
    plan = forge.read_plan(text.encode())
    worked = Workings(plan, RoutingFile.model_validate_json(canonical(parts.routing)))
    parts.plan = text.encode()
    parts.lock["cells"] = [forge.as_locked(cell) for cell in worked.cells]
    forge.relink(parts)
    return _write(parts, worked, folder)


def _write(parts: Parts, worked: Workings, folder: Path) -> int:
    for name in ("records", "alignments", "objects"):
        (folder / name).mkdir(parents=True)
    listed: list[tuple[str, int, str]] = []

    def put(path: str, data: bytes) -> None:
        (folder / path).write_bytes(data)
        listed.append((path, len(data), sha256(data)))

    files: Files = forge.seal(parts)
    for path, data in files.items():
        if not path.startswith("records/") and path not in {"attempts.jsonl", "files.jsonl", "bundle.json"}:
            put(path, data)
    with (folder / "attempts.jsonl").open("wb") as log:
        previous, count = NO_DIGEST, 0
        for path, record, events in _processes(parts, worked):
            data = canonical(record)
            put(path, data)
            events[1]["record"] = sha256(data)
            for event in events:
                line = canonical({**event, "previous": previous})
                previous = sha256(line)
                log.write(line + b"\n")
            count += 1
    log_bytes = (folder / "attempts.jsonl").read_bytes()
    listed.append(("attempts.jsonl", len(log_bytes), sha256(log_bytes)))
    lines = "".join(
        f'{{"path":"{path}","sha256":"{digest}","size":{size}}}\n' for path, size, digest in sorted(listed)
    ).encode()
    (folder / "files.jsonl").write_bytes(lines)
    summary = forge.canonical(_summary(files, lines, count, len(listed)))
    (folder / "bundle.json").write_bytes(summary)
    return count


def _summary(files: Files, lines: bytes, count: int, listed: int) -> Document:
    summary: Document = json.loads(files["bundle.json"])
    summary["files"] = sha256(lines)
    summary["counts"] |= {"files": listed, "records": count, "attempts": count}
    return summary


def _processes(parts: Parts, worked: Workings) -> Iterator[tuple[str, Document, list[Document]]]:
    first = {(record["cell"], record["history"]): record for record in parts.records.values()}
    events = parts.attempts[:2]
    for number, cell in enumerate(worked.cells, start=1):
        record, nonce, at = (
            first[cell.cell, cell.history],
            sha256(f"nonce {number}".encode())[:32],
            number * 1000,
        )
        mine = {**record, "replicate": cell.replicate, "attempt": number}
        mine["process"] = {**record["process"], "nonce": nonce, "started_us": at, "pid": 1000 + number}
        mine["markers"] = [
            {**marker, "time_us": at + place} for place, marker in enumerate(record["markers"])
        ]
        path = record_path(cell.phase, cell.cell, cell.history, cell.replicate)
        names = {"phase": cell.phase, "cell": cell.cell, "history": cell.history}
        started = {**events[0], **names, "replicate": cell.replicate, "attempt": number, "nonce": nonce}
        ended = {**events[1], "attempt": number, "time_us": at + 900}
        yield path, mine, [{**started, "time_us": at}, ended]


if __name__ == "__main__":
    made = write_many(Path(sys.argv[1]), arms=int(sys.argv[2]), replicates=int(sys.argv[3]))
    sys.stdout.write(f"{made} records\n")
