"""V7xx, what computed the bits: one build for the whole cohort, the plan's, honestly named."""

from collections.abc import Iterator, Sequence

from ledger.record import Record
from verifier.bundle import Bundle, Facts
from verifier.checks.check import check, record_check
from verifier.found import Found, show
from verifier.store.table import Firsts

#: How simulated evidence names what computed it; nothing of a GPU may bear these names, or it others.
SIMULATED_SYMBOL = "simulated:"
SIMULATED_ARITHMETICS = ("numpy", "numba")


@record_check("V701")
def identity(bundle: Bundle, record: Record) -> Iterator[Found]:
    """V701: a record's software identity is the sha256 of build.json."""
    if record.software != (expected := bundle.digest("build.json")):
        yield Found(
            code="V701",
            file=record.path,
            key="software",
            expected=f"{expected}, the sha256 of build.json",
            got=record.software,
        )


@check("V702")
def pinned_build(bundle: Bundle) -> Iterator[Found]:
    """V702: build.json names the kernel and the device of the plan, and a source at least that was hashed."""
    pinned, build = bundle.plan.build, bundle.build
    if build.kernel != pinned.kernel:
        yield _build("kernel", pinned.kernel, build.kernel)
    for key, expected in pinned.device.model_dump(mode="json").items():
        if (got := build.device.get(key)) != expected or type(got) is not type(expected):
            yield _build(f"device.{key}", str(expected), "none" if got is None else show(str(got)))
    if not build.source:
        yield _build("source", "the digests of what computed the bits", "none")


def _build(key: str, expected: str, got: str) -> Found:
    return Found(code="V702", file="build.json", key=key, expected=f"{expected}, as the plan pins", got=got)


@check("V703")
def one_kernel(bundle: Bundle) -> Iterator[Found]:
    """V703: records that launched a GEMM on one grid launched one kernel symbol: no binary is mixed in."""
    return bundle.look(_kernels)


def _kernels(records: Sequence[Facts]) -> Iterator[Found]:
    first = Firsts(records)
    for number, facts in enumerate(records):
        for place, (grid, symbol) in enumerate(zip(facts.grids, facts.symbols, strict=True)):
            model = first.of((place, grid), number)
            if symbol != model.symbols[place]:
                yield Found(
                    code="V703",
                    file=facts.path,
                    key=f"treatment.gemms[{place}].symbol",
                    expected=show(f"{model.symbols[place]}, as in {model.path}"),
                    got=show(symbol),
                )


@record_check("V704")
def activation(_bundle: Bundle, record: Record) -> Iterator[Found]:
    """V704: a simulated activation is the correctly rounded candidate, a GPU's is its device's."""
    expected = "rn32" if record.engine == "simulated" else "device"
    if record.activation.candidate != expected:
        yield Found(
            code="V704",
            file=record.path,
            key="activation.candidate",
            expected=f"{expected}, for the engine {record.engine}",
            got=record.activation.candidate,
        )


@check("V705")
def labels_of_build(bundle: Bundle) -> Iterator[Found]:
    """V705: build.json names the simulator's arithmetic and no driver, or a GPU's and its driver."""
    build, names = bundle.build, " or ".join(SIMULATED_ARITHMETICS)
    simulated = bundle.plan.engine == "simulated"
    if (build.arithmetic in SIMULATED_ARITHMETICS) != simulated or not build.arithmetic:
        yield _label(bundle, "arithmetic", names if simulated else f"another than {names}", build.arithmetic)
    if bool(build.driver) == simulated or (simulated and build.driver is not None):
        yield _label(bundle, "driver", "null" if simulated else "the driver's version", build.driver)


@record_check("V705")
def labels_of_record(bundle: Bundle, record: Record) -> Iterator[Found]:
    """V705: a kernel's symbol starts with `simulated:` where the evidence is, and nowhere else."""
    simulated = bundle.plan.engine == "simulated"
    expected = f"{SIMULATED_SYMBOL}..." if simulated else f"a symbol without {SIMULATED_SYMBOL}"
    for place, gemm in enumerate(record.treatment.gemms):
        if gemm.symbol.startswith(SIMULATED_SYMBOL) != simulated:
            yield Found(
                code="V705",
                file=record.path,
                key=f"treatment.gemms[{place}].symbol",
                expected=f"{expected}, for the engine {bundle.plan.engine}",
                got=show(gemm.symbol),
            )


def _label(bundle: Bundle, key: str, expected: str, got: str | None) -> Found:
    return Found(
        code="V705",
        file="build.json",
        key=key,
        expected=f"{expected}, for the engine {bundle.plan.engine}",
        got="null" if got is None else show(got),
    )


CHECKS = (identity, pinned_build, one_kernel, activation, labels_of_build, labels_of_record)
