"""Reading recorded routes: the tensor `topk_ids` of a .safetensors or .npz file."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mechanism.explain.bounds import EXPERTS, require, require_tokens
from mechanism.explain.errors import ExplainError
from mechanism.explain.routing import TopkIds


def read_routes(path: Path) -> TopkIds:
    """The ids, shape (tokens, top_k).

    Raises:
        ExplainError: No such file, no such tensor, not two axes of integers, more than a call can have.
    """
    array = _array(path)
    if array.ndim != 2 or array.dtype.kind not in "iu":
        raise ExplainError(
            f"{path}: topk_ids: expected integers of shape (tokens, top_k), got {array.dtype} {array.shape}"
        )
    if array.size:
        require_tokens(array.shape[0], where=f"{path}: topk_ids")
        require(
            f"{path}: topk_ids",
            array.shape[1],
            EXPERTS,
            what="experts per token",
            why="the alignment kernel takes no more (marlin-moe 2.3)",
        )
    return tuple(tuple(row) for row in array.tolist())


def _array(path: Path) -> npt.NDArray[Any]:
    if path.suffix not in {".safetensors", ".npz"}:
        raise ExplainError(f"--routes: expected a .safetensors or .npz file with topk_ids, got {path.name}")
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as held:
                names, found = sorted(held.files), held["topk_ids"] if "topk_ids" in held.files else None
        else:
            from safetensors.numpy import load_file  # noqa: PLC0415 - only for this format

            tensors = load_file(path)
            names, found = sorted(tensors), tensors.get("topk_ids")
    except OSError as fault:
        raise ExplainError(f"{path}: cannot be read: {fault.strerror or fault}; check the path") from fault
    except Exception as fault:  # both libraries raise their own kinds for a file that is not theirs
        raise ExplainError(f"{path}: expected a {path.suffix} file, got something else: {fault}") from fault
    if found is None:
        raise ExplainError(
            f"{path}: expected a tensor topk_ids, got {', '.join(names) or 'none'}; save it by that name"
        )
    array: npt.NDArray[Any] = found
    return array
