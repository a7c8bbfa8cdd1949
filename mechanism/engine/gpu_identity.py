"""Which GPU and driver there are, asked of the driver itself: no torch, so that the parent can ask too.

And which shared libraries a process has loaded, by digest of the files as they lie.
"""

import ctypes
import hashlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mechanism.errors import EngineError

_DRIVER = "libcuda.so.1"
# CUdevice_attribute
_SHARED_OPTIN, _SMS, _MAJOR, _MINOR, _CLOCK, _MEMORY_CLOCK = 97, 16, 75, 76, 13, 36


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One device as the driver describes it.

    Attributes:
        name: E.g. `NVIDIA H200`.
        arch: E.g. `sm_90`.
        sms: Multiprocessors.
        shared_memory: Opt-in limit per block, bytes.
        clock_khz: Peak clock of the multiprocessors, as found.
        memory_clock_khz: Peak clock of the memory.
        uuid_sha256: Digest of the device's UUID: tells two boards apart without naming one.
        driver: The newest CUDA version that the driver speaks, e.g. `13.0`.
    """

    name: str
    arch: str
    sms: int
    shared_memory: int
    clock_khz: int
    memory_clock_khz: int
    uuid_sha256: str
    driver: str


def find_gpu() -> Gpu:
    """Device 0, the one that is used. Raises EngineError if there is no driver or no device."""
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError as fault:
        raise EngineError(
            f"no GPU: expected the CUDA driver's {_DRIVER}, got: {fault}; run on a machine with an NVIDIA"
            f" driver,"
            " or use a plan with engine: simulated"
        ) from fault
    return describe(driver)


def describe(driver: ctypes.CDLL) -> Gpu:
    """Device 0 of a loaded driver library. Raises EngineError."""
    count, device, version = ctypes.c_int(0), ctypes.c_int(0), ctypes.c_int(0)
    code = driver.cuInit(0)
    if code == 0:
        code = driver.cuDeviceGetCount(ctypes.byref(count))
    if code != 0 or count.value < 1:
        raise EngineError(
            f"no GPU: expected a CUDA device, the driver reports {count.value} (error {code}); is one visible"
            " (CUDA_VISIBLE_DEVICES), and does its driver run? Else use a plan with engine: simulated"
        )
    _done("cuDeviceGet", driver.cuDeviceGet(ctypes.byref(device), 0))
    _done("cuDriverGetVersion", driver.cuDriverGetVersion(ctypes.byref(version)))
    name, uuid = ctypes.create_string_buffer(256), ctypes.create_string_buffer(16)
    _done("cuDeviceGetName", driver.cuDeviceGetName(name, 256, device))
    _done("cuDeviceGetUuid", driver.cuDeviceGetUuid(uuid, device))

    def attribute(number: int) -> int:
        value = ctypes.c_int(0)
        _done("cuDeviceGetAttribute", driver.cuDeviceGetAttribute(ctypes.byref(value), number, device))
        return value.value

    return Gpu(
        name=name.value.decode("ascii", "replace"),
        arch=f"sm_{attribute(_MAJOR)}{attribute(_MINOR)}",
        sms=attribute(_SMS),
        shared_memory=attribute(_SHARED_OPTIN),
        clock_khz=attribute(_CLOCK),
        memory_clock_khz=attribute(_MEMORY_CLOCK),
        uuid_sha256=hashlib.sha256(uuid.raw).hexdigest(),
        driver=f"{version.value // 1000}.{version.value % 1000 // 10}",
    )


def require_device(pinned: Mapping[str, str | int], found: Gpu) -> None:
    """Raise EngineError unless the device is the one that the plan pins, in all that decides bits."""
    differing = [
        f"{key}: expected {pinned[key]}, got {getattr(found, key)}"
        for key in ("arch", "sms", "shared_memory")
        if pinned[key] != getattr(found, key)
    ]
    if differing:
        raise EngineError(
            f"wrong GPU: the plan is pinned to {pinned['name']}, this is {found.name};"
            f" {'; '.join(differing)}; make a"
            " plan for this device with `mechanism gpu plan`, or run on that one"
        )


def driver_version() -> str:
    """The kernel driver's own version, e.g. `580.65.06`; `unknown` if it does not say."""
    path = Path("/proc/driver/nvidia/version")
    try:
        words = path.read_text().split("\n", 1)[0].split()
    except OSError:
        return "unknown"
    return next((word for word in words if word[0].isdigit() and "." in word), "unknown")


def loaded_libraries() -> Iterator[tuple[str, str]]:
    """(name, sha256) of every shared library mapped into this process, as the file lies now."""
    paths: dict[str, Path] = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and ".so" in fields[5] and fields[5].startswith("/"):
            path = Path(fields[5])
            name = path.name
            if paths.get(name, path) != path:  # two libraries of one name: told apart by their folder
                name = f"{path.parent.name}.{name}"
            paths[name] = path
    names = sorted(paths)
    with ThreadPoolExecutor(max_workers=8) as pool:  # gigabytes; hashlib releases the interpreter lock
        yield from zip(names, pool.map(_digest, [paths[name] for name in names]), strict=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _done(what: str, code: int) -> None:
    if code != 0:
        raise EngineError(f"{what}: expected success from the CUDA driver, got error {code}")
