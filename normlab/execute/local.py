"""The local executor: a small pool of one-thread worker processes, each started afresh (never forked).

A worker that dies costs only its runs. They are tried once more, each alone, so that the guilty one is found and its
neighbours are not blamed; a run that fails alone is recorded as failed and the sweep goes on.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from types import TracebackType
from typing import IO, Any

from normlab.execute.children import CannotStart, death, last_words, lose, spawn
from normlab.execute.events import Advanced, Event, Finished, Started
from normlab.execute.signals import STOPPING, Interrupts
from normlab.execute.stacks import Stack
from normlab.execute.worker import AtStep, Crashed, DiskFull, Done, Published, Ready, Setup

WORKER = "from normlab.execute.worker import main; main(int(sys.argv[1]), int(sys.argv[2]))"
# Seconds that a worker gets between SIGTERM and SIGKILL, enough to finish publishing a run.
GRACE = 2.0


@dataclass
class Worker:
    """The parent's end of a worker. `said` collects what it prints; `left` are the runs it has not published yet."""

    process: subprocess.Popen[bytes]
    pipe: Connection
    said: IO[bytes]
    ready: bool = False
    stack: Stack | None = None
    left: list[str] = field(default_factory=list)


class Pool:
    """Runs stacks on `size` workers; a context manager that leaves no child behind."""

    def __init__(self, setup: Setup, size: int, interrupts: Interrupts) -> None:
        self.setup, self.size, self.interrupts = setup, size, interrupts
        self.workers: list[Worker] = []
        self.queue: deque[Stack] = deque()

    def __enter__(self) -> Pool:
        self.interrupts.on_second = self._kill
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._close()

    def events(self, stacks: Iterable[Stack]) -> Iterator[Event]:
        """Run everything; raise `Stopped` on a signal, OSError on a full disk, `CannotStart`."""
        self.queue.extend(stacks)
        while self.queue or any(worker.stack for worker in self.workers):
            self.interrupts.check()
            yield from self._fill()
            pipes = {worker.pipe: worker for worker in self.workers}
            for ready in wait([self.interrupts.fileno(), *pipes]):
                if isinstance(ready, Connection):
                    yield from self._hear(pipes[ready])

    def _fill(self) -> Iterator[Event]:
        for worker in self.workers:
            if self.queue and worker.ready and worker.stack is None:
                worker.stack = stack = self.queue.popleft()
                worker.left = [run.id for run in stack.runs]
                try:
                    worker.pipe.send([run.spec for run in stack.runs])
                except OSError:
                    pass  # It has died; its end of the pipe will say so.
                yield Started(tuple(worker.left))
        starting = sum(not worker.ready for worker in self.workers)
        for _ in range(min(self.size - len(self.workers), len(self.queue) - starting)):
            self.workers.append(self._spawn())

    def _spawn(self) -> Worker:
        ours, theirs = Pipe()
        said = tempfile.TemporaryFile()
        process = spawn(WORKER, [str(theirs.fileno()), str(os.getpid())], said, [theirs.fileno()])
        theirs.close()
        worker = Worker(process, ours, said)
        try:
            ours.send(self.setup)
        except OSError:
            pass
        return worker

    def _hear(self, worker: Worker) -> Iterator[Event]:
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            yield from self._bury(worker)
            return
        if isinstance(message, Ready):
            worker.ready = True
        elif isinstance(message, Done):
            worker.stack = None
        elif isinstance(message, DiskFull):
            raise OSError(message.code, message.text, message.path)
        elif isinstance(message, Crashed):
            yield from self._lose(worker, message.reason, message.text, died=False)
            if message.leaving:
                self.workers.remove(worker)
                self._end(worker)
        else:
            yield self._report(worker, message)

    def _report(self, worker: Worker, message: Any) -> Event:
        if isinstance(message, Published):
            worker.left.remove(message.id)
            return Finished(message.id, message.outcome, message.loss, message.onset)
        assert isinstance(message, AtStep) and worker.stack
        ids = tuple(run.id for run in worker.stack.runs)
        return Advanced(ids, message.step, message.steps, message.losses, message.alive)

    def _bury(self, worker: Worker) -> Iterator[Event]:
        """A worker's pipe has closed: it died, or it left because it should not go on."""
        self.workers.remove(worker)
        code = self._end(worker)
        words = last_words(worker.said)
        worker.said.close()
        if not worker.ready:
            raise CannotStart(words or f"exit code {code}")
        if -code in STOPPING:
            # A signal to the whole group reaches us too, perhaps a moment later: then it is not the run's fault.
            time.sleep(0.2)
            self.interrupts.check()
        if worker.stack:
            yield from self._lose(worker, f"worker {death(code)}", words, died=True)

    def _lose(self, worker: Worker, reason: str, text: str, died: bool) -> Iterator[Event]:
        stack, worker.stack = worker.stack, None
        assert stack
        lost = [run for run in stack.runs if run.id in worker.left]
        yield from lose(self.setup.root, self.queue, stack, lost, reason, text, died)

    def _end(self, worker: Worker) -> int:
        """Exit code of a worker that is leaving by itself, or is made to."""
        worker.pipe.close()
        try:
            return worker.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            worker.process.kill()
            return worker.process.wait()

    def _kill(self) -> None:
        for worker in self.workers:
            worker.process.kill()

    def _close(self) -> None:
        for worker in self.workers:
            worker.process.terminate()
            worker.pipe.close()
        deadline = time.monotonic() + GRACE
        for worker in self.workers:
            try:
                worker.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            worker.said.close()
        self.workers.clear()
