"""A library that is not installed: which extra brings it, and how; never a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from mechanism.command.extras import EXTRAS, lacking

ROOT = Path(__file__).parents[2]
QUICK, BUNDLE = "plans/quick.yaml", "runs/route-block"
CODE = "import sys; sys.modules[{library!r}] = None; from mechanism.__main__ import main; main()"


@pytest.mark.parametrize(
    ("library", "extra", "arguments"),
    [
        ("numpy", "run", ("freeze", QUICK)),
        ("numpy", "run", ("run", QUICK, "--out", "{new}")),
        ("safetensors", "run", ("run", QUICK, "--out", "{new}")),
        ("numpy", "run", ("trace", "native.H0", "--row", "1", "--column", "1")),
        ("numpy", "run", ("reexecute", BUNDLE)),
        ("numpy", "run", ("vectors", "check", "tests/kernel/vectors")),
        ("jinja2", "report", ("report", BUNDLE, "--out", "{new}")),
        ("bagit", "package", ("package", BUNDLE, "--out", "{new}.zip")),
        ("rocrate", "package", ("package", BUNDLE, "--out", "{new}.zip")),
        ("cryptography", "package", ("key", "new", "--out", "{new}")),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_the_extra_is_named(library: str, extra: str, arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Refused with 4, by what to type; nothing is made."""
    argv = [sys.executable, "-c", CODE.format(library=library)]
    argv += [argument.format(new=tmp_path / "new") for argument in arguments]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    said = (
        f"mechanism: refused: expected the library {library}, found none; install the extra `{extra}`: in the"
        f" project's folder: pip install -e '.[{extra}]'\n"
    )
    assert (done.returncode, done.stderr) == (4, said)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_module_of_ours_is_a_fault_of_ours() -> None:
    assert lacking(ModuleNotFoundError("no", name="mechanism.nothing")) is None
    assert lacking(ImportError("no")) is None


def test_the_extras_are_those_of_the_project() -> None:
    """Each brings the library that it is named for; markupsafe comes with jinja2, torch also with `gpu`."""
    import tomllib  # noqa: PLC0415

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    brought = project["optional-dependencies"]
    for library, extra in EXTRAS.items():
        named = {"markupsafe": "jinja2", "cryptography": "securesystemslib[crypto]"}.get(library, library)
        assert any(item.startswith(named) for item in brought[extra]), library
