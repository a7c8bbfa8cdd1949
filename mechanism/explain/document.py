"""The answer as one JSON object; `sections` says where in the specification each number is from."""

from __future__ import annotations

from typing import Any, Final

from mechanism.explain.answer import Answer, Layer
from mechanism.explain.gemms import GemmAnswer, Split
from mechanism.explain.routing import Given
from mechanism.kernel.assumptions import ASSUMPTIONS
from mechanism.kernel.configuration import Launch

SPECIFICATION: Final = "mechanism/kernel/marlin-moe.md"
#: Key of the JSON object, or of a GEMM in it: section of the specification that the number follows from.
SECTIONS: Final = {
    "path": "3, 9.2, 9.3",
    "intermediate_per_rank": "1.2",
    "block_size_m": "2.2",
    "alignment_variant": "2.4",
    "padded_blocks": "2.3",
    "gemms.n, k, group": "notation, 1.4",
    "gemms.tile": "4.1, 4.3",
    "gemms.ctas_per_sm": "4.2, 4.3, 4.4",
    "gemms.grid": "4.3",
    "gemms.tiles": "5.1",
    "gemms.rounds": "5.2",
    "gemms.part2": "5.2",
    "gemms.iters": "5.2",
    "gemms.direct_tiles": "5.3, 5.4",
    "gemms.split_tiles": "5.3, 5.4",
    "gemms.first_split_block": "5.1, 5.3",
    "exposed": "2.4, 5.3, B",
    "exposed.expected": "2.2, 2.4, 5.3",
    "defects": "1.4, 6.6, 7.4, A",
    "remedies": "2.4, 3, 5.4, 5.6",
    "assumptions": "C",
}


def document(answer: Answer) -> dict[str, Any]:
    """The whole answer as plain data."""
    asked, path, layer = answer.question, answer.path, answer.layer
    return {
        "verdict": answer.verdict,
        "kernel": asked.kernel,
        "model": {
            "name": asked.model.name,
            "source": asked.model.source,
            "experts": asked.model.experts,
            "top_k": asked.model.top_k,
            "hidden": asked.model.hidden,
            "intermediate": asked.model.intermediate,
            "intermediate_per_rank": path.intermediate,
            "tp": asked.tp,
            "dtype": asked.dtype,
            "group_size": path.group,
            "quantisation": None if asked.model.quantisation is None else asked.model.quantisation.source,
        },
        "device": {
            "name": asked.device.name,
            "arch": asked.device.arch,
            "sms": asked.device.sms,
            "shared_memory": asked.device.shared_memory,
        },
        "tokens": asked.tokens,
        "routing": asked.routing.source if isinstance(asked.routing, Given) else str(asked.routing),
        "path": {
            "taken": path.kind,
            "says": path.says,
            "obstacles": [{"says": item.says, "section": item.section} for item in path.obstacles],
            "notes": [{"says": item.says, "section": item.section} for item in path.notes],
        },
        **_layer(layer),
        "specification": SPECIFICATION,
        "sections": SECTIONS,
    }


def _layer(layer: Layer | None) -> dict[str, Any]:
    if layer is None:
        return {
            "block_size_m": None,
            "alignment_variant": None,
            "padded_blocks": None,
            "gemms": [],
            "exposed": None,
            "defects": [],
            "remedies": [],
            "assumptions": [],
        }
    return {
        "block_size_m": layer.block_size_m,
        "alignment_variant": layer.variant,
        "padded_blocks": layer.padded_blocks,
        "gemms": [_gemm(gemm) for gemm in layer.gemms],
        "exposed": _exposed(layer),
        "defects": [
            {"id": item.id, "kind": item.kind, "says": item.says, "section": item.section}
            for item in layer.defects
        ],
        "remedies": [
            {
                "name": item.name,
                "does": item.does,
                "grids": dict(item.grids),
                "launchable": item.launchable,
                "changes_bits": item.changes_bits,
                "why": item.why,
                "section": item.section,
            }
            for item in layer.remedies
        ],
        "assumptions": [{"id": name, "says": ASSUMPTIONS[name].says} for name in layer.assumptions],
    }


def _gemm(gemm: GemmAnswer) -> dict[str, Any]:
    shape = gemm.shape
    return {
        "name": shape.name,
        "n": shape.n,
        "k": shape.k,
        "group": shape.group,
        "chosen_by": gemm.chosen_by,
        "why_unknown": gemm.why_unknown or None,
        **_launch(gemm.launch, gemm.split),
        "alternatives": [_launch(launch, split) for launch, split in gemm.alternatives],
    }


def _launch(launch: Launch | None, split: Split | None) -> dict[str, Any]:
    if launch is None or split is None:
        keys = ("tile", "ctas_per_sm", "grid", "tiles", "rounds", "part2", "iters")
        return dict.fromkeys((*keys, "direct_tiles", "split_tiles", "first_split_block", "most_slices"))
    schedule = split.schedule
    return {
        "tile": [launch.tile_k, launch.tile_n],
        "ctas_per_sm": launch.ctas_per_sm,
        "grid": launch.grid,
        "tiles": schedule.tiles,
        "rounds": schedule.rounds,
        "part2": schedule.part2,
        "iters": schedule.iters,
        "direct_tiles": split.direct_tiles,
        "split_tiles": split.split_tiles,
        "first_split_block": split.first_split_block,
        "most_slices": split.most_slices,
    }


def _exposed(layer: Layer) -> dict[str, Any]:
    known = layer.launches_known
    share = layer.exposed_routes / sum(layer.counts) if sum(layer.counts) else 0.0
    return {
        "by_atomics": layer.variant == "large",
        "routes": layer.exposed_routes if known else None,
        "share": share if known else None,
        "experts": [
            {
                "expert": item.expert,
                "routes": list(item.routes),
                "blocks": list(item.blocks),
                "exposed": item in layer.exposed if known else None,
                "gemms": {
                    at.gemm: {"classes": list(at.classes), "slice_lists": "differ" if at.differ else "equal"}
                    for at in item.at
                },
            }
            for item in layer.crowded
        ],
        "expected": None
        if layer.expected is None
        else {
            "crowded_share": layer.expected.crowded_share,
            "exposed_share": layer.expected.exposed_share,
            "standard_error": layer.expected.standard_error,
            "batches": layer.expected.batches,
            "affected_batches": layer.expected.affected,
            "method": layer.expected.method,
        },
    }
