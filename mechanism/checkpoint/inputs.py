"""The layer's inputs: hidden states from a file, and the routing, given with them or made by its router."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mechanism.checkpoint.errors import InputsError, ShardError
from mechanism.checkpoint.layer import ImportedLayer
from mechanism.checkpoint.settings import Settings
from mechanism.checkpoint.shards import Array, Stored, tensors_in

F16 = npt.NDArray[np.float16]
_GIVEN = {"topk_ids": ("int32", "int64"), "topk_weights": ("float32",)}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Inputs:
    """hidden float16 [tokens, H], topk_ids int32 and topk_weights float32 [tokens, top_k]."""

    hidden: F16
    topk_ids: npt.NDArray[np.int32]
    topk_weights: npt.NDArray[np.float32]


def read_inputs(path: Path, layer: ImportedLayer) -> Inputs:
    """Inputs from a .npy file of hidden states, or a .safetensors file with `hidden` and perhaps the routing.

    Raises InputsError.
    """
    if path.suffix == ".npy":
        try:
            hidden = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as fault:
            raise InputsError(
                f"{path}: expected a .npy array, as numpy.save writes it, got: {fault}"
            ) from fault
        return inputs_of(hidden, layer, where=str(path))
    if path.suffix == ".safetensors":
        return _from_safetensors(path, layer)
    raise InputsError(
        f"{path}: expected hidden states in a .npy or .safetensors file, got {path.suffix or 'none'}"
    )


def inputs_of(hidden: Array, layer: ImportedLayer, *, where: str) -> Inputs:
    """Inputs from hidden states alone: the layer's own router makes the routing. Raises InputsError."""
    checked = _hidden(hidden, layer.settings, where=where)
    if layer.gate is None:
        raise InputsError(
            f"{where}: expected topk_ids and topk_weights beside hidden, since the layer has no router"
            " weight;"
            " give all three in one .safetensors file"
        )
    ids, weights = route(checked, _gate(layer.gate, layer.settings), layer.settings)
    return Inputs(hidden=checked, topk_ids=ids, topk_weights=weights)


def route(
    hidden: F16, gate: npt.NDArray[np.float32], settings: Settings
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Softmax routing in float32 (marlin-moe 2.1): ids int32 and weights float32, both [tokens, top_k].

    A recipe for inputs, not a claim about bits: a GPU's router may differ in the last place, and what is
    stored is what this made. Ties go to the smaller expert.
    """
    logits = hidden.astype(np.float32) @ gate.T
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True, dtype=np.float32)
    ids = np.argsort(-shares, axis=1, kind="stable")[:, : settings.top_k].astype(np.int32)
    weights = np.take_along_axis(shares, ids.astype(np.intp), axis=1)
    if settings.renormalise:
        total = np.zeros((weights.shape[0], 1), dtype=np.float32)
        for slot in range(settings.top_k):  # in selection order
            total += weights[:, slot : slot + 1]
        weights /= total
    return ids, np.ascontiguousarray(weights, dtype=np.float32)


def _from_safetensors(path: Path, layer: ImportedLayer) -> Inputs:
    try:
        stored = tensors_in(path)
    except (ShardError, OSError) as fault:
        raise InputsError(str(fault)) from fault
    if unknown := sorted(stored.keys() - {"hidden", *_GIVEN}):
        raise InputsError(
            f"{path}: expected hidden, topk_ids and topk_weights, got {', '.join(unknown)} too; leave"
            " them out"
        )
    if "hidden" not in stored:
        raise InputsError(f"{path}: expected a tensor named hidden, found none")
    given = sorted(stored.keys() & _GIVEN.keys())
    if not given:
        return inputs_of(stored["hidden"].read(), layer, where=str(path))
    if len(given) == 1:
        raise InputsError(f"{path}: expected topk_ids and topk_weights, both or none, got {given[0]} alone")
    hidden = _hidden(stored["hidden"].read(), layer.settings, where=str(path))
    return _given(path, stored, hidden, layer.settings)


def _given(path: Path, stored: Mapping[str, Stored], hidden: F16, settings: Settings) -> Inputs:
    shape = (hidden.shape[0], settings.top_k)
    for name, dtypes in _GIVEN.items():
        if stored[name].shape != shape or stored[name].dtype not in dtypes:
            raise InputsError(
                f"{path}: {name}: expected {dtypes[0]} {list(shape)}, got {stored[name].dtype}"
                f" {list(stored[name].shape)}"
            )
    ids, weights = stored["topk_ids"].read(), stored["topk_weights"].read()
    if (
        ids.min() < 0
        or ids.max() >= settings.experts
        or any(len(set(row)) < len(row) for row in ids.tolist())
    ):
        raise InputsError(
            f"{path}: topk_ids: expected distinct experts 0..{settings.experts - 1} in every row"
        )
    if not np.isfinite(weights).all():
        raise InputsError(f"{path}: topk_weights: expected finite weights, got an infinity or a NaN")
    return Inputs(hidden=hidden, topk_ids=ids.astype(np.int32), topk_weights=weights)


def _hidden(hidden: Array, settings: Settings, *, where: str) -> F16:
    if hidden.ndim != 2 or hidden.shape[1] != settings.hidden or not hidden.shape[0]:
        raise InputsError(
            f"{where}: hidden: expected shape [tokens, {settings.hidden}] with one token or more, got"
            f" {list(hidden.shape)}"
        )
    if hidden.dtype != np.float16:
        raise InputsError(
            f"{where}: hidden: expected dtype float16, got {hidden.dtype}; the kernel runs in float16, and"
            f" rounding is"
            " for you to do"
        )
    if not np.isfinite(hidden).all():
        raise InputsError(f"{where}: hidden: expected finite values, got an infinity or a NaN")
    return np.ascontiguousarray(hidden)


def _gate(stored: Stored, settings: Settings) -> npt.NDArray[np.float32]:
    """The router's weight as float32 [E, H]; exact from float16 and bfloat16."""
    if stored.shape != (settings.experts, settings.hidden):
        raise InputsError(
            f"{stored.name}: expected shape [{settings.experts}, {settings.hidden}], got {list(stored.shape)}"
        )
    raw = stored.read()
    if stored.dtype == "bfloat16":
        return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if stored.dtype not in ("float16", "float32"):
        raise InputsError(f"{stored.name}: expected a float dtype, got {stored.dtype}")
    return raw.astype(np.float32)
