"""One layer of a checkpoint as the six canonical weight tensors of a fixture, whatever format it came in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from ledger.canonical import digest
from mechanism.checkpoint import autoawq, compressed
from mechanism.checkpoint.errors import SettingsError
from mechanism.checkpoint.names import STACKED, LayerNames, Part, Projection, layer_names, require_complete
from mechanism.checkpoint.settings import Settings, read_settings
from mechanism.checkpoint.shards import Array, Stored, tensors_of
from mechanism.fixture import recipe
from mechanism.fixture.layout import GEMMS, PER_WORD
from mechanism.fixture.store import tensor_digest
from mechanism.kernel.shapes import layer_faults

_Reader = Callable[..., recipe.Projection]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ImportedLayer:
    """One layer, packed.

    Attributes:
        settings: What config.json says.
        weights: `w13_qweight` int32 [E, H, 2I/8], `w13_qzeros`, `w13_scales` float16, and those of w2.
        gate: The router's weight [E, H] where it lies; None if the layer has none.
        beside: Tensors of the block that the routed experts do not use.
    """

    settings: Settings
    weights: Mapping[str, Array]
    gate: Stored | None
    beside: tuple[str, ...]

    @property
    def digest(self) -> str:
        """The canonical tensor digest: equal for equal weights, whatever format and names they came in."""
        return weights_digest(self.weights)


def weights_digest(weights: Mapping[str, Array]) -> str:
    """The digest of the canonical JSON of {name: {dtype, shape, sha256}} of the six weight tensors."""
    names = [f"{gemm}_{part}" for gemm in GEMMS for part in autoawq.PARTS]
    return digest({name: described(weights[name]) for name in names})


def described(array: Array) -> dict[str, object]:
    """An array by dtype, shape and the sha256 of its raw little-endian C-order bytes."""
    return {"dtype": array.dtype.name, "shape": list(array.shape), "sha256": tensor_digest(array)}


def import_layer(folder: Path, layer: int) -> ImportedLayer:
    """Read layer `layer` of the checkpoint in `folder`.

    Raises SettingsError, ShardError, NamesError or LayoutError; each names what was expected and what is
    there.
    """
    settings = read_settings(folder)
    if not 0 <= layer < settings.layers:
        raise SettingsError(f"--layer: expected 0..{settings.layers - 1}, got {layer}")
    faults = layer_faults(
        hidden=settings.hidden, intermediate=settings.intermediate, group=settings.group_size
    )
    if faults:
        raise SettingsError(f"the layer does not take the Marlin path: {'; '.join(faults)}")
    stored = tensors_of(folder)
    found = layer_names(stored, layer)
    parts, read = _format(settings)
    projections = require_complete(found, experts=settings.experts, parts=parts)
    return ImportedLayer(
        settings=settings,
        weights=MappingProxyType(_weights(settings, found, stored, projections, read)),
        gate=None if found.gate is None else stored[found.gate],
        beside=found.beside,
    )


def _format(settings: Settings) -> tuple[tuple[str, ...], _Reader]:
    if settings.format == "autoawq-gemm":
        return autoawq.PARTS, autoawq.read_projection
    parts = compressed.SYMMETRIC if settings.symmetric else compressed.ASYMMETRIC
    return parts, compressed.read_projection


def _weights(
    settings: Settings,
    found: LayerNames,
    stored: Mapping[str, Stored],
    projections: tuple[Projection, ...],
    read: _Reader,
) -> dict[str, Array]:
    """Gate columns first, then up, per expert (marlin-moe 1.2)."""
    experts, hidden, wide = settings.experts, settings.hidden, settings.intermediate
    weights = _empty(settings)
    stacked = any(part.expert == STACKED for part in found.parts)
    for projection in projections:
        gemm = "w2" if projection == "down" else "w13"
        k, n = (wide, hidden) if gemm == "w2" else (hidden, 2 * wide if projection == "gate_up" else wide)
        first = wide if projection == "up" else 0
        for expert in (STACKED,) if stacked else range(experts):
            own = {
                part.part: stored[name]
                for part, name in found.parts.items()
                if part == Part(expert=expert, projection=projection, part=part.part)
            }
            made = read(own, k=k, n=n, group=settings.group_size, experts=experts if stacked else 0)
            place = slice(None) if stacked else expert
            words = slice(first // PER_WORD, (first + n) // PER_WORD)
            weights[f"{gemm}_qweight"][place, ..., words] = made.qweight
            weights[f"{gemm}_qzeros"][place, ..., words] = made.qzeros
            weights[f"{gemm}_scales"][place, ..., first : first + n] = made.scales
    return weights


def _empty(settings: Settings) -> dict[str, Array]:
    experts, group = settings.experts, settings.group_size
    found: dict[str, Array] = {}
    for gemm, k, n in (
        ("w13", settings.hidden, 2 * settings.intermediate),
        ("w2", settings.intermediate, settings.hidden),
    ):
        found[f"{gemm}_qweight"] = np.empty((experts, k, n // PER_WORD), dtype=np.int32)
        found[f"{gemm}_qzeros"] = np.empty((experts, k // group, n // PER_WORD), dtype=np.int32)
        found[f"{gemm}_scales"] = np.empty((experts, k // group, n), dtype=np.float16)
    return found
