"""Re-execution: equal bits pass, and whatever was bent is named, with what was recorded and recomputed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from ledger import schemas
from ledger.canonical import canonical, digest
from ledger.reexecution import Reexecution
from mechanism.errors import EngineError
from mechanism.reexecute.again import reexecute
from mechanism.reexecute.source import BundleError
from tests.reexecute.rebuilt import rebuilt_parts
from tests.verifier import forge
from tests.verifier.forge import Parts

NATIVE = "records/qualification.native.H0.1.json"
GRID = "records/ablation.forced-grid.H1.1.json"
Bend = Callable[[Parts], None]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def rebuilt(cache: Path) -> Parts:
    """To be copied."""
    return rebuilt_parts(cache)


@pytest.fixture
def again(rebuilt: Parts, cache: Path, tmp_path: Path) -> Callable[[Bend], Reexecution]:
    """The answer on a bundle that was bent, computed by one worker."""

    def run(bend: Bend) -> Reexecution:
        parts = rebuilt.copy()
        bend(parts)
        return reexecute(
            forge.write(forge.seal(parts), tmp_path / "bundle"), cache, arithmetic="numpy", jobs=1
        )

    return run


def nothing(_parts: Parts) -> None:
    """A bend that bends nothing."""


def differing(answer: Reexecution) -> list[tuple[str, str]]:
    return [(a.path, item.quantity) for a in answer.records for item in a.compared if not item.equal]


def test_a_good_bundle_is_equal_in_everything(again: Callable[[Bend], Reexecution]) -> None:
    answer = again(nothing)
    assert answer.equal
    assert answer.kind == "re-execution"
    assert [(s.surface, s.equal, s.compared) for s in answer.surfaces] == [
        (name, 8, 8) for name in ("w13", "activation", "w2", "output")
    ]
    assert answer.source == ()
    assert len(answer.treatments) == 4  # two alignments, each on two grids
    assert [item.quantity for item in answer.records[0].compared] == [
        "surfaces.w13",
        "surfaces.activation",
        "surfaces.w2",
        "surfaces.output",
        "treatment.gemms.w13.symbol",
        "treatment.gemms.w13.slices",
        "treatment.gemms.w2.symbol",
        "treatment.gemms.w2.slices",
        "activation.candidate",
        "activation.ambiguous_elements",
        "trajectory",
        "assumptions",
    ]


def surface(parts: Parts) -> None:
    """A forger who gives one surface another digest, and the trajectory that goes with it."""
    record = parts.records[NATIVE]
    record["surfaces"][2]["sha256"] = "ab" * 32
    record["trajectory"] = digest([item["sha256"] for item in record["surfaces"]])


def slices(parts: Parts) -> None:
    parts.records[GRID]["treatment"]["gemms"][0]["slices"] = "ab" * 32


def symbols(parts: Parts) -> None:
    """Other code, by the same name in all records: across the cohort nothing is amiss."""
    for record in parts.records.values():
        for gemm in record["treatment"]["gemms"]:
            gemm["symbol"] = "simulated:something_else"


def ambiguous(parts: Parts) -> None:
    parts.records[NATIVE]["activation"]["ambiguous_elements"] += 1


def assumption(parts: Parts) -> None:
    parts.records[NATIVE]["assumptions"].remove("U5")


def grid(parts: Parts) -> None:
    """The record says that it ran on the pinned grid, with the bits of another."""
    pinned = parts.records[NATIVE]["treatment"]["gemms"]
    for mine, other in zip(parts.records[GRID]["treatment"]["gemms"], pinned, strict=True):
        mine["grid"] = other["grid"]


@pytest.mark.parametrize(
    ("bend", "expected"),
    [
        (surface, [(NATIVE, "surfaces.w2"), (NATIVE, "trajectory")]),
        (slices, [(GRID, "treatment.gemms.w13.slices")]),
        (ambiguous, [(NATIVE, "activation.ambiguous_elements")]),
        (assumption, [(NATIVE, "assumptions")]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_was_bent_differs_and_nothing_else(
    again: Callable[[Bend], Reexecution], bend: Bend, expected: list[tuple[str, str]]
) -> None:
    answer = again(bend)
    assert not answer.equal
    assert differing(answer) == expected


def test_bits_of_another_grid_differ(again: Callable[[Bend], Reexecution]) -> None:
    assert (GRID, "treatment.gemms.w13.slices") in differing(again(grid))


def test_a_symbol_that_the_engine_does_not_have_differs_everywhere(
    again: Callable[[Bend], Reexecution],
) -> None:
    answer = again(symbols)
    assert not answer.equal
    assert differing(answer) == [
        (item.path, f"treatment.gemms.{name}.symbol") for item in answer.records for name in ("w13", "w2")
    ]


def test_other_source_is_said_and_changes_nothing(again: Callable[[Bend], Reexecution]) -> None:
    def bend(parts: Parts) -> None:
        parts.build["source"]["mechanism/kernel/gemm.py"] = "ab" * 32
        parts.build["source"]["gone.py"] = "cd" * 32

    answer = again(bend)
    assert answer.equal
    assert [(item.path, item.recorded, item.here is None) for item in answer.source] == [
        ("gone.py", "cd" * 32, True),
        ("mechanism/kernel/gemm.py", "ab" * 32, False),
    ]


def test_a_fixture_that_the_recipe_does_not_give_is_said_and_nothing_compared(
    again: Callable[[Bend], Reexecution],
) -> None:
    def bend(parts: Parts) -> None:
        parts.lock["fixture"]["digest"] = "ab" * 32

    answer = again(bend)
    assert (answer.fixture.equal, answer.records, answer.treatments, answer.equal) == (False, (), (), False)


def test_an_alignment_of_another_routing_has_no_result(again: Callable[[Bend], Reexecution]) -> None:
    def bend(parts: Parts) -> None:
        name = parts.records[NATIVE]["treatment"]["alignment"]["sha256"]
        bent = json.loads(json.dumps(parts.alignments[name]))
        bent["sorted_token_ids"][0] = 1
        forge.realign(parts, NATIVE, bent)

    answer = again(bend)
    (fault,) = [item.fault for item in answer.treatments if item.fault]
    assert fault is not None
    assert fault.startswith("not an alignment of this routing: block 0: ")
    assert [item.path for item in answer.records if not item.compared] == [NATIVE]


def test_a_record_that_cannot_be_read_is_named(rebuilt: Parts, cache: Path, tmp_path: Path) -> None:
    folder = forge.write(forge.seal(rebuilt), tmp_path / "bundle")
    (folder / NATIVE).unlink()
    (folder / NATIVE).symlink_to(folder / GRID)
    (folder / GRID).unlink()
    answer = reexecute(folder, cache, arithmetic="numpy", jobs=1)
    assert {item.path: item.reason for item in answer.unread} == {
        NATIVE: f"{NATIVE}: expected a file of the bundle, got: Too many levels of symbolic links",
        GRID: f"{GRID}: expected a file of the bundle, got: No such file or directory",
    }
    assert not answer.equal


def test_of_a_gpu_cohort_surfaces_alone_are_compared(again: Callable[[Bend], Reexecution]) -> None:
    def bend(parts: Parts) -> None:
        parts.plan = parts.plan.replace(b"engine: simulated", b"engine: vllm")
        parts.build |= {"engine": "vllm", "evidence": "gpu", "driver": "570.1"}
        forge.relink(parts)
        for record in parts.records.values():
            record |= {"engine": "vllm", "evidence": "gpu", "assumptions": []}
        parts.records[NATIVE]["surfaces"][0]["sha256"] = "ab" * 32

    answer = again(bend)
    assert (answer.kind, answer.computed) == ("agreement", "simulated")
    assert {item.quantity.partition(".")[0] for a in answer.records for item in a.compared} == {"surfaces"}
    assert next((s.surface, s.equal, s.compared) for s in answer.surfaces) == ("w13", 7, 8)


@pytest.mark.parametrize(
    ("bend", "message"),
    [
        (
            lambda parts: parts.lock["cells"].pop(),
            "plan.lock: cells: expected the plan's, got others; see `verifier check`",
        ),
        (
            lambda parts: parts.build.update(evidence="gpu"),
            "build.json: evidence: expected simulated, got gpu; `verifier check` says what is wrong",
        ),
        (
            lambda parts: parts.lock["launches"][0].update(grid=9),
            "plan.lock: launches.w13: expected tile_k 64, tile_n 128, threads 128, grid 24, got tile_k 64,"
            " tile_n 128, threads 128, grid 9; `verifier check` says what is wrong",
        ),
    ],
    ids=["cells", "evidence", "launch"],
)
def test_what_does_not_hold_together_is_refused(
    again: Callable[[Bend], Reexecution], bend: Bend, message: str
) -> None:
    with pytest.raises(BundleError) as refused:
        again(bend)
    assert str(refused.value) == message


def test_an_arithmetic_that_is_not_there_is_refused(tmp_path: Path) -> None:
    message = "--arithmetic: expected numpy or numba, got abacus"
    with pytest.raises(EngineError, match=f"^{message}$"):
        reexecute(tmp_path, tmp_path, arithmetic="abacus", jobs=1)


def test_an_arithmetic_whose_extra_is_missing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("numba", "mechanism.kernel.compiled"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delattr("mechanism.kernel.compiled", raising=False)
    with pytest.raises(EngineError) as refused:
        reexecute(tmp_path, tmp_path, arithmetic="numba", jobs=1)
    assert str(refused.value) == (
        "--arithmetic numba: numba is missing; in the project: pip install -e '.[fast]'"
    )


def test_another_arithmetic_gives_the_same_answer_and_is_named(
    rebuilt: Parts, cache: Path, tmp_path: Path
) -> None:
    """Everything equal, by numba; in the answer nothing but its name differs from numpy's."""
    pytest.importorskip("numba", reason="needs the extra fast")
    folder = forge.write(forge.seal(rebuilt.copy()), tmp_path / "bundle")
    numpy, numba = (
        reexecute(folder, cache, arithmetic=name, jobs=1).model_dump(mode="json")
        for name in ("numpy", "numba")
    )
    assert (numpy.pop("arithmetic"), numba.pop("arithmetic")) == ("numpy", "numba")
    assert numpy == numba
    assert numba["equal"] is True


