"""The dask executor: the same stacks on the workers of a dask cluster, which hand their records back; the client alone
publishes, so that workers need no results folder.

A worker that dies costs only its stack. As with the local executor the runs are tried once more, each alone, and a run
that kills its worker alone too is recorded as failed. A worker that leaves on purpose is nobody's fault.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from queue import Empty
from types import TracebackType
from typing import Any

from normlab.config.plan import PlannedRun
from normlab.execute.children import lose
from normlab.execute.cluster import LOOPBACK, Cluster, SchedulerLost, need_dask
from normlab.execute.dask_crew import Crew, Worker
from normlab.execute.dask_line import Gone, Left, Line, Returned, Roster, Told
from normlab.execute.dask_own import OwnCluster
from normlab.execute.dask_task import train_stack
from normlab.execute.events import Advanced, Event, Finished, Retried, Started
from normlab.execute.signals import Interrupts
from normlab.execute.stacks import Stack
from normlab.execute.worker import Crashed, Setup, summary
from normlab.store import publish, read_run

# Seconds between two looks at signals and at our own workers.
WAIT = 0.2


class DaskPool:
    """Runs stacks on a dask cluster, one of its own with `size` workers or another; `warn` is told what is odd."""

    def __init__(
        self, setup: Setup, size: int, interrupts: Interrupts, cluster: Cluster, warn: Callable[[str], None]
    ) -> None:
        self.setup, self.size, self.interrupts, self.cluster, self.warn = setup, size, interrupts, cluster, warn
        self.own: OwnCluster | None = None
        self.queue: deque[Stack] = deque()

    def __enter__(self) -> DaskPool:
        need_dask()
        gpu = self.setup.device != "cpu"
        if self.cluster.own:
            self.own = OwnCluster(self.size, self.cluster.place(), gpu)
            self.interrupts.on_second = self.own.kill
        try:
            self.line = Line(self._address(), gpu)
        except BaseException:
            self._close()
            raise
        self.crew = Crew(self.setup, self.line, self.own, self.warn)
        if self.own and self.cluster.listen != LOOPBACK:
            self.warn(f"the scheduler listens at {self.line.address}: whoever reaches it can run code as you")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.line.close()
        self._close()

    def _address(self) -> str:
        if not self.own:
            return self.cluster.address()
        self.own.tend(self.size)
        while (address := self.own.address()) is None:
            self.interrupts.check()
            time.sleep(0.02)
        return address

    def _close(self) -> None:
        if self.own:
            self.own.close()

    def events(self, stacks: Iterable[Stack]) -> Iterator[Event]:
        """Run everything; raise `Stopped` on a signal, OSError on a full disk, `CannotStart`, `SchedulerLost`."""
        self.queue.extend(stacks)
        while self.queue or self.crew.busy:
            self.interrupts.check()
            yield from self._fill()
            if self.own:
                self.own.tend(self.crew.busy + len(self.queue))
            try:
                message = self.line.inbox.get(timeout=WAIT)
            except Empty:
                continue
            yield from self._hear(message)

    def _fill(self) -> Iterator[Event]:
        for worker in self.crew.workers.values():
            while self.queue and worker.greeting and worker.key is None:
                stack = self.queue.popleft()
                there = [run for run in stack.runs if self._exists(run)]
                for run in there:
                    yield _finished(read_run(self.setup.root / "runs" / run.id))
                if left := tuple(run for run in stack.runs if run not in there):
                    self._send(worker, Stack(left, stack.attempt))
                    yield Started(tuple(run.id for run in left))

    def _exists(self, run: PlannedRun) -> bool:
        """Whether somebody has published it meanwhile."""
        return (self.setup.root / "runs" / run.id / "run.json").is_file()

    def _send(self, worker: Worker, stack: Stack) -> None:
        worker.stack, worker.key = stack, f"stack-{uuid.uuid4().hex}"
        specs = [run.spec for run in stack.runs]
        self.line.submit(worker.address, train_stack, self.setup, specs, worker.key, self.line.topic, key=worker.key)

    def _hear(self, message: Roster | Left | Returned | Told | Gone) -> Iterator[Event]:
        match message:
            case Roster(workers):
                for address in self.crew.update(workers):
                    yield from self._bury(address, expected=False)
            case Left(address, expected):
                yield from self._bury(address, expected)
            case Told(said):
                if (worker := self.crew.holder(said["key"])) and worker.stack:
                    ids = tuple(run.id for run in worker.stack.runs)
                    yield Advanced(ids, said["step"], said["steps"], tuple(said["losses"]), tuple(said["alive"]))
            case Returned(key, value, error):
                if worker := self.crew.holder(key):
                    yield from self._take(worker, value, error)
            case Gone():
                self._lost_scheduler()

    def _lost_scheduler(self) -> None:
        # A signal to the whole group reaches us too, perhaps a moment later.
        time.sleep(WAIT)
        self.interrupts.check()
        raise SchedulerLost(f"lost the scheduler at {self.line.address}")

    def _take(self, worker: Worker, value: Any, error: BaseException | None) -> Iterator[Event]:
        """A task of `worker` has ended."""
        stack, worker.key, worker.stack = worker.stack, None, None
        if error is not None and _is(error, "CancelledError"):
            self._lost_scheduler()
        if stack is None:
            self.crew.meet(worker, value, error)
        elif error is not None and _is(error, "KilledWorker", "NoValidWorkerError"):
            del self.crew.workers[worker.address]
            yield from self._lose(stack, f"worker {worker.address} died", "", died=True)
        elif error is not None:
            yield from self._lose(stack, summary(error), summary(error), died=False)
        elif isinstance(value, Crashed):
            yield from self._lose(stack, value.reason, value.text, died=False)
            if value.leaving:
                self.crew.replace(worker)
        elif value is None:
            yield self._put_back(stack, f"worker {worker.address} gave up")
        else:
            for record in value:
                publish(self.setup.root, record)
                yield _finished(record.run)

    def _put_back(self, stack: Stack, reason: str) -> Retried:
        self.queue.appendleft(stack)
        return Retried(tuple(run.id for run in stack.runs), reason, alone=False)

    def _bury(self, address: str, expected: bool) -> Iterator[Event]:
        worker = self.crew.workers.pop(address, None)
        if worker is None or worker.key is None:
            return
        self.line.drop(worker.key)
        if worker.stack is None:
            return
        time.sleep(WAIT)
        self.interrupts.check()
        if expected:
            yield self._put_back(worker.stack, f"worker {address} left")
        elif child := self.crew.child(worker):
            yield from self._lose(worker.stack, f"worker {child.end()}", child.words(), died=True)
        else:
            assert worker.greeting
            where = f"process {worker.greeting.pid} on {worker.greeting.host}; what it said is in its own log"
            yield from self._lose(worker.stack, f"worker {address} died", where, died=True)

    def _lose(self, stack: Stack, reason: str, text: str, died: bool) -> Iterator[Event]:
        yield from lose(self.setup.root, self.queue, stack, stack.runs, reason, text, died)


def _finished(run: Any) -> Finished:
    return Finished(run["id"], run["outcome"], run["loss"]["final"], run["onset"] and run["onset"]["step"])


def _is(error: BaseException, *names: str) -> bool:
    """Whether an error is of one of the kinds, by name: dask's own are not imported here."""
    return any(kind.__name__ in names for kind in type(error).__mro__)
