"""The child's parts, each alone: request, injection, symbols, files, documents, compiled code."""

import hashlib
import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from ledger.canonical import canonical, sha256
from mechanism.engine.asked import LaunchRequest, Shape
from mechanism.errors import CellError
from mechanism.kernel.alignment import Alignment, align
from mechanism.process import documents, exits, files
from mechanism.process.child import main
from mechanism.process.compiled import compile_sources
from mechanism.process.injected import read_injection, require_legal
from mechanism.process.request import CellRequest, read_request
from mechanism.process.symbols import symbols

KERNEL = "vllm==0.22.0"
IDS = ((5, 1), (5, 2), (5, 5), (5, 5))
SHAPE = Shape(
    tokens=4,
    experts=72,
    top_k=2,
    hidden=128,
    intermediate=64,
    group_size=64,
    dtype="float16",
    block_size_m=8,
)
REQUEST = CellRequest(
    plan="0" * 64,
    engine="simulated",
    phase="p",
    cell="c",
    history="H0",
    replicate=1,
    attempt=1,
    nonce="0" * 32,
    kernel=KERNEL,
    device={"name": "toy", "arch": "sm_86", "sms": 8, "shared_memory": 101376},
    launches=(
        LaunchRequest(name="w13", tile_k=64, tile_n=128, threads=128, grid=24),
        LaunchRequest(name="w2", tile_k=64, tile_n=128, threads=128, grid=24),
    ),
    shape=SHAPE,
    fixture={"digest": "0" * 64},
    fixture_folder="/nowhere",
    arrival=None,
    injected="1" * 64,
    rests_on=("U5",),
    record="records/p.c.H0.1.json",
    surfaces=("w13", "output"),
    environment={"TZ": "UTC"},
    symbols=(("/a/python", "$PYTHON"),),
    bundle="/bundle",
    staging="/bundle/staging/1",
    containment="namespaces",
)


def built() -> Alignment:
    return align(IDS, experts=72, block_size_m=8, arrival=(0, 1, 2, 3, 4, 5, 7, 6))


def stored(folder: Path, value: Alignment) -> str:
    data = documents.alignment_bytes(value)
    (folder / f"{sha256(data)}.json").write_bytes(data)
    return sha256(data)


def test_request_survives_its_file() -> None:
    assert read_request(REQUEST.to_bytes()) == REQUEST
    constructed = replace(REQUEST, injected=None, arrival={"kind": "index"})
    assert read_request(constructed.to_bytes()) == constructed


def test_request_of_an_injected_cell_knows_no_arrival() -> None:
    """That path has no code for histories: a request that holds both is refused."""
    assert b'"arrival":null' in REQUEST.to_bytes()
    with pytest.raises(ValueError, match="expected an arrival order or an alignment to inject, and not both"):
        replace(REQUEST, arrival={"kind": "index"})


def test_injection_is_used_once(tmp_path: Path) -> None:
    """Case S7, first half."""
    digest = stored(tmp_path, built())
    injection = read_injection(tmp_path, digest, experts=72, kernel=KERNEL)
    assert injection.take(SHAPE) == built()
    with pytest.raises(CellError) as refusal:
        injection.take(SHAPE)
    assert str(refusal.value) == f"alignment {digest}: expected to be injected once, got a second time"


@pytest.mark.parametrize(
    ("shape", "what"),
    [
        (replace(SHAPE, tokens=5), "routes 10, got 8"),
        (replace(SHAPE, top_k=1), "routes 4, got 8"),
        (replace(SHAPE, block_size_m=16), "block_size_m 16, got 8"),
    ],
)
def test_injection_into_a_layer_of_another_shape(tmp_path: Path, shape: Shape, what: str) -> None:
    """Case S7, second half."""
    digest = stored(tmp_path, built())
    injection = read_injection(tmp_path, digest, experts=72, kernel=KERNEL)
    with pytest.raises(CellError) as refusal:
        injection.take(shape)
    assert str(refusal.value) == f"alignment {digest}: expected one of a layer with {what}"


def test_injection_is_what_its_name_says(tmp_path: Path) -> None:
    digest = stored(tmp_path, built())
    path = tmp_path / f"{digest}.json"
    path.write_bytes(path.read_bytes().replace(b"5", b"6", 1))
    with pytest.raises(CellError, match="expected the content its name says, got sha256 "):
        read_injection(tmp_path, digest, experts=72, kernel=KERNEL)
    with pytest.raises(CellError, match="expected the alignment to inject, found no file"):
        read_injection(tmp_path, "2" * 64, experts=72, kernel=KERNEL)
    data = canonical({"schema_version": 1})
    (tmp_path / f"{sha256(data)}.json").write_bytes(data)
    with pytest.raises(CellError, match="expected an alignment file, got other keys"):
        read_injection(tmp_path, sha256(data), experts=72, kernel=KERNEL)