def test_the_chosen_arithmetic_is_the_one_that_computes(
    rebuilt: Parts, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only its name: a numba whose bits are wrong makes every record differ."""
    compiled = pytest.importorskip("mechanism.kernel.compiled", reason="needs the extra fast")
    right = compiled.ARITHMETIC

    def wrong(*args: Any, **kwargs: Any) -> Any:
        made = right.multiply(*args, **kwargs)
        made.output.view(np.uint16)[0, 0] ^= 1
        return made

    monkeypatch.setattr(compiled, "ARITHMETIC", replace(right, multiply=wrong))
    folder = forge.write(forge.seal(rebuilt.copy()), tmp_path / "bundle")
    assert {a for a, _ in differing(reexecute(folder, cache, arithmetic="numba", jobs=1))} == set(
        rebuilt.records
    )
    assert reexecute(folder, cache, arithmetic="numpy", jobs=1).equal


def test_the_command_on_two_workers(rebuilt: Parts, cache: Path, tmp_path: Path) -> None:
    done = _command(forge.write(forge.seal(rebuilt), tmp_path / "bundle"), cache, "--jobs", "2")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "everything is equal"), done.stderr
    assert done.stdout.startswith("SIMULATED re-execution: quick, plan ")


def test_the_command_prints_one_object_that_fits_its_schema(
    rebuilt: Parts, cache: Path, tmp_path: Path
) -> None:
    parts = rebuilt.copy()
    surface(parts)
    folder = forge.write(forge.seal(parts), tmp_path / "bundle")
    done = _command(folder, cache, "--format", "json", "--jobs", "1")
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    jsonschema.Draft202012Validator(json.loads(schemas.schema("reexecution"))).validate(answer)
    assert differing(Reexecution.model_validate_json(done.stdout)) == [
        (NATIVE, "surfaces.w2"),
        (NATIVE, "trajectory"),
    ]


def test_what_is_no_bundle_is_refused_with_4(cache: Path, tmp_path: Path) -> None:
    done = _command(tmp_path / "none", cache)
    assert done.returncode == 4
    assert done.stderr == (
        f"mechanism: refused: {tmp_path / 'none'}: expected the folder of a bundle, got none; check the path, and unpack a release first\n"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"equal": False}, "expected equal: true, which follows from the rest, got the other"),
        ({"kind": "agreement"}, "expected kind re-execution for a simulated cohort, got agreement"),
        ({"records": []}, "expected equal: false, which follows from the rest, got the other"),
    ],
)
def test_an_answer_that_contradicts_itself_is_none(
    again: Callable[[Bend], Reexecution], change: dict[str, Any], message: str
) -> None:
    answer = again(nothing).model_dump(mode="json")
    with pytest.raises(ValueError, match=message):
        Reexecution.model_validate_json(canonical({**answer, **change}))


def _command(bundle: Path, cache: Path, *options: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "mechanism", "reexecute", str(bundle), *options]
    environment = {**os.environ, "MECHANISM_CACHE": str(cache)}
    return subprocess.run(argv, check=False, capture_output=True, text=True, env=environment)
