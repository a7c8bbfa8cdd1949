"""A child without numpy: it delivers a stored replicate of its cell as its own, or misbehaves by name.

Ten times as many cold processes in the same time, where what is tested is the runner. $STORED names the
folder of a finished campaign of the same matrix and fixture, $FAKES the file of fakes; a plan whose
environment has neither finds `stored` and `fakes.json` beside the bundle.
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from mechanism.process import held
from tests.process.bad_child import ACTIONS, misbehave


def canonical(value: Any) -> bytes:
    """As RFC 8785 has it for what is in a record: ASCII keys, integers, text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def main(path: str) -> int:
    """Run the cell, badly if it is told to."""
    began = time.monotonic_ns() // 1000
    request = json.loads(Path(path).read_bytes())
    beside = Path(request["bundle"]).parent
    fakes = json.loads(Path(os.environ.get("FAKES", beside / "fakes.json")).read_text())
    cell = "{cell}.{history}.{replicate}".format(**request)
    word, _, argument = fakes.get(cell, fakes.get("*", "")).partition("=")
    if word == "slow":
        time.sleep(float(argument))
    elif word == "until":
        while not Path(argument).exists():
            time.sleep(0.01)
    elif word in ACTIONS and word != "leave":
        return misbehave(word, argument)
    deliver(request, began, dies=word == "die-at-record")
    afterwards(word, argument, request)
    return 0


def deliver(request: Any, began: int, *, dies: bool) -> None:
    """Write build, capture, alignment, and record; or die by SIGKILL before the last of these."""
    staging = Path(request["staging"])
    stored = Path(os.environ.get("STORED", Path(request["bundle"]).parent / "stored"))
    place = "records/{phase}.{cell}.{history}".format(**request)
    record = json.loads((stored / f"{place}.1.json").read_bytes())
    build = (stored / "build.json").read_bytes()
    write(staging / "build.json", build)
    capture = f"objects/{record['capture']}.safetensors"
    write(staging / capture, (stored / capture).read_bytes())
    if request["injected"] is None:
        alignment = f"alignments/{record['treatment']['alignment']['sha256']}.json"
        write(staging / alignment, (stored / alignment).read_bytes())
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    for key in ("plan", "replicate", "attempt"):
        record[key] = request[key]
    record["process"] |= facts(request)
    for marker in record["markers"]:
        marker["time_us"] = began
    write(staging / request["record"], canonical(record))


def facts(request: Any) -> dict[str, Any]:
    """What names this process."""
    pairs = request["symbols"]
    environment = Path("/proc/self/environ").read_bytes().decode().rstrip("\0").split("\0")
    ticks = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19]
    return {
        "pid": os.getpid(),
        "started_us": int(ticks) * 1_000_000 // os.sysconf("SC_CLK_TCK"),
        "nonce": request["nonce"],
        "argv": [hide(part, pairs) for part in sys.orig_argv],
        "environment": dict(item.split("=", 1) for item in environment),
        "containment": held.found(
            request["containment"], bundle=Path(request["bundle"]), fixture=Path(request["fixture_folder"])
        ),
    }


def hide(text: str, pairs: list[list[str]]) -> str:
    """Symbols for real paths."""
    for path, symbol in pairs:
        text = text.replace(path, symbol)
    return text


def write(path: Path, data: bytes) -> None:
    """A file that is whole or not there; the power does not fail here."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(data)
    beside.rename(path)


def afterwards(word: str, argument: str, request: Any) -> None:
    """What is done to good files."""
    staging = Path(request["staging"])
    record = staging / request["record"]
    match word:
        case "no-record":
            record.unlink()
        case "two-records":
            (staging / "records" / "transfer.canonical.H0.1.json").write_bytes(record.read_bytes())
        case "extra-file":
            (staging / "note.txt").write_text("mine")
        case "edit":  # KEY=VALUE at the record's top level
            key, _, value = argument.partition("=")
            record.write_bytes(canonical({**json.loads(record.read_bytes()), key: json.loads(value)}))
        case "markers-swapped":
            document = json.loads(record.read_bytes())
            document["markers"][2:4] = document["markers"][3:1:-1]
            record.write_bytes(canonical(document))
        case "other-software":
            build = json.loads((staging / "build.json").read_bytes())
            data = canonical({**build, "versions": {**build["versions"], "fake": "another"}})
            (staging / "build.json").write_bytes(data)
            document = json.loads(record.read_bytes())
            record.write_bytes(canonical({**document, "software": hashlib.sha256(data).hexdigest()}))
        case "otherwise-held":
            document = json.loads(record.read_bytes())
            document["process"]["containment"]["network"] = "host"
            record.write_bytes(canonical(document))
        case "flip-capture":
            (capture,) = (staging / "objects").iterdir()
            good = capture.read_bytes()
            capture.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        case "leave":
            misbehave("leave", argument)
        case "into-bundle":
            (Path(request["bundle"]) / request["record"]).write_bytes(record.read_bytes())
        case "crash":
            raise RuntimeError(f"no reason, in {staging / 'request.json'} under {Path.home()}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
