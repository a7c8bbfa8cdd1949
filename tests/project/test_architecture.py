"""The house keeps its shape: which way imports point, and who may do what."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Two arrows: ledger <- mechanism, ledger <- verifier.
ALLOWED = {"ledger": set[str](), "mechanism": {"ledger"}, "verifier": {"ledger"}}
#: Inside mechanism the arrow runs one way too: a room imports those to its right only, errors and values.
ROOMS = [
    "command",
    "package",
    "reexecute",
    "campaign",
    "gpu",
    "report",
    "trace",
    "explain",
    "show",
    "process",
    "engine",
    "plan",
    "checkpoint",
    "fixture",
    "kernel",
    "plugin",
]


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "." * node.level


def test_the_parser_sees_imports() -> None:
    assert "ast" in set(imports(Path(__file__)))


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_imports_point_at_the_ledger(package: str) -> None:
    first_party = {name.split(".")[0] for path in modules(package) for name in imports(path)} & ALLOWED.keys()
    assert first_party - {package} <= ALLOWED[package]


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_of_mechanism_import_one_way(room: str) -> None:
    used = {
        name.split(".")[1]
        for path in modules(f"mechanism/{room}")
        for name in imports(path)
        if name.startswith("mechanism.")
    }
    assert used - {room, "errors", "values"} <= set(ROOMS[ROOMS.index(room) + 1 :])


def test_every_room_has_its_line() -> None:
    """In the order of the arrow, and there is no room that has none."""
    text = (ROOT / "mechanism" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE) == ROOMS
    assert sorted(path.parent.name for path in ROOT.glob("mechanism/*/__init__.py")) == sorted(ROOMS)


def test_the_ledger_needs_no_arithmetic() -> None:
    third_party = {name.split(".")[0] for path in modules("ledger") for name in imports(path)}
    assert third_party & {"numpy", "torch", "safetensors", "rich", "click"} == set()


@pytest.mark.parametrize("package", ["mechanism", "verifier", "ledger"])
def test_no_file_asserts_or_prints(package: str) -> None:
    for path in modules(package):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        asserts = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert)]
        assert not asserts, f"{path.relative_to(ROOT)} checks with assert on line {asserts}"


def test_the_kernel_opens_no_files_and_starts_no_processes() -> None:
    """`parallel.py` may ask how many CPUs it may use, compiled arithmetic where to keep its code; no more."""
    for path in modules("mechanism/kernel"):
        forbidden = {"os", "subprocess", "pathlib", "io", "multiprocessing"}
        if path.name == "parallel.py" or path.name.startswith("compiled"):
            forbidden.remove("os")
            asked = re.findall(r"\bos\.(\w+)", path.read_text(encoding="utf-8"))
            assert set(asked) <= {"environ", "sched_getaffinity"}
        assert not set(imports(path)) & forbidden, path.name


def test_whoever_starts_processes_does_not_pay_for_numpy() -> None:
    """The runner competes with its cells for nothing; importing it loads no arrays."""
    code = "import sys, mechanism.command.run; sys.exit('numpy' in sys.modules or 'verifier' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_committed_files_do_not_tell_where_they_were_made() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    told = re.compile(rb"/(?:home|root|work|Users)/[A-Za-z0-9]")
    own = Path(__file__).relative_to(ROOT).as_posix()
    for name in filter(None, listed.decode().split("\0")):
        path = ROOT / name
        if name != own and path.is_file() and path.suffix not in {".npz", ".safetensors"}:
            assert not told.search(path.read_bytes()), name


def test_modules_and_functions_keep_their_size() -> None:
    """A crowded room is split in the change that crowds it. A compiled loop nest is one function by nature."""
    for package in ALLOWED:
        for path in modules(package):
            text = path.read_text(encoding="utf-8")
            assert text.count("\n") <= 400, f"{path.relative_to(ROOT)} has {text.count(chr(10))} lines"
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef) and path.name != "compiled_loops.py":
                    length = (node.end_lineno or 0) - node.lineno
                    assert length <= 80, (
                        f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {length} lines"
                    )
