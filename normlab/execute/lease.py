"""Only one process writes a results folder at a time: a lock that the system drops when its holder dies."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LOCK = ".lock"


class Held(Exception):
    """Another process writes this folder; `holder` has its pid and host as far as they are known."""

    def __init__(self, folder: Path, holder: dict[str, Any]) -> None:
        who = f"process {holder['pid']} on {holder['host']}" if holder else "another process"
        super().__init__(f"{folder} is being written by {who}")
        self.holder = holder


@contextmanager
def lease(folder: Path, patience: float = 0.5) -> Iterator[None]:
    """Hold `folder` (which exists) for the block; raise `Held` if another process does so for `patience` seconds."""
    path = folder / LOCK
    descriptor = _acquire(folder, patience)
    try:
        text = json.dumps({"pid": os.getpid(), "host": socket.gethostname()}) + "\n"
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)
        yield
    finally:
        # Unlinked while held: whoever opened the old file meanwhile sees below that it is no longer the one in place.
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _acquire(folder: Path, patience: float) -> int:
    deadline = time.monotonic() + patience
    while True:
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _in_place(descriptor, folder / LOCK):
                return descriptor
        except BlockingIOError:
            # `status` looks for an instant with a shared lock; a real holder outlasts the patience.
            if time.monotonic() > deadline:
                holder = _read(descriptor)
                os.close(descriptor)
                raise Held(folder, holder) from None
            time.sleep(0.05)
        os.close(descriptor)


def _in_place(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _read(descriptor: int) -> dict[str, Any]:
    try:
        return json.loads(os.pread(descriptor, 4096, 0))
    except ValueError:
        return {}


def holder(folder: Path) -> dict[str, Any] | None:
    """Pid and host of the live process that writes `folder` (empty if it has not said yet), None if there is none."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return _read(descriptor)
    finally:
        os.close(descriptor)
