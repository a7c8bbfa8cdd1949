"""Devices and the register counts of the compiled kernels, as data (marlin-moe 4.3, 4.4).

Register counts decide tile and grid, hence bits. They belong to the wheel's CUDA 13.0 build: devices of
the 8.x family run its sm_80 machine code, sm_90 compiles the same PTX in the driver (assumption U1).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from mechanism.kernel.errors import ConfigurationError
from mechanism.values import frozen


@frozen
class Device:
    """What the host code asks a GPU. Real or made up: a plan may define a toy with 8 SMs.

    Attributes:
        name: For people.
        arch: Compute architecture, e.g. ``sm_86``.
        sms: Multiprocessors.
        shared_memory: Opt-in shared memory per block, bytes.
    """

    name: str
    arch: str
    sms: int
    shared_memory: int

    def __post_init__(self) -> None:
        if min(self.sms, self.shared_memory) < 1:
            raise ConfigurationError(
                f"device {self.name}: expected sms and shared_memory of 1 or more,"
                f" got {self.sms} and {self.shared_memory}"
            )


_SM80, _SM86, _SM90 = 166_912, 101_376, 232_448  # bytes, published opt-in limits

DEVICES: Final = MappingProxyType(
    {
        name: Device(name=name, arch=arch, sms=sms, shared_memory=shared_memory)
        for name, arch, sms, shared_memory in (
            ("a100", "sm_80", 108, _SM80),
            ("a10", "sm_86", 72, _SM86),
            ("a40", "sm_86", 84, _SM86),
            ("rtx-3090", "sm_86", 82, _SM86),
            ("rtx-a6000", "sm_86", 84, _SM86),
            ("l4", "sm_89", 58, _SM86),
            ("l40s", "sm_89", 142, _SM86),
            ("rtx-4090", "sm_89", 128, _SM86),
            ("h100", "sm_90", 132, _SM90),
            ("h100-pcie", "sm_90", 114, _SM90),
            ("h200", "sm_90", 132, _SM90),
            ("b200", "sm_100", 148, _SM90),
            ("rtx-5090", "sm_120", 170, _SM86),
        )
    }
)
"""Known devices by name; h100 is the SXM board."""

# Which list of counts a device of an architecture uses. sm_100 and sm_120 compile the PTX in the driver
# too, but nobody has read their counts.
_FAMILIES: Final = MappingProxyType(
    {"sm_80": "sm_80", "sm_86": "sm_80", "sm_87": "sm_80", "sm_89": "sm_80", "sm_90": "sm_90"}
)

_GROUPS: Final = (-1, 32, 64, 128)  # column order of the rows below

# (block_size_m, tile_k, tile_n): counts for the four groups, fp16 then bf16
_COUNTS: Final = MappingProxyType(
    {
        "sm_80": {
            (8, 128, 128): ((112, 126, 128, 122), (112, 126, 128, 122)),
            (8, 64, 128): ((105, 127, 127, 127), (105, 126, 125, 122)),
            (8, 128, 64): ((116, 126, 128, 127), (116, 126, 128, 127)),
            (16, 128, 128): ((154, 156, 156, 155), (154, 156, 156, 155)),
            (16, 64, 128): ((143, 154, 150, 148), (146, 150, 144, 142)),
            (16, 128, 64): ((156, 156, 156, 156), (156, 156, 156, 156)),
            (32, 64, 256): ((218, 219, 220, 218), (214, 214, 211, 210)),
            (32, 64, 128): ((220, 222, 222, 218), (216, 220, 213, 211)),
            (32, 128, 64): ((221, 221, 221, 222), (219, 221, 221, 219)),
            (48, 64, 256): ((246, 248, 247, 244), (255, 253, 252, 251)),
            (48, 64, 128): ((245, 250, 248, 246), (255, 255, 253, 252)),
            (48, 128, 64): ((246, 246, 246, 246), (254, 250, 250, 255)),
            (64, 64, 256): ((255,) * 4, (255,) * 4),
            (64, 64, 128): ((255,) * 4, (255,) * 4),
            (64, 128, 64): ((255,) * 4, (255,) * 4),
        },
        "sm_90": {
            (8, 128, 128): ((116, 128, 128, 128), (116, 128, 128, 128)),
            (8, 64, 128): ((96, 127, 127, 128), (95, 128, 127, 127)),
            (8, 128, 64): ((118, 127, 127, 127), (118, 127, 127, 127)),
            (16, 128, 128): ((158, 158, 158, 156), (158, 156, 158, 156)),
            (16, 64, 128): ((152, 158, 156, 150), (148, 154, 148, 144)),
            (16, 128, 64): ((162, 153, 153, 157), (162, 153, 153, 156)),
            (32, 64, 256): ((221, 223, 221, 222), (217, 217, 215, 214)),
            (32, 64, 128): ((222, 228, 228, 220), (218, 224, 220, 214)),
            (32, 128, 64): ((227, 228, 228, 228), (223, 222, 222, 222)),
            (48, 64, 256): ((252, 246, 246, 250), (254, 252, 253, 250)),
            (48, 64, 128): ((252, 248, 246, 250), (254, 253, 253, 250)),
            (48, 128, 64): ((245, 243, 243, 243), (251, 255, 255, 255)),
            (64, 64, 256): ((255,) * 4, (255,) * 4),
            (64, 64, 128): ((255,) * 4, (255,) * 4),
            (64, 128, 64): ((255,) * 4, (255,) * 4),
        },
    }
)


def registers(
    *, arch: str, dtype: str, block_size_m: int, tile_k: int, tile_n: int, group: int
) -> int | None:
    """Registers per thread of one compiled kernel (marlin-moe 4.4); None if no such kernel was compiled.

    Args:
        arch: Compute architecture of the device.
        dtype: ``float16`` or ``bfloat16``.
        block_size_m: Slots per padded block.
        tile_k: K extent of a tile.
        tile_n: N extent of a tile.
        group: Rows of K that share a scale, or -1 for channelwise.

    Raises:
        ConfigurationError: Nobody has read the counts for that architecture.
    """
    if arch not in _FAMILIES:
        known = ", ".join(_FAMILIES)
        raise ConfigurationError(
            f"register counts for {arch} are not known, and they decide tile and grid;"
            f" give the tile and CTAs per SM explicitly, or use one of {known}"
        )
    if dtype not in ("float16", "bfloat16"):
        raise ConfigurationError(f"dtype: expected float16 or bfloat16, got {dtype}")
    row = _COUNTS[_FAMILIES[arch]].get((block_size_m, tile_k, tile_n))
    if row is None or group not in _GROUPS:
        return None
    return row[dtype == "bfloat16"][_GROUPS.index(group)]


def rests_on_driver_counts(arch: str) -> bool:
    """Whether the counts of ``arch`` come from the driver's compiler: assumption U1."""
    return int(arch.removeprefix("sm_")) >= 90
