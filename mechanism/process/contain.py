"""Holding a process, from within it, between fork and exec: no network, nothing to write but its own.

Every failure is an OSError that says which call the system refused: the child is not started then.
"""

import ctypes
import os
import resource
import sys
from pathlib import Path
from typing import Any

# unshare(2), mount(2), mount_setattr(2)
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x08000000, 0x10000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 1 << 18
MOUNT_ATTR_RDONLY = 1
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
# prctl(2), capabilities(7): of root's powers, those over files are kept, which the mounts then bind
PR_CAPBSET_DROP, PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS = 24, 28, 38
SECBIT_NOROOT_LOCKED = 0b11
KEPT_CAPABILITIES = (1, 2)  # DAC_OVERRIDE, DAC_READ_SEARCH
# system calls by number: the same on every architecture since 2019
SYS_MOUNT_SETATTR, SYS_LANDLOCK = 442, 444
# landlock(7): write, remove, make; from the second ABI rename, from the third truncate
WRITES, WRITES_2, WRITES_3 = 0b1_1111_1111_0010, 1 << 13, 1 << 14
WRITES_TO_FILES = (1 << 1) | (1 << 14)
TCP = 0b11  # bind and connect, from the fourth ABI
SCOPED = 0b11  # abstract sockets and signals, from the sixth ABI


def hold(libc: ctypes.CDLL, wanted: dict[str, Any]) -> None:
    """Apply the containment to this process. Raises OSError naming the call that the system refused."""
    if wanted["kind"] == "modes":
        return
    if wanted["kind"] == "namespaces":
        _namespaces(libc, wanted["rules"])
    _call("prctl no_new_privs", libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if wanted["kind"] == "landlock":
        _landlock(libc, [path for path, writable in wanted["rules"] if writable])


def limit(wanted: dict[str, Any]) -> None:
    """Set resource limits; none is ever raised above what the runner itself has."""
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, wanted["memory"]),
        (resource.RLIMIT_FSIZE, wanted["file_size"]),
        (resource.RLIMIT_NPROC, wanted["processes"]),
    ):
        if value is not None:
            hard = resource.getrlimit(kind)[1]
            most = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (most, most))


def _call(name: str, result: int) -> int:
    """The result of a system call. Raises OSError if it failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def _namespaces(libc: ctypes.CDLL, rules: list[list[Any]]) -> None:
    uid, gid = os.getuid(), os.getgid()
    new = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC
    own_user = libc.unshare(new) != 0  # root of the machine needs no user namespace, and others must have one
    if own_user:
        _call("unshare", libc.unshare(new | CLONE_NEWUSER))
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            Path(f"/proc/self/{name}").write_text(text)
    _call("mount private", libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None))
    for path, writable in rules:
        _mount(libc, os.fsencode(path), writable=writable)
    if own_user:
        _call("prctl securebits", libc.prctl(PR_SET_SECUREBITS, SECBIT_NOROOT_LOCKED, 0, 0, 0))
        return
    for number in range(64):
        if number not in KEPT_CAPABILITIES and libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) != 0:
            break  # there are no more


def _mount(libc: ctypes.CDLL, path: bytes, *, writable: bool) -> None:
    """Have everything below the path read-only, or the path itself writable again."""
    recursive = 0 if writable else AT_RECURSIVE
    if path != b"/":
        flags = MS_BIND if writable else MS_BIND | MS_REC
        _call(f"mount {os.fsdecode(path)}", libc.mount(path, path, None, flags, None))
    # struct mount_attr: attr_set, attr_clr, propagation, userns_fd; 64 bits each
    attributes = (ctypes.c_uint64 * 4)(
        0 if writable else MOUNT_ATTR_RDONLY, MOUNT_ATTR_RDONLY if writable else 0, 0, 0
    )
    result = libc.syscall(
        SYS_MOUNT_SETATTR, AT_FDCWD, path, recursive, ctypes.byref(attributes), ctypes.sizeof(attributes)
    )
    _call(f"mount_setattr {os.fsdecode(path)}", result)


def _landlock(libc: ctypes.CDLL, writable: list[str]) -> None:
    abi = _call("landlock", libc.syscall(SYS_LANDLOCK, None, 0, 1))
    files = WRITES | (WRITES_2 if abi >= 2 else 0) | (WRITES_3 if abi >= 3 else 0)
    handled = [files] + ([TCP] if abi >= 4 else []) + ([0] if 4 <= abi < 6 else [SCOPED] if abi >= 6 else [])
    attributes = (ctypes.c_uint64 * len(handled))(*handled)
    size = 8 * (1 if abi < 4 else 2 if abi < 6 else 3)
    ruleset = _call("landlock_create_ruleset", libc.syscall(SYS_LANDLOCK, ctypes.byref(attributes), size, 0))
    for path in (*writable, "/dev/null"):
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
        allowed = files if Path(path).is_dir() else files & WRITES_TO_FILES
        # struct landlock_path_beneath_attr, packed: 64 bits of rights, 32 of a descriptor
        rule = allowed.to_bytes(8, sys.byteorder) + folder.to_bytes(4, sys.byteorder)
        _call(f"landlock_add_rule {path}", libc.syscall(SYS_LANDLOCK + 1, ruleset, 1, rule, 0))
        os.close(folder)
    _call("landlock_restrict_self", libc.syscall(SYS_LANDLOCK + 2, ruleset, 0))
    os.close(ruleset)
