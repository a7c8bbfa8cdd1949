"""V307 to V316, what was frozen: the lock against the plan, the fixture, the routing, and the plan itself."""

from collections.abc import Iterator, Sequence
from struct import pack

from ledger.canonical import digest, sha256
from ledger.lock import TensorDigest
from ledger.plan import AnyFixture, ImportedFixture
from ledger.record import RoutingFile
from verifier.arithmetic import geometry
from verifier.arithmetic.routing import routing_faults
from verifier.arithmetic.rules import plan_faults
from verifier.bundle import Bundle
from verifier.checks.check import check
from verifier.found import Found, show
from verifier.treatments import treatment_faults

_LOCK = "plan.lock"


@check("V307", frozen_only=True)
def locked_cells(bundle: Bundle) -> Iterator[Found]:
    """V307: the lock lists the plan's processes, each with its treatment, in the order of ledger/plan.py."""
    lock = bundle.lock  # Absent, if there is none to be read
    mine, locked = bundle.planned.cells, bundle.documents.locked if lock else ()
    if len(mine) != len(locked):
        yield Found(
            code="V307", file=_LOCK, key="cells", expected=f"{len(mine)} processes", got=f"{len(locked)}"
        )
    for place, (expected, got) in enumerate(zip(mine, locked, strict=False)):
        if expected != got:
            keys = [key for key in got._fields if getattr(expected, key) != getattr(got, key)]
            yield Found(
                code="V307",
                file=_LOCK,
                key=f"cells[{place}]",
                expected=show(", ".join(f"{key} {getattr(expected, key)}" for key in keys)),
                got=show(", ".join(f"{getattr(got, key)}" for key in keys)),
            )


@check("V308", frozen_only=True)
def locked_launches(bundle: Bundle) -> Iterator[Found]:
    """V308: the lock's launches are the plan's tiles, with their threads and the grid they give."""
    plan = bundle.plan
    for place, (name, got) in enumerate(zip(("w13", "w2"), bundle.lock.launches, strict=True)):
        launch = getattr(plan.build.launch, name)
        tile_k, tile_n = launch.tile
        # plain numbers: what a hostile plan gives may be beyond what a lock can hold
        expected: dict[str, str | int] = {
            "name": name,
            "tile_k": tile_k,
            "tile_n": tile_n,
            "threads": geometry.threads(tile_k, tile_n),
            "ctas_per_sm": launch.ctas_per_sm,
            "grid": plan.build.device.sms * launch.ctas_per_sm,
        }
        for key, wanted in expected.items():
            if wanted != (said := getattr(got, key)):
                yield Found(
                    code="V308",
                    file=_LOCK,
                    key=f"launches[{place}].{key}",
                    expected=f"{wanted}, as the plan gives it",
                    got=str(said),
                )


@check("V309", frozen_only=True)
def padded_blocks(bundle: Bundle) -> Iterator[Found]:
    """V309: the lock counts the padded blocks that the routing gives (marlin-moe 2.3)."""
    if bundle.lock.padded_blocks != (blocks := bundle.worked.padded_blocks):
        yield Found(
            code="V309",
            file=_LOCK,
            key="padded_blocks",
            expected=f"{blocks}, counted in routing.json",
            got=str(bundle.lock.padded_blocks),
        )


@check("V310", frozen_only=True)
def fixture_digest(bundle: Bundle) -> Iterator[Found]:
    """V310: the fixture's digest is that of its description in the lock, without that key."""
    fixture = bundle.lock.fixture
    mine = digest(fixture.model_dump(mode="json", exclude={"digest"}))
    if fixture.digest != mine:
        yield Found(code="V310", file=_LOCK, key="fixture.digest", expected=mine, got=fixture.digest)


@check("V311", frozen_only=True)
def routing_digest(bundle: Bundle) -> Iterator[Found]:
    """V311: routing.json has the sha256 that the lock's fixture names."""
    if bundle.lock.fixture.routing != (mine := bundle.digest("routing.json")):
        yield Found(
            code="V311",
            file="routing.json",
            expected=f"sha256 {bundle.lock.fixture.routing}, as the lock's fixture has it",
            got=f"sha256 {mine}",
        )


@check("V312", frozen_only=True)
def routing_recipe(bundle: Bundle) -> Iterator[Found]:
    """V312: routing.json has the plan's sizes, its pinned routes, and the others dealt over its ranges."""
    for key, expected, got in routing_faults(bundle.plan.fixture, bundle.routing):
        yield Found(code="V312", file="routing.json", key=key, expected=expected, got=show(got))


