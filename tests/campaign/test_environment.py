"""The same cell, whatever surrounds the runner: same digests, and the environment recorded is the plan's."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.campaign.campaign_setup import ROOT

Prepare = Callable[..., Path]
NATIVE = """
phases:
  - name: qualification
    cells:
      - {name: native, alignment: constructed, histories: [H0]}
      - {name: replay, alignment: own, histories: [H0]}
"""
#: Fields that name the process, and so differ.
NAMES = {"pid", "started_us", "nonce"}


def records(out: Path) -> dict[str, dict[str, object]]:
    found = {}
    for path in sorted((out / "records").iterdir()):
        record = json.loads(path.read_bytes())
        for key in NAMES:
            del record["process"][key]
        for marker in record["markers"]:
            del marker["time_us"]
        found[path.name] = record
    return found


def test_surroundings_change_nothing(campaign: Prepare, tmp_path: Path) -> None:
    """Case C3: locale, umask, time zone, working folder, home, hash seed, threads, junk."""
    folder = campaign(phases=NATIVE)
    script = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]);"
        "from tests.campaign.campaign_setup import run;"
        "done = run(Path(sys.argv[2]), Path(sys.argv[3]), module='mechanism.process.child'); sys.exit(done.exit_code)"
    )
    plain = {"PATH": os.environ["PATH"]}
    odd = {
        **plain,
        "JUNK": "1",
        "LANG": "tr_TR.UTF-8",
        "LC_ALL": "",
        "OMP_NUM_THREADS": "7",
        "OPENBLAS_NUM_THREADS": "3",
        "PYTHONHASHSEED": "random",
        "PYTHONSTARTUP": "/no/such/file",
        "TZ": "Pacific/Chatham",
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "NPY_DISABLE_CPU_FEATURES": "",
    }
    for name, environment, umask, place in (("a", plain, 0o022, ROOT), ("b", odd, 0o077, tmp_path)):
        argv = [sys.executable, "-c", script, str(ROOT), str(folder), str(tmp_path / name)]
        subprocess.run(argv, env=environment, umask=umask, cwd=place, check=True, capture_output=True)
    left, right = records(tmp_path / "a"), records(tmp_path / "b")
    assert len(left) == 2
    assert left == right
    plan = json.loads(json.dumps(left["qualification.native.H0.1.json"]))["process"]
    assert plan["environment"]["OMP_NUM_THREADS"] == "1"
    assert "JUNK" not in plan["environment"]
    assert (plan["hash_seed"], plan["flags"]["hash_randomization"]) == ("0", 0)
    assert plan["argv"][:3] == ["$PYTHON", "-s", "-P"]
    assert plan["working_folder"] == "/"


def test_runner_imports_neither_numpy_nor_the_verifier() -> None:
    code = (
        "import sys; import mechanism.campaign.runner;"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'numpy', 'verifier', 'torch'}))"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert told.stdout.strip() == "[]"


def test_child_imports_no_schema_and_no_command_line() -> None:
    code = (
        "import sys; import mechanism.process.child, mechanism.engine.simulated;"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'pydantic', 'yaml', 'click', 'rich'}))"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert told.stdout.strip() == "[]"
