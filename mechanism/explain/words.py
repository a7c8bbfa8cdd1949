"""The answer for people: words first, then tables. Every number carries its section, as [4.3]."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from mechanism.explain.answer import Answer, Layer
from mechanism.explain.document import SPECIFICATION
from mechanism.explain.exposure import CrowdedExpert
from mechanism.explain.gemms import GemmAnswer
from mechanism.explain.routing import Given
from mechanism.kernel.assumptions import ASSUMPTIONS

WIDTH = 100
SHOWN = 12  # rows of a table of experts
LISTED = 12  # routes of one expert
HEADS = (
    "GEMM",
    "N x K [1.2]",
    "tile [4.1]",
    "CTAs/SM [4.3]",
    "grid [4.3]",
    "tiles [5.1]",
    "part 2 [5.2]",
    "direct [5.3]",
    "split [5.3]",
    "first split block",
)


def words(answer: Answer) -> str:
    """The whole text."""
    return "\n".join(_lines(answer)) + "\n"


def _lines(answer: Answer) -> Iterator[str]:
    asked, layer = answer.question, answer.layer
    device = asked.device
    ranks = f", tensor parallel {asked.tp}" if asked.tp > 1 else ""
    yield (
        f"{asked.model.name}: {asked.model.experts} experts, top-{asked.model.top_k}, hidden"
        f" {asked.model.hidden}, intermediate {asked.model.intermediate}{ranks}"
    )
    yield (
        f"{device.name} ({device.arch}, {device.sms} SMs, {device.shared_memory} bytes),"
        f" {asked.kernel}, {asked.dtype}, {asked.tokens} tokens"
    )
    source = asked.routing.source if isinstance(asked.routing, Given) else f"one batch drawn: {asked.routing}"
    quantisation = "" if asked.model.quantisation is None else f"; {asked.model.quantisation.source}"
    yield f"routes: {source}{quantisation}"
    yield ""
    yield from _wrap(_headline(answer))
    yield ""
    yield from _wrap(f"Path. {answer.path.says} [3]")
    for item in (*answer.path.obstacles, *answer.path.notes):
        yield from _item(f"{item.says} [{item.section}]")
    if layer is not None:
        yield from _layer(answer, layer)
    yield ""
    yield from _wrap(f"Numbers in brackets are sections of {SPECIFICATION}.")


def _headline(answer: Answer) -> str:
    layer = answer.layer
    question = "Can route alignment change your bits here?"
    if layer is None:
        return f"{question} Not by this kernel: the layer does not take it. What to do is under Path."
    routes = sum(layer.counts)
    if answer.verdict == "yes":
        experts = ", ".join(str(item.expert) for item in layer.exposed[:6])
        more = f" and {len(layer.exposed) - 6} more" if len(layer.exposed) > 6 else ""
        return (
            f"{question} YES: {layer.exposed_routes} of {routes} routes in this batch, on"
            f" expert{'s' if len(layer.exposed) > 1 else ''} {experts}{more}, can land in padded blocks"
            " that are cut"
            " differently over K. Their rows, and the outputs of their tokens, depend on the order of"
            " atomics."
        )
    if answer.verdict == "unknown":
        crowded = sum(item.count for item in layer.crowded)
        return (
            f"{question} UNKNOWN, at most {crowded} of {routes} routes: tile and grid rest on register"
            " counts that"
            " are not known here. The table shows what each tile would do; settle it with --launch"
            " TKxTNxCTAS."
        )
    atomic = any(item.id == "atomic-reduction" for item in layer.defects)
    otherwise = " Bits can change for another reason in this build: see the defects." if atomic else ""
    return f"{question} NO, not in this batch: {why_not(layer)}. Another batch can differ.{otherwise}"


def why_not(layer: Layer) -> str:
    """Why no alignment can change bits of a batch that is not exposed."""
    if layer.variant == "small-batch":
        return "this batch takes the alignment variant without atomics, whose order is fixed [2.4]"
    if not layer.crowded:
        return f"no expert has more than {layer.block_size_m} routes, so each has one padded block [2.4]"
    return "every expert with more than one padded block has blocks that are cut alike at both GEMMs [5.3]"


def _layer(answer: Answer, layer: Layer) -> Iterator[str]:
    routes = sum(layer.counts)
    ordered = (
        "decided by atomics (large variant)"
        if layer.variant == "large"
        else "fixed, no atomics (small-batch variant), though not ascending"
    )
    yield ""
    yield from _wrap(
        f"Alignment. {routes} routes to {len(layer.counts)} experts; {layer.block_size_m} rows per"
        " padded block [2.2];"
        f" slot order {ordered} [2.4]; {layer.padded_blocks} padded blocks [2.3]."
    )
    yield ""
    yield from _table([HEADS, *(row for gemm in layer.gemms for row in _gemm_rows(gemm))])
    for gemm in layer.gemms:
        if gemm.why_unknown:
            yield from _item(
                f"{gemm.shape.name.upper()}: {gemm.why_unknown} [4.4]; rows with a ? show what each"
                " launch would do"
            )
    yield from _exposure(layer)
    yield from _expected(layer)
    if layer.defects:
        yield ""
        yield "Known defects and traps that this shape meets:"
        for defect in layer.defects:
            yield from _item(f"{defect.kind}: {defect.says} [{defect.section}]")
    if layer.remedies:
        yield ""
        yield "What removes the dependence, and whether it changes bits against today:"
        for remedy in layer.remedies:
            grids = "; ".join(f"{name.upper()} {grid} CTAs" for name, grid in remedy.grids)
            patched = " The unpatched operator cannot launch it." if remedy.launchable is False else ""
            says = f"{remedy.name}: {remedy.does}{f' ({grids})' if grids else ''}.{patched}"
            yield from _item(f"{says} Changes {remedy.changes_bits} bits: {remedy.why} [{remedy.section}]")
    yield ""
    yield "This answer rests on assumptions:"
    for name in layer.assumptions:
        yield from _item(f"{name}: {ASSUMPTIONS[name].says} [C]")
    if answer.verdict == "yes":
        yield ""
        yield from _wrap(
            "See it happen: the same command with --write-plan FILE.yaml writes an experiment on this"
            " geometry."
        )


def _gemm_rows(gemm: GemmAnswer) -> list[tuple[str, ...]]:
    shape = gemm.shape
    size = f"{shape.n} x {shape.k}"
    found = [(gemm.launch, gemm.split)] if gemm.launch and gemm.split else gemm.alternatives
    rows: list[tuple[str, ...]] = []
    for launch, split in found:
        if launch is None or split is None:
            continue
        first = "none" if split.first_split_block is None else str(split.first_split_block)
        rows.append(
            (
                f"{shape.name.upper()}{'' if gemm.launch else ' ?'}",
                size,
                f"{launch.tile_k} x {launch.tile_n}",
                str(launch.ctas_per_sm),
                str(launch.grid),
                str(split.schedule.tiles),
                str(split.schedule.part2),
                str(split.direct_tiles),
                str(split.split_tiles),
                first,
            )
        )
    return rows


def _exposure(layer: Layer) -> Iterator[str]:
    if not layer.crowded:
        return
    yield ""
    known = layer.launches_known
    first = sorted(layer.crowded, key=lambda item: (not item.exposed, item.expert))
    more = len(first) - SHOWN
    yield (
        f"Experts with more than {layer.block_size_m} routes"
        f" [2.4]{f', {SHOWN} of {len(first)}' if more > 0 else ''}:"
    )
    names = [gemm.shape.name for gemm in layer.gemms]
    heads = (
        "expert",
        "routes",
        "blocks",
        *(f"{name.upper()} [5.3]" for name in names),
        "exposed",
        "route ids",
    )
    yield from _table([heads, *(_expert_row(item, layer, names, known=known) for item in first[:SHOWN])])


def _expert_row(item: CrowdedExpert, layer: Layer, names: Sequence[str], *, known: bool) -> tuple[str, ...]:
    at = {gemm.gemm: gemm for gemm in item.at}

    def cut(name: str) -> str:
        if name not in at:
            return "?"
        classes = dict.fromkeys(at[name].classes)
        return f"{'/'.join(classes)}, {'differ' if at[name].differ else 'alike'}"

    exposed = "?" if not known else "yes" if item in layer.exposed else "no"
    ids = " ".join(map(str, item.routes[:LISTED])) + (" ..." if len(item.routes) > LISTED else "")
    return (
        str(item.expert),
        str(item.count),
        f"{item.blocks[0]}..{item.blocks[-1]}",
        *(cut(name) for name in names),
        exposed,
        ids,
    )


def _expected(layer: Layer) -> Iterator[str]:
    found = layer.expected
    if found is None:
        return
    yield ""
    text = (
        f"Expected. Under this distribution {found.crowded_share:.2%} of routes are on experts with"
        " more than one padded block (exact)"
    )
    if found.exposed_share is not None and found.affected is not None:
        text += (
            f"; {found.exposed_share:.2%} are exposed (approximate: mean of {found.batches} drawn"
            " batches, standard"
            f" error {found.standard_error:.2%}); {found.affected:.0%} of those batches have an exposed route"
        )
    yield from _wrap(f"{text} [2.2, 2.4, 5.3].")


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _item(text: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent="  - ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