@check("V314", frozen_only=True)
def workable_plan(bundle: Bundle) -> Iterator[Found]:
    """V314: the plan keeps the rules without which nothing can be worked out, and the bounds of work."""
    for key, expected, got in plan_faults(bundle.plan):
        yield Found(code="V314", file="plan.yaml", key=key, expected=expected, got=got)


@check("V315")
def treatments_matter(bundle: Bundle) -> Iterator[Found]:
    """V315: swaps, transfers and grids of the plan change what they must, or controls pose as them."""
    for key, expected, got in treatment_faults(bundle.worked, bundle.native):
        yield Found(code="V315", file="plan.yaml", key=key, expected=expected, got=got)


@check("V316", frozen_only=True)
def fixture_tensors(bundle: Bundle) -> Iterator[Found]:
    """V316: the lock's fixture tensors have the plan's shapes, and the routing's bytes are routing.json's."""
    tensors = bundle.lock.fixture.tensors
    wanted = _tensor_shapes(bundle.plan.fixture)
    for name in sorted(wanted.keys() | tensors.keys()):
        expected, got = wanted.get(name), tensors.get(name)
        mine = (got.dtype, got.shape) if got else None
        if expected != mine:
            yield Found(
                code="V316",
                file=_LOCK,
                key=f"fixture.tensors.{show(name)}",
                expected=_words(expected),
                got=_words(mine),
            )
    yield from _imported(bundle)
    for name, values, code in _routing_values(bundle.routing):
        yield from _same_bytes(name, tensors.get(name), values, code)


def _imported(bundle: Bundle) -> Iterator[Found]:
    """An imported layer is named by content: the plan's digests are those of the lock's tensors."""
    fixture, tensors = bundle.plan.fixture, bundle.lock.fixture.tensors
    if not isinstance(fixture, ImportedFixture):
        return
    inputs = {"hidden", "topk_ids", "topk_weights"}
    for key, names, named in (
        ("weights", tensors.keys() - inputs, fixture.weights),
        ("inputs", tensors.keys() & inputs, fixture.inputs),
    ):
        mine = digest({name: tensors[name].model_dump(mode="json") for name in names})
        if mine != named:
            yield Found(
                code="V316",
                file=_LOCK,
                key="fixture.tensors",
                expected=f"{named}, the plan's fixture.{key}",
                got=mine,
            )


def _tensor_shapes(fixture: AnyFixture) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Names, types and shapes of the stored layer (marlin-moe 1.1, 1.2): eight columns to an int32 word."""
    found: dict[str, tuple[str, tuple[int, ...]]] = {
        "topk_ids": ("int32", (fixture.tokens, fixture.top_k)),
        "topk_weights": ("float32", (fixture.tokens, fixture.top_k)),
        "hidden": ("float16", (fixture.tokens, fixture.hidden)),
    }
    for gemm, k, n in (
        ("w13", fixture.hidden, 2 * fixture.intermediate),
        ("w2", fixture.intermediate, fixture.hidden),
    ):
        groups = k // fixture.group_size
        found[f"{gemm}_qweight"] = ("int32", (fixture.experts, k, n // 8))
        found[f"{gemm}_qzeros"] = ("int32", (fixture.experts, groups, n // 8))
        found[f"{gemm}_scales"] = ("float16", (fixture.experts, groups, n))
    return found


def _routing_values(routing: RoutingFile) -> Iterator[tuple[str, list[int], str]]:
    yield "topk_ids", [value for row in routing.topk_ids for value in row], "i"
    yield "topk_weights", [value for row in routing.topk_weights_bits for value in row], "I"


def _same_bytes(name: str, tensor: TensorDigest | None, values: Sequence[int], code: str) -> Iterator[Found]:
    """The stored tensor is the routing's numbers, little-endian."""
    if tensor is None or (code == "i" and max(values, default=0) > 2**31 - 1):
        return  # said already: the tensor is missing, or the routing is none (V312)
    mine = sha256(pack(f"<{len(values)}{code}", *values))
    if mine != tensor.sha256:
        yield Found(
            code="V316",
            file=_LOCK,
            key=f"fixture.tensors.{name}.sha256",
            expected=f"{mine}, from routing.json",
            got=tensor.sha256,
        )


def _words(tensor: tuple[str, tuple[int, ...]] | None) -> str:
    return "no such tensor" if tensor is None else f"{tensor[0]} {list(tensor[1])}"


CHECKS = (
    locked_cells,
    locked_launches,
    padded_blocks,
    fixture_digest,
    routing_digest,
    routing_recipe,
    workable_plan,
    treatments_matter,
    fixture_tensors,
)
