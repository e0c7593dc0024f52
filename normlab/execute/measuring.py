"""One measure of a reproduction: a process of its own, so that its threads and its memory touch nothing else."""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from normlab.execute.events import Event, Failed, Measured, Started, Waited
from normlab.execute.local import GRACE
from normlab.execute.parts import Measuring
from normlab.execute.signals import Interrupts
from normlab.execute.worker import PR_SET_PDEATHSIG
from normlab.measures import Measure, read_measure
from normlab.store import publish_failure

# Seconds between two looks at the process.
LOOK_EVERY = 0.5
# A measure that takes longer than thought counts as this much done: some more time is to be expected.
OVERDUE = 0.9
# Lines of what a failed measure said that are told at once; the rest lies in its error.txt.
TOLD = 3
WRITTEN = ("measure.json", "tables/*.csv", "tables/*.md", "tables/*.tex", "figures/*.svg", "figures/*.png")


def done(part: Measuring, folder: Path) -> bool:
    """Whether `folder` holds this measure already, shortened if and only if it should be."""
    found = last(folder)
    return found is not None and (found.name, bool(found.quick)) == (part.name, part.quick)


def last(folder: Path) -> Measure | None:
    """The measure in `folder`, None if there is none that can be read."""
    try:
        return read_measure(folder)
    except ValueError:
        return None


def clear_measure(folder: Path) -> None:
    """Delete what a measure wrote in `folder`, or had half written when it was killed."""
    for pattern in (*WRITTEN, ".tmp-*", "*/.tmp-*"):
        for path in folder.glob(pattern):
            path.unlink()
    for inner in (folder / "tables", folder / "figures"):
        if inner.is_dir() and not any(inner.iterdir()):
            inner.rmdir()


def measure(part: Measuring, root: Path, interrupts: Interrupts, see: Callable[[Event], None]) -> bool:
    """Measure into `root/studies/<name>`; False if it failed (`root/failed/<name>/error.txt` then says why).

    Raise `Stopped` on a signal, after the process and its children have been ended."""
    folder, begun = root / "studies" / part.name, time.monotonic()
    clear_measure(folder)
    see(Started((part.name,)))

    def wait(process: subprocess.Popen[bytes]) -> int:
        while process.poll() is None:
            select.select([interrupts.fileno()], [], [], LOOK_EVERY)
            interrupts.check()
            see(Waited(part.name, min(OVERDUE, (time.monotonic() - begun) / max(part.seconds, 1e-9))))
        return process.returncode

    with tempfile.TemporaryFile() as said:
        code = _run(part.words(folder), said, interrupts, wait)
        interrupts.check()
        if code == 0 and done(part, folder):
            shutil.rmtree(root / "failed" / part.name, ignore_errors=True)
            see(Measured(part.name, time.monotonic() - begun))
            return True
        said.seek(0)
        words = said.read().decode(errors="replace").strip()
    reason = f"signal {-code}" if code < 0 else f"exit code {code}" if code else "it ended without a measure.json"
    publish_failure(root, part.name, f"{reason}\n\ncommand: {part.command}\n\n{words}\n")
    see(Failed(part.name, ": ".join([reason, *words.splitlines()[-TOLD:]])))
    return False


def _run(
    words: list[str], said: IO[bytes], interrupts: Interrupts, wait: Callable[[subprocess.Popen[bytes]], int]
) -> int:
    # A group of its own: Ctrl-C reaches us alone, and we end the whole group.
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=said,
        start_new_session=True,
        preexec_fn=_end_with_parent if sys.platform == "linux" else None,
    )
    earlier, interrupts.on_second = interrupts.on_second, lambda: _signal(process, signal.SIGKILL)
    try:
        return wait(process)
    finally:
        if process.poll() is None:
            _signal(process, signal.SIGTERM)
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                pass
        _signal(process, signal.SIGKILL)  # Whoever of its group is left.
        process.wait()
        interrupts.on_second = earlier


def _signal(process: subprocess.Popen[bytes], signum: int) -> None:
    try:
        os.killpg(process.pid, signum)
    except ProcessLookupError:
        pass


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
