"""`mechanism trace` as a caller meets it: names of cells, text side by side, JSON, refusals."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mechanism.__main__ import cli
from mechanism.plan.document import load_plan
from mechanism.trace.errors import TraceError
from mechanism.trace.source import cell_name

QUICK = Path(__file__).parents[2] / "plans" / "quick.yaml"
ELEMENT = ["--plan", str(QUICK), "--row", "37", "--column", "5"]


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, ["trace", *args])


@pytest.mark.parametrize(
    ("text", "phase", "cell", "history", "replicate"),
    [
        ("native", "qualification", "native", "H0", 1),
        ("native.H1", "qualification", "native", "H1", 1),
        ("native.H1.3", "qualification", "native", "H1", 3),
        ("ablation.forced-grid", "ablation", "forced-grid", "H0", 1),
        ("transfer.cross-order.H1.5.json", "transfer", "cross-order", "H1", 5),
    ],
)
def test_names_of_cells(text: str, phase: str, cell: str, history: str, replicate: int) -> None:
    found = cell_name(load_plan(QUICK).plan, text)
    assert (found.phase, found.cell.name, found.history, found.replicate) == (phase, cell, history, replicate)
    assert found.other == {"H0": "H1", "H1": "H0"}[history]


@pytest.mark.parametrize("text", ["natives", "native.H2", "ablation.native", "a.b.c.d"])
def test_names_that_are_none(text: str) -> None:
    with pytest.raises(TraceError) as raised:
        cell_name(load_plan(QUICK).plan, text)
    assert str(raised.value).startswith(
        f"{text}: expected a cell of plan quick, [phase.]cell[.history[.replicate]]; it has native.H0, native.H1, "
    )


def test_two_histories_side_by_side() -> None:
    done = run("native.H0", *ELEMENT)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "SIMULATED w13 [37, 5], qualification.native.H0 of plan quick"
    told = [line.split() for line in lines]
    assert ["warp", "row", "0", "[6.3]", "0x428C332D", "70.09995", "0x426C814F", "59.126278"] in told
    assert lines[-1].split() == ["element", "0x38E3", "0.611", "0x38E3", "0.611"]


def test_json() -> None:
    done = run("native.H0", *ELEMENT, "--surface", "output", "--row", "5", "--format", "json")
    found = json.loads(done.stdout)
    assert (found["evidence"], found["surface"], found["row"], found["agrees"]) == (
        "simulated",
        "output",
        5,
        None,
    )
    ours, theirs = found["histories"]
    assert [item["history"] for item in (ours, theirs)] == ["H0", "H1"]
    assert [gemm["route"] for gemm in ours["gemms"]] == [20, 21, 22, 23]
    assert ours["steps"][-1]["bits"] == ours["final"]["bits"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (
            ["native", *ELEMENT[:2], "--row", "48", "--column", "0"],
            "--row: expected 0..47 of w13 (routes), got 48",
        ),
        (
            ["native", *ELEMENT[:2], "--row", "12", "--column", "0", "--surface", "output"],
            "--row: expected 0..11 of output (tokens), got 12",
        ),
        (
            ["native", *ELEMENT[:2], "--row", "0", "--column", "384"],
            "--column: expected 0..383 of w13, got 384",
        ),
        (["native.H0.6", *ELEMENT], "native.H0.6: expected a replicate of 1 to 5, got 6"),
        (
            ["native", "--bundle", "b", *ELEMENT],
            "expected --bundle or --plan, got both; a bundle holds its plan: leave out --plan",
        ),
        (
            ["nowhere/native", "--row", "0", "--column", "0"],
            "nowhere: expected the folder of a bundle, found none; name a plan by --plan",
        ),
        (
            ["nowhere/native", *ELEMENT],
            "nowhere/native: expected a cell without a folder beside --bundle or --plan; leave out one of the two",
        ),
    ],
)
def test_refusals(args: list[str], says: str) -> None:
    done = run(*args)
    assert (done.exit_code, done.stderr) == (4, f"mechanism: refused: {says}\n")


def test_a_folder_that_is_no_bundle(tmp_path: Path) -> None:
    done = run(f"{tmp_path}/native", "--row", "0", "--column", "0")
    assert (done.exit_code, done.stderr) == (
        4,
        f"mechanism: refused: {tmp_path}: expected the folder of a bundle, found no plan.yaml in it; check the path\n",
    )


def test_a_bundle_without_a_cell(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "plan.yaml").write_text("")
    done = run(f"{tmp_path}/mine", "--row", "0", "--column", "0")
    assert (done.exit_code, done.stderr) == (
        4,
        f"mechanism: refused: {tmp_path}/mine: expected BUNDLE/CELL, got a bundle alone; name one of its cells too\n",
    )


def test_the_default_plan_is_not_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("native", "--row", "1", "--column", "1").stderr == (
        "mechanism: refused: expected plans/route_block.yaml, the default, below this folder, found none; name a plan"
        " by --plan or a bundle by --bundle\n"
    )