def test_illegal_alignment_is_refused() -> None:
    twice = replace(built(), sorted_token_ids=(*built().sorted_token_ids[:-1], 0))
    with pytest.raises(CellError, match="not an alignment of this routing: "):
        require_legal(twice, IDS, experts=72, kernel=KERNEL)


def test_longest_path_is_hidden_first() -> None:
    known = symbols(
        [("/srv/ann", "$HOME"), ("/srv/ann/runs/a", "$BUNDLE"), ("/srv/ann", "$HERE"), ("/usr", "$P")]
    )
    assert known.hide("/srv/ann/runs/a/x /srv/ann/y /usr/z") == "$BUNDLE/x $HOME/y /usr/z"


def test_file_is_written_once_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "x"
    files.write_once(path, b"1")
    with pytest.raises(FileExistsError):
        files.write_once(path, b"2")
    assert path.read_bytes() == b"1"
    assert [item.name for item in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize(("durable", "synced"), [(True, [".x.new", "room"]), (False, [])])
def test_what_is_staged_is_not_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, durable: bool, synced: list[str]
) -> None:
    """The runner syncs what it takes over: the bytes first, then the folder that names them."""
    seen: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        seen.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    room = tmp_path / "room"
    room.mkdir()
    files.write_once(room / "x", b"1", durable=durable)
    assert (room / "x").read_bytes() == b"1"
    assert seen == synced


@pytest.mark.parametrize(("dtype", "stored_as"), [("float16", np.float16), ("bfloat16", np.uint16)])
def test_capture_is_safetensors(dtype: str, stored_as: type) -> None:
    """As its own library reads it; bfloat16 it does not read into numpy, so there the bytes are compared."""
    arrays: dict[str, Any] = {
        "w13": np.arange(6, dtype=stored_as).reshape(2, 3),
        "output": np.ones((1, 5), stored_as),
    }
    parts = [(name, array.shape, documents.raw(array)) for name, array in arrays.items()]
    data = documents.capture_bytes(parts, dtype)
    assert data.endswith(b"".join(part for _, _, part in parts))
    assert (int.from_bytes(data[:8], "little") % 8, b"__metadata__" in data) == (0, False)
    if dtype == "float16":
        read = load(data)
        assert {name: array.tolist() for name, array in read.items()} == {
            name: array.tolist() for name, array in arrays.items()
        }


def test_raw_bytes_are_little_endian_and_in_row_order() -> None:
    array = np.asarray([[1.0, 2.0], [3.0, 4.0]], dtype=">f2").T
    assert documents.raw(array) == np.asarray([1, 3, 2, 4], dtype="<f2").tobytes()


def test_environment_is_what_exec_delivered() -> None:
    """Python adds LC_CTYPE to os.environ in the C locale; nobody asked for it."""
    code = "import os; from mechanism.process import documents; print(documents.environment(), 'LC_CTYPE' in os.environ)"
    root = str(Path(__file__).resolve().parents[2])
    told = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": root}, check=True, capture_output=True, text=True
    ).stdout
    assert told.startswith(str({"PYTHONPATH": root}))


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[]", b'{"plan":1}'])
def test_child_without_a_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    path = tmp_path / "request.json"
    if content is not None:
        path.write_bytes(content)
    assert main([str(path)]) == exits.REQUEST
    assert capsys.readouterr().err.startswith(
        "ValueError: expected the path of a request file as the one argument"
    )


def test_compiled_code_is_bound_to_its_source_by_hash(tmp_path: Path) -> None:
    """An edit within the same second and of the same size, which a time stamp would miss, is noticed."""
    source = tmp_path / "room" / "module.py"
    source.parent.mkdir()
    source.write_text("VALUE = 1\n")
    compile_sources([tmp_path])
    target = Path(importlib.util.cache_from_source(str(source)))
    first = target.read_bytes()
    compile_sources([tmp_path])
    assert target.read_bytes() == first
    stat = source.stat()
    source.write_text("VALUE = 2\n")
    os.utime(source, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    code = f"import sys; sys.path.insert(0, {str(source.parent)!r}); import module; print(module.VALUE)"
    told = subprocess.run(
        [sys.executable, "-B", "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert told == "2\n"
    compile_sources([tmp_path])
    assert hashlib.sha256(target.read_bytes()).digest() != hashlib.sha256(first).digest()
