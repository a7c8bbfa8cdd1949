"""`mechanism gpu`: plans from geometry, and the checks on a device that is none."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from mechanism.__main__ import cli
from mechanism.command.gpu_check import CheckOptions, run_checks
from mechanism.command.vectors_record import write_vectors
from mechanism.errors import EngineError, MechanismError, PlanError
from mechanism.gpu import checks, geometry_plan
from mechanism.gpu.geometry_plan import boundary
from mechanism.kernel import arrival
from mechanism.kernel.devices import DEVICES, Device
from mechanism.plan.document import load_plan
from tests.vllm_engine.fake_device import FakeOperators, gpu

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "kernel" / "vectors"
SMALL = Device(name="rtx-3090", arch="sm_86", sms=82, shared_memory=101376)


@pytest.fixture
def operators() -> FakeOperators:
    return FakeOperators(SMALL, arrival.index_order)


@pytest.mark.parametrize("name", ["route_block_h200"])
def test_the_committed_plan_is_what_the_geometry_gives(name: str, tmp_path: Path) -> None:
    out, claims = tmp_path / f"{name}.yaml", tmp_path / "claims" / f"{name}.yaml"
    claims.parent.mkdir()
    argv = ["gpu", "plan", "--gpu", "h200", "--out", str(out), "--claims", str(claims)]
    done = CliRunner().invoke(cli, argv)
    assert done.exit_code == 0, done.output
    assert out.read_bytes() == (ROOT / "plans" / f"{name}.yaml").read_bytes()
    assert claims.read_bytes() == (ROOT / "ledger" / "claims" / f"{name}.yaml").read_bytes()


@pytest.mark.parametrize(
    ("name", "blocks", "classes", "grid"),
    [
        ("rtx-3090", (40, 41), ("direct", "split"), 204),  # the published blocks, found from the geometry
        ("a100", (35, 36), ("direct", "split"), 309),
        ("h200", (21, 22), ("direct", "mixed"), 408),
    ],
)
def test_where_the_boundary_lies(
    name: str, blocks: tuple[int, int], classes: tuple[str, str], grid: int
) -> None:
    found = boundary(DEVICES[name])
    assert (found.blocks, found.w13, found.grid) == (blocks, classes, grid)


def test_plans_of_all_known_devices_can_be_frozen(tmp_path: Path) -> None:
    """Deliverable by their own rules: swaps across the boundary, a grid without splits, two memberships."""
    from mechanism.fixture.routing import routing_file  # noqa: PLC0415
    from mechanism.plan.deliver import refuse_static, refuse_undeliverable  # noqa: PLC0415
    from mechanism.plan.document import load_ledger  # noqa: PLC0415

    for name in ("a10", "a100", "l4", "rtx-4090", "h100-pcie"):
        out = tmp_path / f"plan-{name}.yaml"
        assert CliRunner().invoke(cli, ["gpu", "plan", "--gpu", name, "--out", str(out)]).exit_code == 0
        loaded = load_plan(out)
        refuse_static(loaded)
        blocks = refuse_undeliverable(
            loaded, load_ledger(loaded, tmp_path), routing_file(loaded.plan.fixture).topk_ids
        )
        assert blocks == geometry_plan.BLOCKS


def test_what_to_do_with_a_plan_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Freeze it here, run it there; where there is such a GPU, both here. As commands that can be typed."""
    folder = tmp_path / "my plans"
    folder.mkdir()
    out = folder / "a100.yaml"
    argv = ["gpu", "plan", "--gpu", "a100", "--out", str(out)]

    def absent(_name: str, **_pinned: object) -> None:
        raise EngineError("engine vllm: expected torch 2.11.0, found none; install it")

    monkeypatch.setattr("mechanism.command.gpu.require_machine", absent)
    head = f"plan:   {out}\nledger: {folder}/a100-claims.yaml\nblocks 35 and 36 of expert 89\n"
    assert CliRunner().invoke(cli, argv).output == (
        f"{head}next:   mechanism freeze '{out}'\n"
        f"then:   take {out}, {folder}/a100.lock and {folder}/a100-claims.yaml\n"
        "        to a machine with that GPU and the extra `gpu`, and run there:\n"
        f"        mechanism run '{out}'\n"
        "        (not here: engine vllm: expected torch 2.11.0, found none; install it)\n"
    )
    monkeypatch.setattr("mechanism.command.gpu.require_machine", lambda *_, **__: None)
    assert CliRunner().invoke(cli, argv).output == (
        f"{head}next:   mechanism freeze '{out}'\nthen:   mechanism run '{out}'\n"
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("x.yml", "expected a file that ends in .yaml, got {out}"),
        ("x", "expected a file that ends in .yaml, got {out}"),
        (
            "my plan.yaml",
            "expected a file name like my-plan.yaml, since it names the plan, got my plan.yaml; use letters, digits, - and _",
        ),
        (
            "9.yaml",
            "expected a file name like my-plan.yaml, since it names the plan, got 9.yaml; use letters, digits, - and _",
        ),
    ],
)
def test_a_file_that_cannot_name_a_plan(tmp_path: Path, name: str, said: str) -> None:
    out = tmp_path / name
    done = CliRunner().invoke(cli, ["gpu", "plan", "--gpu", "a100", "--out", str(out)])
    assert (done.exit_code, done.output) == (4, f"mechanism: refused: --out: {said.format(out=out)}\n")
    assert list(tmp_path.iterdir()) == []


