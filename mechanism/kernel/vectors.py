"""Recompute published vectors and count the elements that differ: loaded arrays in, counts out.

One function per kind of file; ``recompute`` picks it by the arrays that a file holds, so that a file may lie
in any folder. Equal means equal bits, NaN patterns included. Opening files is the caller's business.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mechanism.kernel.alignment import Alignment
from mechanism.kernel.arithmetic import NUMPY, Arithmetic
from mechanism.kernel.atomic import outcomes
from mechanism.kernel.configuration import Launch, choose, shared_memory
from mechanism.kernel.dequantize import Weights
from mechanism.kernel.devices import Device, registers
from mechanism.kernel.errors import KernelError
from mechanism.kernel.layer import moe_layer
from mechanism.kernel.rounding import Stored, differing_bits
from mechanism.kernel.schedule import Schedule
from mechanism.kernel.tensor_core import mma

Arrays = Mapping[str, npt.NDArray[Any]]

ARCHITECTURES = {"ampere": "sm_86", "hopper": "sm_90"}  # tensor-core model named in meta
_DTYPES = {"f16": "float16", "bf16": "bfloat16"}
_DEPTHS = {"m8n8k4": 4, "m16n8k8": 8, "m16n8k16": 16, "chain": 16}


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """How one file came out.

    Attributes:
        name: The file.
        elements: Elements compared.
        differing: How many of them differ.
        first: Where the first one is that differs, with both bit patterns; empty if none does.
    """

    name: str
    elements: int
    differing: int
    first: str = ""


def recompute(name: str, arrays: Arrays, *, arithmetic: Arithmetic = NUMPY) -> Check:
    """Recompute one ``.npz`` file.

    Args:
        name: Name of the file; those of instructions and dot products tell architecture, dtype and shape:
            ``sm80_f16_m16n8k16.npz``, ``sm90_H200_bf16_k16.npz``.
        arrays: Its arrays.
        arithmetic: Who computes GEMMs, and what else there is of layers.

    Raises:
        KernelError: A kind of file that is not known, or that lacks what its kind must hold.
    """
    try:
        if {"A", "B", "C", "D"} <= arrays.keys():
            return _instruction(name, arrays)
        if "y_0220_k2" in arrays:
            return _final_sums(name, arrays, arithmetic)
        if "meta" in arrays:
            return _described(name, arrays, json.loads(str(arrays["meta"])), arithmetic)
    except (KeyError, IndexError, TypeError, ValueError) as fault:
        if isinstance(fault, KernelError):
            raise
        raise KernelError(f"lacks something its kind must hold: {type(fault).__name__}: {fault}") from fault
    raise KernelError(f"expected a kind of vector file that is known, got the arrays {sorted(arrays)}")


def _instruction(name: str, arrays: Arrays) -> Check:
    """One instruction or a chain (rank 3), or dot products of one step that a GPU returned (rank 2)."""
    parts = name.rpartition("/")[2].removesuffix(".npz").split("_")
    arch = parts[0].removeprefix("sm")
    dtype = next(_DTYPES[part] for part in parts if part in _DTYPES)
    if arrays["A"].ndim == 3:
        k = next(depth for part, depth in _DEPTHS.items() if part in parts)
        return _mma(name, arrays, arch, dtype, k)
    wide = {
        "A": arrays["A"][:, np.newaxis, :],
        "B": arrays["B"][:, :, np.newaxis],
        "C": arrays["C"][:, np.newaxis, np.newaxis],
        "D": arrays["D"][:, np.newaxis, np.newaxis],
    }
    return _mma(name, wide, arch, dtype, arrays["A"].shape[1])


def _described(name: str, arrays: Arrays, meta: Mapping[str, Any], arithmetic: Arithmetic) -> Check:
    if "hidden" in arrays:
        return _layer(name, arrays, meta, arithmetic)
    if "sample_c" in arrays:
        weights = paper_weights(meta, set(arrays["expert_ids"].tolist()))
        return paper(name, arrays, meta, weights, arithmetic)
    if meta["use_atomic_add"]:
        return _atomic(name, arrays, meta)
    got = _gemm(arrays, meta, _weights(arrays), arithmetic)
    return _compared(name, got, arrays["c_bits" if "c_bits" in arrays else "c"])


def document(name: str, value: Mapping[str, Any]) -> Check:
    """Recompute one ``.json`` file: a schedule or launch configurations.

    Raises:
        KernelError: A kind of file that is not known, or that lacks what its kind must hold.
    """
    try:
        if "tiles" in value:
            return schedule(name, value)
        if "choices" in value:
            return launch_configurations(name, value)
    except (KeyError, IndexError, TypeError) as fault:
        raise KernelError(f"lacks something its kind must hold: {type(fault).__name__}: {fault}") from fault
    raise KernelError(f"expected a schedule or launch configurations, got the keys {sorted(value)}")


def schedule(name: str, document: Mapping[str, Any]) -> Check:
    """Recompute one ``schedule_*.json``: slices, part and lock of every tile."""
    plan = Schedule(
        n=document["size_n"],
        k=document["size_k"],
        tile_k=document["thread_k"],
        tile_n=document["thread_n"],
        grid=document["num_ctas"],
        padded_blocks=document["num_m_blocks"],
        group=document["group_size"],
    )
    wrong = []
    for want in document["tiles"]:
        place = (want["m_block"], want["n_tile"])
        slices = [
            {"cta": part.cta, "k_begin": part.begin * plan.tile_k, "k_end": part.end * plan.tile_k}
            for part in reversed(plan.slices(*place))
        ]
        got = {
            "part": "data_parallel" if plan.part(*place) == 1 else "stream_k",
            "lock": plan.lock(*place),
            "slices": [{**part, "reduce_order": order} for order, part in enumerate(slices)],
        }
        wrong += [
            f"tile {place}: {key}: expected {want[key]}, got {value}"
            for key, value in got.items()
            if want[key] != value
        ][:1]
    if plan.tiles != len(document["tiles"]):
        wrong.append(f"tiles: expected {len(document['tiles'])}, got {plan.tiles}")
    return Check(name=name, elements=plan.tiles, differing=len(wrong), first=wrong[0] if wrong else "")


def launch_configurations(name: str, document: Mapping[str, Any]) -> Check:
    """Recompute ``launch_configs.json``: register counts and choices of the host code."""
    wrong = []
    for family, rows in document["register_counts"].items():
        for row in rows:
            got = registers(
                arch=family,
                dtype="float16",
                block_size_m=row["moe_block_size"],
                tile_k=row["thread_k"],
                tile_n=row["thread_n"],
                group=row["group_size"],
            )
            if got != row["registers"]:
                wrong.append(f"registers of {family} {row}: got {got}")
    devices = document["devices"]
    wrong += [f"choice {row}" for row in document["choices"] if not _same_choice(row, devices[row["device"]])]
    counted = sum(len(rows) for rows in document["register_counts"].values())
    first = wrong[0] if wrong else ""
    return Check(name=name, elements=counted + len(document["choices"]), differing=len(wrong), first=first)


def paper_weights(meta: Mapping[str, Any], experts: set[int]) -> Weights:
    """The weights of a ``paper_*`` file by its recipe; experts that are not asked for stay zero.

    The generator is sequential, so all are drawn; packing and memory are spent on ``experts`` only.
    """
    count, k, n = meta["num_experts"], meta["size_k"], meta["size_n"]
    groups = k // meta["group_size"]
    qweight = np.zeros((count, k, n // 8), dtype=np.int32)
    qzeros = np.zeros((count, groups, n // 8), dtype=np.int32)
    scales = np.zeros((count, groups, n), dtype=np.float16)
    rng = np.random.Generator(np.random.PCG64(meta["weight_seed"]))
    for expert in range(max(experts, default=-1) + 1):
        codes = rng.integers(0, 16, size=(k, n), dtype=np.uint8)
        zeros = rng.integers(0, 16, size=(groups, n), dtype=np.uint8)
        steps = rng.integers(1000, 6000, size=(groups, n), dtype=np.int32)
        if expert in experts:
            qweight[expert], qzeros[expert] = _packed(codes), _packed(zeros)
            scales[expert] = (steps.astype(np.float32) / np.float32(2**20)).astype(np.float16)
    return Weights(qweight=qweight, scales=scales, qzeros=qzeros)


def paper(
    name: str, arrays: Arrays, meta: Mapping[str, Any], weights: Weights, arithmetic: Arithmetic = NUMPY
) -> Check:
    """Recompute a large file: its 512 sampled elements, and each row by its sha256."""
    got = _gemm(arrays, meta, weights, arithmetic)
    sampled = _compared(name, got[arrays["sample_rows"], arrays["sample_cols"]], arrays["sample_c"])
    rows = [hashlib.sha256(row.tobytes()).hexdigest() for row in got]
    wrong = [
        f"row {row}: sha256"
        for row, pair in enumerate(zip(rows, meta["row_sha256"], strict=True))
        if pair[0] != pair[1]
    ]
    if hashlib.sha256(got.tobytes()).hexdigest() != meta["sha256"]["c"]:
        wrong.append("sha256 of the whole output")
    return Check(
        name=name,
        elements=sampled.elements + len(rows) + 1,
        differing=sampled.differing + len(wrong),
        first=sampled.first or (wrong[0] if wrong else ""),
    )


def _packed(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    words = np.zeros((codes.shape[0], codes.shape[1] // 8), dtype=np.uint32)
    for nibble, column in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
        words |= codes[:, column::8].astype(np.uint32) << np.uint32(4 * nibble)
    return words.view(np.int32)


def _weights(arrays: Arrays, prefix: str = "") -> Weights:
    scales = arrays["scales_bits"] if "scales_bits" in arrays else arrays[f"{prefix}scales"]
    return Weights(qweight=arrays[f"{prefix}qweight"], qzeros=arrays[f"{prefix}qzeros"], scales=scales)


def _alignment(arrays: Arrays, routes: int, block: int, key: str = "sorted_token_ids") -> Alignment:
    slots, blocks = tuple(arrays[key].tolist()), tuple(arrays["expert_ids"].tolist())
    return Alignment(
        block_size_m=block,
        routes=routes,
        sorted_token_ids=slots,
        expert_ids=blocks,
        num_tokens_post_padded=len(slots),
        sorted_length=len(slots),
        expert_length=len(blocks),
    )


def _launch(meta: Mapping[str, Any]) -> Launch:
    tile_k, tile_n = meta["thread_k"], meta["thread_n"]
    return Launch(
        tile_k=tile_k, tile_n=tile_n, threads=tile_k * tile_n // 64, ctas_per_sm=0, grid=meta["num_ctas"]
    )


def _operands(arrays: Arrays, meta: Mapping[str, Any]) -> dict[str, Any]:
    """What ``marlin_gemm`` and ``outcomes`` share."""
    a: Stored = arrays["a_bits"] if "a_bits" in arrays else arrays["a"]
    routes = meta["size_m"] * meta["top_k"]
    return {
        "a": a,
        "alignment": _alignment(arrays, routes, meta["moe_block_size"]),
        "launch": _launch(meta),
        "top_k": meta["top_k"],
        "arch": ARCHITECTURES[meta["mma_model"]],
        "kernel": f"vllm=={meta['vllm']}",
        "topk_weights": arrays["topk_weights"].reshape(-1) if meta["mul_topk_weights"] else None,
    }


def _gemm(arrays: Arrays, meta: Mapping[str, Any], weights: Weights, arithmetic: Arithmetic) -> Stored:
    given = _operands(arrays, meta)
    return arithmetic.multiply(weights=weights, fp32_reduce=meta["use_fp32_reduce"], **given).output


def _atomic(name: str, arrays: Arrays, meta: Mapping[str, Any]) -> Check:
    got = outcomes(weights=_weights(arrays), **_operands(arrays, meta))
    if "c" in arrays:  # at most two slices: one outcome
        return _compared(name, got.bits[0].view(np.float16), arrays["c"])
    want = arrays["c_set"]
    same = (got.bits.shape == want.shape) and (got.bits == want).all(axis=0) & (
        got.count == arrays["c_set_size"]
    )
    differing = np.flatnonzero(~np.broadcast_to(same, want.shape[1:]))
    first = f"flat element {differing[0]}: set of outcomes" if differing.size else ""
    return Check(name=name, elements=want[0].size, differing=len(differing), first=first)


def _layer(name: str, arrays: Arrays, meta: Mapping[str, Any], arithmetic: Arithmetic) -> Check:
    checks = []
    for which in ("stable", "swap"):
        run = moe_layer(
            arrays["hidden"],
            _weights(arrays, "w13_"),
            _weights(arrays, "w2_"),
            arrays["topk_weights"],
            _alignment(arrays, arrays["topk_ids"].size, meta["moe_block_size"], f"sorted_token_ids_{which}"),
            launch_w13=_launch(meta),
            launch_w2=_launch(meta),
            arch=ARCHITECTURES[meta["mma_model"]],
            kernel=f"vllm=={meta['vllm']}",
            arithmetic=arithmetic,
        )
        checks += [
            _compared(f"{surface}_{which}", getattr(run, surface), arrays[f"{surface}_{which}"])
            for surface in ("w13", "activation", "w2", "output")
        ]
    return _joined(name, checks)


def _final_sums(name: str, arrays: Arrays, arithmetic: Arithmetic) -> Check:
    """Keys ``y_<version>_k<top_k>``."""
    checks = []
    for key in sorted(key for key in arrays if key.startswith("y_")):
        _, build, width = key.split("_")
        top_k = int(width.removeprefix("k"))
        terms = arrays[f"x_k{top_k}"]
        rows = np.ascontiguousarray(terms).reshape(-1, terms.shape[2])
        kernel = f"vllm=={build[0]}.{build[1:-1]}.{build[-1]}"  # 0220 is 0.22.0
        got = arithmetic.combine(rows, top_k=top_k, kernel=kernel)
        checks.append(_compared(key, got, arrays[key]))
    return _joined(name, checks)


def _mma(name: str, arrays: Arrays, arch: str, dtype: str, k: int) -> Check:
    got = mma(arrays["A"], arrays["B"], arrays["C"], arch=f"sm_{arch}", dtype=dtype, k=k)
    return _compared(name, got, arrays["D"])


def _compared(name: str, got: npt.NDArray[Any], want: npt.NDArray[Any]) -> Check:
    """Bits against bits; ``want`` may be fp16 values or the bit patterns of any format."""
    width = f"u{want.dtype.itemsize}"
    left, right = np.ascontiguousarray(got).view(width), np.ascontiguousarray(want).view(width)
    differing = differing_bits(left, right)
    first = ""
    if len(differing):
        place = tuple(int(index) for index in np.unravel_index(differing[0], right.shape))
        digits = 2 * want.dtype.itemsize
        first = f"{name} {list(place)}: expected 0x{right[place]:0{digits}x}, got 0x{left[place]:0{digits}x}"
    return Check(name=name, elements=want.size, differing=len(differing), first=first)


def _joined(name: str, checks: list[Check]) -> Check:
    """Several comparisons of one file as one."""
    return Check(
        name=name,
        elements=sum(check.elements for check in checks),
        differing=sum(check.differing for check in checks),
        first=next((check.first for check in checks if check.first), ""),
    )


def _same_choice(row: Mapping[str, Any], limits: Mapping[str, Any]) -> bool:
    device = Device(
        name=row["device"],
        arch=row["device"],
        sms=limits["sms"],
        shared_memory=limits["max_shared_memory_per_block_optin"],
    )
    sizes = {"group": row["group_size"], "block_size_m": row["moe_block_size"]}
    got = choose(device, n=row["size_n"], k=row["size_k"], routes=row["size_m"] * row["top_k"], **sizes)
    want = Launch(
        tile_k=row["thread_k"],
        tile_n=row["thread_n"],
        threads=row["num_threads"],
        ctas_per_sm=row["blocks_per_sm"],
        grid=row["grid"],
    )
    needed = shared_memory(tile_k=got.tile_k, tile_n=got.tile_n, **sizes)
    return got == want and needed == row["shared_memory_needed"]
