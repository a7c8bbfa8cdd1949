"""The power fails after any step of the runner: what was not synced is lost, and the campaign still completes.

A model of a disk is fed by the runner's own system calls. Of every file it knows what was synced; of every
folder, which names. After any call it can give the folder as a power cut may leave it: `all` that was not
synced is lost; `data` alone, while new names stay, with empty files behind them; or `nothing`, a mere kill.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.campaign_setup import read_events, run
from tests.campaign.test_resume import NATIVE, require_whole

Prepare = Callable[..., Path]
Image = dict[str, bytes | None]  # by path below the campaign's parent; None: a folder


@dataclass
class Disk:
    """What is on the platter under `root`, beside what the system shows; folders inside `skip` are left out."""

    root: Path
    skip: str
    data: dict[int, bytes] = field(default_factory=dict)  # by inode, as last synced
    names: dict[int, dict[str, int]] = field(default_factory=dict)  # by a folder's inode, as last synced
    images: list[tuple[Image, Image, Image]] = field(default_factory=list)

    def sync(self, descriptor: int) -> None:
        """A file's bytes, or a folder's names, reach the platter."""
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if not path.is_relative_to(self.root):
            return
        inode = os.fstat(descriptor).st_ino
        if path.is_dir():
            self.names[inode] = {item.name: item.stat().st_ino for item in path.iterdir()}
        else:
            self.data[inode] = path.read_bytes()

    def snap(self) -> None:
        """Keep the three folders that a power cut may leave now."""
        everything: Image = {}
        without_data: Image = {}
        for path in sorted(self.root.rglob("*")):
            name = path.relative_to(self.root).as_posix()
            if self.skip in name.split("/"):
                continue
            everything[name] = None if path.is_dir() else path.read_bytes()
            without_data[name] = None if path.is_dir() else self.data.get(path.stat().st_ino, b"")
        synced = dict(self._synced(self.root.stat().st_ino, ""))
        images = (synced, without_data, everything)
        if not self.images or self.images[-1] != images:
            self.images.append(images)

    def _synced(self, folder: int, above: str) -> Iterator[tuple[str, bytes | None]]:
        """What can be reached by synced names, with what was synced of it."""
        for name, inode in self.names.get(folder, {}).items():
            if name == self.skip:
                continue
            path = f"{above}{name}"
            if inode in self.data:
                yield path, self.data[inode]
            elif inode in self.names or inode in self.folders():
                yield path, None
                yield from self._synced(inode, f"{path}/")
            else:
                yield path, b""

    def folders(self) -> set[int]:
        """Inodes of the folders that are there."""
        return {path.stat().st_ino for path in self.root.rglob("*") if path.is_dir()}


@contextmanager
def recorded(disk: Disk) -> Iterator[None]:
    """Every call of this process that changes a disk is seen by the model."""
    real: dict[str, Any] = {}
    changing = ("rename", "replace", "unlink", "mkdir", "rmdir", "write", "ftruncate", "fsync")

    def wrap(name: str) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            result = real[name](*args, **more)
            if name == "fsync":
                disk.sync(args[0])
            disk.snap()
            return result

        return call

    with pytest.MonkeyPatch.context() as patched:
        for name in changing:
            real[name] = getattr(os, name)
            patched.setattr(os, name, wrap(name))
        yield


def restore(image: Image, folder: Path) -> None:
    folder.mkdir()
    for name, data in image.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if data is None:
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(data)


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_power_cut_after_any_step(campaign: Prepare, tmp_path: Path, every: int) -> None:
    """From every state that a cut may leave, a resume completes: each cell once, each start told."""
    folder = campaign(phases=NATIVE)
    disk = Disk(root=tmp_path / "disk", skip="staging")
    disk.root.mkdir()
    with recorded(disk):
        assert run(folder, disk.root / "out", jobs=1).complete
    assert len(disk.images) > 40
    states = {repr(sorted(image.items())): image for images in disk.images[::every] for image in images}
    for place, image in enumerate(states.values()):
        again = tmp_path / f"cut-{place}"
        restore(image, again)
        before = (again / "out" / "attempts.jsonl").exists() and read_events(again / "out")
        result = run(folder, again / "out", resume=(again / "out").exists())
        assert result.complete, (place, sorted(image), result)
        require_whole(again / "out", 2)
        if before:
            assert read_events(again / "out")[: len(before)] == before, "what the log told is lost"
        shutil.rmtree(again)
