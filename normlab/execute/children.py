"""Child processes that train: how they are started, what is kept of them, and the runs that one loses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from normlab.config.plan import PlannedRun
from normlab.execute.events import Event, Failed, Retried
from normlab.execute.stacks import Stack
from normlab.store import publish_failure

# The child looks for modules where this process does: a `random.py` in the user's folder must not be imported.
_PATH = "import sys, json; sys.path[:] = json.loads(sys.argv.pop(1));"
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class CannotStart(RuntimeError):
    """A worker ended before it could take a stack; the text is what it said."""


def spawn(
    program: str,
    arguments: Sequence[str],
    said: IO[bytes],
    pipes: Sequence[int] = (),
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start Python afresh (never forked), one thread a library, on the code `program`, whose `sys.argv[1:]` are the
    `arguments`. It inherits the file descriptors `pipes`; what it prints goes into `said`."""
    # The blocked mask is inherited: a Ctrl-C, which is for this process to act on, would print the child's traceback.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-X", "faulthandler", "-c", _PATH + program, json.dumps(sys.path), *arguments],
            pass_fds=pipes,
            env={**os.environ, **_ONE_THREAD, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def last_words(said: IO[bytes]) -> str:
    """The end of what a child printed."""
    said.seek(max(0, said.seek(0, os.SEEK_END) - 20_000))
    return said.read().decode(errors="replace").strip()


def death(code: int) -> str:
    """`died (signal 9)`, `died (exit code 3)`."""
    return f"died (signal {-code})" if code < 0 else f"died (exit code {code})"


def lose(
    root: Path, queue: deque[Stack], stack: Stack, lost: Sequence[PlannedRun], reason: str, text: str, died: bool
) -> Iterator[Event]:
    """What becomes of the runs that were lost with a stack: they are tried once more, each alone, so that the guilty
    one is found; one that was lost alone is recorded as failed, with `text` as the traceback or last words."""
    if again := stack.retries(lost, died):
        queue.extend(again)
        yield Retried(tuple(run.id for run in lost), reason)
        return
    for run in lost:
        publish_failure(root, run.id, f"{reason}\n\nrun: {run.label}\n\n{text}\n")
        yield Failed(run.id, reason)
