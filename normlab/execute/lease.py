"""Who writes a results folder: locks that the system drops when their holder dies.

One process holds the folder alone (`.lock` locked exclusively), or the shards of one study hold it together (`.lock`
locked shared), each with a lock of its own (`.lock-2-of-4`). `.lock-manifest` is held for the moment in which somebody
reads and rewrites the manifest. A lock file is unlinked while it is held; whoever opened it meanwhile sees that it is
no longer the one in place, and starts again. Between hosts all of this needs a file system that passes `flock` on.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from normlab.execute.shards import Shard

LOCK = ".lock"
MANIFEST_LOCK = ".lock-manifest"
# Seconds that a shard waits longer, as another one may be leaving and hold the folder alone to tidy up.
TIDYING = 3.0
# Seconds that a manifest may take to be written: the files of thousands of runs are hashed for it.
MANIFEST_PATIENCE = 600.0
SHOWN = 3


class Held(Exception):
    """Another process writes this folder; `writers` has pid, host and shard of each as far as they are known."""

    def __init__(self, folder: Path, writers: Sequence[Mapping[str, Any]], why: str = "") -> None:
        names = [writer_name(writer) for writer in writers]
        more = [f"{len(names) - SHOWN} more"] if len(names) > SHOWN else []
        who = ", ".join([*names[:SHOWN], *more]) or "another process"
        super().__init__(f"{folder} is being written by {who}{why}")
        self.writers = writers


def writer_name(writer: Mapping[str, Any]) -> str:
    """`process 12 on alpha`, `shard 2/4 (process 12 on alpha)`."""
    if "pid" not in writer:
        return "another process"
    process = f"process {writer['pid']} on {writer['host']}"
    return f"shard {writer['shard']} ({process})" if "shard" in writer else process


@contextmanager
def lease(folder: Path, patience: float = 0.5) -> Iterator[None]:
    """Hold `folder` (which exists) alone for the block; raise `Held` if others hold it for `patience` seconds."""
    with _locked(folder, LOCK, patience, {}):
        yield


@contextmanager
def shard_lease(folder: Path, shard: Shard, patience: float = 0.5) -> Iterator[None]:
    """Hold `folder` together with other shards of as many parts; raise `Held` if a process holds it alone, or if
    another one does the same shard or parts of another number. The last one to leave removes what was left over."""
    shared = _acquire(folder, LOCK, fcntl.LOCK_SH, patience + TIDYING)
    try:
        os.ftruncate(shared, 0)  # Whoever held it alone before, and was killed, does not now.
        with _locked(folder, f".lock-{shard.index}-of-{shard.count}", patience, {"shard": str(shard)}):
            others = [one for one in shards(folder) if not str(one.get("shard", shard)).endswith(f"/{shard.count}")]
            if others:
                raise Held(folder, others, f"; shard {shard} would do some of the same runs")
            yield
    finally:
        os.close(shared)
        _tidy(folder)


def _tidy(folder: Path) -> None:
    """Remove the lock files if nobody is left; what killed shards left too."""
    try:
        with _locked(folder, LOCK, 0.1, {}):
            remove_stale_locks(folder)
    except (Held, OSError):
        pass


def remove_stale_locks(folder: Path) -> None:
    """Remove what killed processes left; only for who holds the folder alone."""
    for path in folder.glob(f"{LOCK}-*"):
        path.unlink(missing_ok=True)


@contextmanager
def changing_manifest(folder: Path) -> Iterator[None]:
    """Nobody else rewrites the manifest during the block."""
    try:
        with _locked(folder, MANIFEST_LOCK, MANIFEST_PATIENCE, {}):
            yield
    except Held as held:
        raise TimeoutError(errno.ETIMEDOUT, f"{held} for too long", str(folder / MANIFEST_LOCK)) from None


@contextmanager
def _locked(folder: Path, name: str, patience: float, facts: Mapping[str, Any]) -> Iterator[None]:
    descriptor = _acquire(folder, name, fcntl.LOCK_EX, patience)
    try:
        text = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), **facts}) + "\n"
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)
        yield
    finally:
        (folder / name).unlink(missing_ok=True)
        os.close(descriptor)


def _acquire(folder: Path, name: str, kind: int, patience: float) -> int:
    deadline = time.monotonic() + patience
    while True:
        descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            if _in_place(descriptor, folder / name):
                return descriptor
        except BlockingIOError:
            # `status` looks for an instant with a shared lock; a real holder outlasts the patience.
            if time.monotonic() > deadline:
                found = _read(descriptor)
                os.close(descriptor)
                raise Held(folder, ([found] if found else []) or shards(folder)) from None
            time.sleep(0.05)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _in_place(descriptor: int, path: Path) -> bool:
    try:
        found = os.fstat(descriptor)
        return found.st_nlink > 0 and os.path.samestat(found, os.stat(path))
    except FileNotFoundError:
        return False
    except OSError as error:  # On NFS: another host has unlinked it.
        if error.errno != errno.ESTALE:
            raise
        return False


def _read(descriptor: int) -> dict[str, Any]:
    try:
        content = json.loads(os.pread(descriptor, 4096, 0))
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def holder(folder: Path) -> dict[str, Any] | None:
    """Pid and host of the live process that holds `folder` alone (empty if it has not said yet), None without one."""
    return _holder(folder / LOCK)


def shards(folder: Path) -> list[dict[str, Any]]:
    """Pid, host and shard of each live process that writes a shard into `folder`, in the order of the shards."""
    found = [_holder(path) for path in folder.glob(f"{LOCK}-*-of-*")]
    return sorted((one for one in found if one is not None), key=lambda one: int(one.get("shard", "0/0").split("/")[0]))


def _holder(path: Path) -> dict[str, Any] | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return _read(descriptor)
    finally:
        os.close(descriptor)
