"""A dask cluster of our own: scheduler and workers are child processes that end with this one.

All of them listen on the loopback interface only; the scheduler alone elsewhere where that is asked for.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from normlab.execute.children import CannotStart, death, last_words, spawn
from normlab.execute.cluster import LOOPBACK, SchedulerLost

# The process ends with its parent, whatever ends that.
PROGRAM = (
    "from normlab.execute.worker import end_with; end_with(int(sys.argv[1]));"
    "from distributed.cli.{0} import main; main(sys.argv[2:])"
)
# dask samples what a worker does every 10 ms and looks at its event loop every 20 ms; each time the training waits.
CALM = {"DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False", "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s"}
# Seconds: a worker that finds no scheduler ends; a scheduler that has had nothing to do for so long ends, for systems
# that do not end it with its parent.
DEATH_TIMEOUT, IDLE_TIMEOUT = 60, 3600


@dataclass
class Child:
    """A process of ours, and the file that collects what it prints."""

    process: subprocess.Popen[bytes]
    said: IO[bytes]

    def words(self) -> str:
        """The end of what it printed."""
        return last_words(self.said)

    def end(self, seconds: float = 2.0) -> str:
        """How it ended, in words; it gets so many seconds for it."""
        try:
            return death(self.process.wait(seconds))
        except subprocess.TimeoutExpired:
            return "lost its connection"


class OwnCluster:
    """Scheduler and `size` workers; `gpu` has each offer one GPU. `place` is where the scheduler listens."""

    def __init__(self, size: int, place: tuple[str, int], gpu: bool) -> None:
        self.size, self.gpu = size, gpu
        self.folder = tempfile.TemporaryDirectory(prefix="normlab-", ignore_cleanup_errors=True)
        self.file = Path(self.folder.name) / "scheduler.json"
        self.workers: dict[int, Child] = {}
        self.ended: dict[int, Child] = {}
        self.greeted: set[int] = set()
        host, port = place
        self.scheduler = self._spawn(
            "dask_scheduler",
            [f"--host={host}", f"--port={port}", f"--dashboard-address={LOOPBACK}:0"]
            + [f"--scheduler-file={self.file}", f"--idle-timeout={IDLE_TIMEOUT}"],
        )

    def address(self) -> str | None:
        """The scheduler's address; None while it starts, `CannotStart` if it has ended."""
        if self.scheduler.process.poll() is not None:
            raise CannotStart(self.scheduler.words() or f"the scheduler {self.scheduler.end()}")
        try:
            return str(json.loads(self.file.read_text())["address"])
        except (OSError, ValueError):
            return None

    def tend(self, wanted: int) -> None:
        """Start workers so that `wanted`, `size` at most, are alive; raise `CannotStart` if one ended before it could
        take a stack, `SchedulerLost` if the scheduler has ended."""
        if self.scheduler.process.poll() is not None:
            raise SchedulerLost(f"the scheduler {self.scheduler.end()}")
        for pid, child in list(self.workers.items()):
            if child.process.poll() is not None:
                if pid not in self.greeted:
                    raise CannotStart(child.words() or child.end())
                self.ended[pid] = self.workers.pop(pid)
        for _ in range(min(wanted, self.size) - len(self.workers)):
            child = self._spawn("dask_worker", self._worker_options())
            self.workers[child.process.pid] = child

    def _worker_options(self) -> list[str]:
        options = [f"--scheduler-file={self.file}", "--no-nanny", "--nthreads=1", "--memory-limit=0"]
        options += [f"--host={LOOPBACK}", f"--dashboard-address={LOOPBACK}:0", f"--death-timeout={DEATH_TIMEOUT}"]
        return [*options, f"--local-directory={self.folder.name}", *(["--resources=GPU=1"] if self.gpu else [])]

    def find(self, pid: int, host: str) -> Child | None:
        """The child with that pid, if it is one of ours."""
        return (self.workers | self.ended).get(pid) if host == socket.gethostname() else None

    def _spawn(self, program: str, options: Sequence[str]) -> Child:
        said = tempfile.TemporaryFile()
        return Child(spawn(PROGRAM.format(program), [str(os.getpid()), *options], said, environment=CALM), said)

    def kill(self) -> None:
        """End all of them at once: they hold nothing that could be lost."""
        for child in [*self.workers.values(), self.scheduler]:
            child.process.kill()

    def close(self) -> None:
        """End all of them and remove what they wrote."""
        self.kill()
        for child in [*self.workers.values(), self.scheduler]:
            child.process.wait()
        for child in [*self.workers.values(), *self.ended.values(), self.scheduler]:
            child.said.close()
        self.folder.cleanup()
