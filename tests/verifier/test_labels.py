"""V705: what computed the bits is named as its engine's kind of evidence names it; nothing simulated poses."""

import pytest

from tests.verifier import forge
from tests.verifier.conftest import Judge
from tests.verifier.edits import H0
from tests.verifier.forge import Parts


@pytest.fixture(scope="module")
def good_gpu(good: Parts) -> Parts:
    """The same plan for the other engine."""
    return forge.good_parts(plan=good.plan.replace(b"engine: simulated", b"engine: vllm"))


@pytest.fixture
def gpu(good_gpu: Parts) -> Parts:
    return good_gpu.copy()


def said(judge: Judge, parts: Parts) -> set[tuple[str, str, str]]:
    forge.relink(parts)
    found = judge(forge.seal(parts)).report.findings
    return {(item.where, item.expected, item.got) for item in found if item.code == "V705"}


@pytest.mark.parametrize("symbol", ["forged", "Simulated:forged", " simulated:forged", "marlin<simulated:>"])
def test_a_simulated_symbol_starts_with_the_word(symbol: str, parts: Parts, judge: Judge) -> None:
    parts.records[H0]["treatment"]["gemms"][1]["symbol"] = symbol
    assert said(judge, parts) == {
        (f"{H0}:treatment.gemms[1].symbol", "simulated:..., for the engine simulated", symbol)
    }


@pytest.mark.parametrize(
    ("key", "value", "expected", "got"),
    [
        ("driver", "570.133.07", "null, for the engine simulated", "570.133.07"),
        ("driver", "", "null, for the engine simulated", ""),
        ("arithmetic", "cuda", "numpy or numba, for the engine simulated", "cuda"),
        ("arithmetic", "", "numpy or numba, for the engine simulated", ""),
    ],
)
def test_a_simulated_build(key: str, value: str, expected: str, got: str, parts: Parts, judge: Judge) -> None:
    parts.build[key] = value
    assert said(judge, parts) == {(f"build.json:{key}", expected, got)}


@pytest.mark.parametrize(
    ("key", "value", "expected", "got"),
    [
        ("driver", None, "the driver's version, for the engine vllm", "null"),
        ("driver", "", "the driver's version, for the engine vllm", ""),
        ("arithmetic", "numpy", "another than numpy or numba, for the engine vllm", "numpy"),
        ("arithmetic", "", "another than numpy or numba, for the engine vllm", ""),
    ],
)
def test_a_build_of_a_gpu(
    key: str, value: str | None, expected: str, got: str, gpu: Parts, judge: Judge
) -> None:
    gpu.build[key] = value
    assert said(judge, gpu) == {(f"build.json:{key}", expected, got)}


def test_a_symbol_of_a_gpu(gpu: Parts, judge: Judge) -> None:
    forge.relink(gpu)
    assert judge(forge.seal(gpu)).report.findings == ()
    gpu.records[H0]["treatment"]["gemms"][0]["symbol"] = "simulated:forged"
    assert said(judge, gpu) == {
        (
            f"{H0}:treatment.gemms[0].symbol",
            "a symbol without simulated:, for the engine vllm",
            "simulated:forged",
        )
    }


def test_both_arithmetics_of_the_simulator_are_known(parts: Parts, judge: Judge) -> None:
    parts.build["arithmetic"] = "numba"
    forge.relink(parts)
    assert judge(forge.seal(parts)).report.findings == ()