def test_a_device_that_is_not_known(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["gpu", "plan", "--gpu", "tpu", "--out", str(tmp_path / "x.yaml")])
    known = ", ".join(DEVICES)
    assert (done.exit_code, done.output) == (
        4,
        f"mechanism: refused: --gpu: expected one of {known}, got tpu; for another one, `mechanism explain --sms N"
        " --smem BYTES --arch sm_NN --write-plan FILE` makes a simulated plan\n",
    )


def test_histories_that_do_not_differ_make_no_plan() -> None:
    same = arrival.index_order(96)
    with pytest.raises(PlanError, match="got 93 under both: a plan needs two"):
        geometry_plan.geometry_plan(SMALL, name="x", ledger="x", orders=(same, same))


@pytest.mark.slow
def test_every_check_on_a_fake_device(operators: FakeOperators, tmp_path: Path) -> None:
    """All assumptions hold on a device that is made of them, but for U5: its atomics never leave lane order."""
    out = tmp_path / "out"
    options = CheckOptions(out=out, vectors=(VECTORS,), campaign=False, repeats=3, turns=3)
    assert run_checks(options, operators, gpu(SMALL)) == 1
    results = json.loads((out / "results.json").read_bytes())["results"]
    assert {name: result["holds"] for name, result in results.items()} == {
        "silu": True,
        "row-positions": True,
        "launches": True,
        "atomics": False,
        "vectors": True,
        "recorded": True,
    }
    assert sorted(path.name for path in (out / "vectors").iterdir()) == sorted(
        results["recorded"]["differing"]
    )
    assert results["silu"]["unexplained"] == 0
    assert results["launches"]["launches"][0]["launched"] == [64, 128, 128, 246]
    assert results["atomics"]["distinct_memberships"] == 1
    assert results["vectors"]["equal"] >= 5
    reasons = {item["reason"].partition(":")[0] for item in results["vectors"]["left_out"]}
    assert reasons <= {
        "architecture",
        "build",
        "dtype",
        "fp32 reduction",
        *(r for r in reasons if "grid" in r),
    }
    table = (out / "summary.md").read_text()
    assert "| silu | U2 | holds |" in table
    assert "| atomics | U5 | does not hold |" in table


def test_atomics_that_leave_lane_order_are_seen(operators: FakeOperators) -> None:
    turn = iter(range(100))
    operators.order = lambda routes: arrival.seeded(routes, next(turn))
    ids = np.array([[(7 * token + slot) % 128 for slot in range(8)] for token in range(12)], dtype=np.int32)
    ids[:9, 0] = 53
    found = checks.atomics(operators, ids, repeats=20)
    assert found["holds"] is True
    assert found["distinct_memberships"] > 1


