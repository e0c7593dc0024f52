"""The child process: takes a stack, trains it, publishes its runs, reports.

It ignores Ctrl-C, which the terminal sends to the whole group: the parent decides. It ends when the parent is gone.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from normlab.config.engine import Engine
from normlab.config.schema import RunSpec, Thresholds
from normlab.store import RunRecord, publish

TRAINER = "normlab.train.loop:train_stack"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
REPORT_EVERY = 0.5
PR_SET_PDEATHSIG = 1
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt, from <malloc.h>


@dataclass(frozen=True)
class Setup:
    """What a worker is told once. `trainer` is `module:function` with the signature of `train_stack`."""

    root: Path
    thresholds: Thresholds
    plugins: tuple[str, ...] = ()
    device: str = "cpu"
    facts: tuple[tuple[str, Any], ...] = ()
    trainer: str = TRAINER
    engine: Engine = Engine()


# From worker to parent.
@dataclass(frozen=True)
class Ready:
    """Imports are done; a stack may be sent."""


@dataclass(frozen=True)
class AtStep:
    step: int
    steps: int
    losses: tuple[float, ...]
    alive: tuple[bool, ...]


@dataclass(frozen=True)
class Published:
    id: str
    outcome: str
    loss: float | None
    onset: int | None


@dataclass(frozen=True)
class Crashed:
    """The stack raised; what of it is not published is lost. `leaving`: the worker takes no other stack."""

    reason: str
    text: str
    leaving: bool


@dataclass(frozen=True)
class DiskFull:
    code: int
    text: str
    path: str | None


@dataclass(frozen=True)
class Done:
    """The whole stack is published."""


def load_trainer(name: str) -> Callable[..., list[RunRecord]]:
    """The function that `module:function` names."""
    module, function = name.split(":")
    return getattr(import_module(module), function)


def one_thread() -> None:
    """One torch thread: two give other last digits, and workers would fight for the cores."""
    import torch

    torch.set_num_threads(1)


def keep_freed_memory() -> None:
    """Tell glibc to keep freed blocks: by default it hands large activations back to the kernel, and the next step
    pays for the page faults."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt:
        mallopt(M_MMAP_THRESHOLD, 1 << 30)
        mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)


def main(descriptor: int, parent: int) -> None:
    """Serve the process `parent` through the pipe that is open as `descriptor`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(parent)
    pipe = Connection(descriptor)
    try:
        train = boot(setup := pipe.recv())
        pipe.send(Ready())
        while (specs := pipe.recv()) is not None:
            if not _serve(pipe, setup, train, specs, parent):
                return
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # The parent has gone or wants no more.


def boot(setup: Setup) -> Callable[..., list[RunRecord]]:
    """Import plugins and trainer, set the process up for it, and return the trainer."""
    from normlab.config.plugins import load_plugins

    load_plugins(setup.plugins)
    train = load_trainer(setup.trainer)
    if setup.trainer == TRAINER:
        one_thread()
        keep_freed_memory()
    return train


def _serve(pipe: Connection, setup: Setup, train: Callable[..., Any], specs: Sequence[RunSpec], parent: int) -> bool:
    """Train and publish one stack; False if this process should not take another one."""
    try:
        how = {"thresholds": setup.thresholds, "device": setup.device, "engine": setup.engine}
        records = train(specs, **how, on_progress=_reporter(pipe, parent))
        for record in records:
            with _uninterrupted():
                publish(setup.root, with_facts(record, dict(setup.facts)))
            onset = record.run["onset"]
            loss = record.run["loss"]["final"]
            pipe.send(Published(record.id, record.run["outcome"], loss, onset and onset["step"]))
        pipe.send(Done())
    except (BrokenPipeError, ConnectionResetError):
        return False
    except Exception as error:
        if isinstance(error, OSError) and error.errno in FULL:
            pipe.send(DiskFull(error.errno, error.strerror or "disk full", error.filename and str(error.filename)))
            return False
        pipe.send(crash := crashed(error, setup))
        return not crash.leaving
    return True


def crashed(error: Exception, setup: Setup) -> Crashed:
    """What is told of a stack that raised `error`, which is being handled."""
    # A CUDA error can leave the device's context unusable.
    return Crashed(summary(error), traceback.format_exc(), leaving=setup.device != "cpu")


def summary(error: BaseException) -> str:
    """An error in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def with_facts(record: RunRecord, facts: Mapping[str, Any]) -> RunRecord:
    """The record with `facts` about its circumstances."""
    return RunRecord(record.id, record.run, record.curve, {**record.timing, **facts})


def _reporter(pipe: Connection, parent: int) -> Callable[[Any], None]:
    def check() -> None:
        if os.getppid() != parent:
            os._exit(1)

    def say(progress: Any) -> None:
        pipe.send(AtStep(progress.step, progress.steps, tuple(progress.losses), tuple(progress.alive)))

    return reporter(check, say)


def reporter(check: Callable[[], None], say: Callable[[Any], None]) -> Callable[[Any], None]:
    """What a trainer calls with its progress: `check` may end the training each time, `say` tells twice a second."""
    last = -REPORT_EVERY

    def report(progress: Any) -> None:
        nonlocal last
        check()
        now = time.monotonic()
        if now - last >= REPORT_EVERY or progress.step == progress.steps:
            last = now
            say(progress)

    return report


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let a run that is being published be published; the parent kills a worker that overstays."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def end_with(parent: int) -> None:
    """Let the system end this process as soon as the process `parent` is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