def test_a_table_of_another_device_is_a_result(operators: FakeOperators) -> None:
    """One open entry resolved the other way: U2 does not hold, and nothing is unexplained."""
    plain = operators.silu_and_mul

    def other(result: np.ndarray, given: np.ndarray) -> None:
        plain(result, given)
        result.view(np.uint16)[0xC4EC] = 0xA88E

    operators.silu_and_mul = other  # type: ignore[method-assign,assignment]
    found = checks.silu(operators)
    assert (found["holds"], found["differing"], found["unexplained"]) == (False, ["0xC4EC"], 0)


@pytest.mark.slow
def test_a_check_that_fails_does_not_stop_the_next(
    operators: FakeOperators, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise EngineError("the kernel made an illegal memory access: made up")

    monkeypatch.setattr(checks, "row_positions", broken)
    options = CheckOptions(out=tmp_path / "out", campaign=False, repeats=1, turns=1)
    run_checks(options, operators, gpu(SMALL))
    results = json.loads((tmp_path / "out" / "results.json").read_bytes())["results"]
    assert results["row-positions"]["fault"] == "the kernel made an illegal memory access: made up"
    assert results["launches"]["holds"] is True


def test_recorded_vectors_are_what_the_check_reads(operators: FakeOperators, tmp_path: Path) -> None:
    """Recorded on a device, recomputed by the simulation: one file per block size, all bit-identical."""
    out = tmp_path / "deep" / "vectors"
    assert write_vectors(out, operators, gpu(SMALL)) == 0
    names = [f"recorded_sm_86_b{b}_m{m}.npz" for b, m in ((8, 6), (8, 12), (16, 24), (32, 40))]
    assert sorted(path.name for path in out.iterdir()) == sorted(names)
    done = CliRunner().invoke(cli, ["vectors", "check", str(out)])
    assert (done.exit_code, done.output) == (0, "4 of 4 files bit-identical\n")


def test_a_device_with_other_bits_is_recorded_as_it_is(
    operators: FakeOperators, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A recording measures and does not judge: the comparison then says where the bits part."""
    plain = operators.get

    def other(tensor: np.ndarray) -> np.ndarray:
        got = plain(tensor)
        if got.dtype == np.float16 and got.ndim == 2:
            got.view(np.uint16)[0, 0] ^= 1
        return got

    operators.get = other  # type: ignore[method-assign]
    assert write_vectors(tmp_path, operators, gpu(SMALL)) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"4 files recorded on Fake GPU, sm_86; compare: mechanism vectors check {tmp_path}"
    )
    done = CliRunner().invoke(cli, ["vectors", "check", str(tmp_path)])
    assert (done.exit_code, done.output.splitlines()[-1]) == (1, "0 of 4 files bit-identical")


def test_what_was_recorded_is_never_written_over(operators: FakeOperators, tmp_path: Path) -> None:
    (tmp_path / "note").write_text("another device")
    with pytest.raises(MechanismError) as refused:
        write_vectors(tmp_path, operators, gpu(SMALL))
    assert str(refused.value) == (
        f"{tmp_path}: expected an empty folder, or none, to record into; name another"
    )


def test_without_a_gpu_nothing_is_recorded(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = CliRunner().invoke(cli, ["vectors", "record", "--engine", "vllm", str(out)])
    assert done.exit_code == 4
    assert done.output == (
        "mechanism: refused: no GPU: expected the CUDA driver's libcuda.so.1, got: libcuda.so.1: cannot open shared"
        " object file: No such file or directory; run on a machine with an NVIDIA driver, or use a plan with engine:"
        " simulated\n"
    )
    assert not out.exists()


def test_who_records_must_be_named(tmp_path: Path) -> None:
    """The simulated engine's own bits would be no measurement."""
    for options in ([], ["--engine", "simulated"]):
        done = CliRunner().invoke(cli, ["vectors", "record", *options, str(tmp_path / "out")])
        assert (done.exit_code, "'--engine'" in done.output) == (2, True)


def test_the_command_says_that_there_is_no_gpu(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["gpu", "check", "--out", str(tmp_path / "out")])
    assert done.exit_code == 4
    assert "no GPU: expected" in done.output
    assert not (tmp_path / "out").exists()
