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
from dataclasses import dataclass
from queue import Empty
from types import TracebackType
from typing import Any

from normlab.config.plan import PlannedRun
from normlab.config.plugins import plugin_digests
from normlab.execute.cluster import Cluster, SchedulerLost, need_dask
from normlab.execute.dask_line import Gone, Left, Line, Returned, Roster, Told
from normlab.execute.dask_own import Child, OwnCluster
from normlab.execute.dask_task import Greeting, greet, train_stack, versions
from normlab.execute.events import Advanced, Event, Failed, Finished, Retried, Started
from normlab.execute.local import CannotStart
from normlab.execute.signals import Interrupts
from normlab.execute.stacks import Stack
from normlab.execute.worker import Crashed, Setup
from normlab.store import RunRecord, publish, publish_failure, read_run

# Seconds between two looks at signals and at our own workers.
WAIT = 0.2


@dataclass
class Worker:
    """A worker as the client sees it: `key` is the task that it has; without a greeting it is not ready, `refused`
    says why it is not used."""

    address: str
    key: str | None = None
    greeting: Greeting | None = None
    refused: str = ""
    stack: Stack | None = None


class DaskPool:
    """Runs stacks on a dask cluster, one of its own with `size` workers or another; `warn` is told what is odd."""

    def __init__(
        self, setup: Setup, size: int, interrupts: Interrupts, cluster: Cluster, warn: Callable[[str], None]
    ) -> None:
        self.setup, self.size, self.interrupts, self.cluster, self.warn = setup, size, interrupts, cluster, warn
        self.gpu = setup.device != "cpu"
        self.own: OwnCluster | None = None
        self.workers: dict[str, Worker] = {}
        self.queue: deque[Stack] = deque()
        self.warned: set[str] = set()

    def __enter__(self) -> DaskPool:
        need_dask()
        if self.cluster.own:
            self.own = OwnCluster(self.size, self.cluster.place(), self.gpu)
            self.interrupts.on_second = self.own.kill
        try:
            self.line = Line(self.own.address() if self.own else self.cluster.address(), self.gpu)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.line.close()
        self._close()

    def _close(self) -> None:
        if self.own:
            self.own.close()

    def events(self, stacks: Iterable[Stack]) -> Iterator[Event]:
        """Run everything; raise `Stopped` on a signal, OSError on a full disk, `CannotStart`, `SchedulerLost`."""
        self.queue.extend(stacks)
        while self.queue or any(worker.stack for worker in self.workers.values()):
            self.interrupts.check()
            yield from self._fill()
            if self.own:
                busy = sum(worker.stack is not None for worker in self.workers.values())
                self.own.tend(busy + len(self.queue))
            try:
                message = self.line.inbox.get(timeout=WAIT)
            except Empty:
                continue
            yield from self._hear(message)

    def _fill(self) -> Iterator[Event]:
        for worker in self.workers.values():
            while self.queue and worker.greeting and worker.key is None:
                stack = self.queue.popleft()
                there = [run for run in stack.runs if self._exists(run)]
                for run in there:
                    yield self._finished(read_run(self.setup.root / "runs" / run.id))
                if left := tuple(run for run in stack.runs if run not in there):
                    worker.stack = Stack(left, stack.attempt)
                    worker.key = f"stack-{uuid.uuid4().hex}"
                    specs = [run.spec for run in left]
                    self.line.submit(
                        worker.address, train_stack, self.setup, specs, worker.key, self.line.topic, key=worker.key
                    )
                    yield Started(tuple(run.id for run in left))

    def _exists(self, run: PlannedRun) -> bool:
        return (self.setup.root / "runs" / run.id / "run.json").is_file()

    @staticmethod
    def _finished(run: Any) -> Finished:
        return Finished(run["id"], run["outcome"], run["loss"]["final"], run["onset"] and run["onset"]["step"])

    def _hear(self, message: Roster | Left | Returned | Told | Gone) -> Iterator[Event]:
        match message:
            case Roster(workers):
                yield from self._compare(workers)
            case Left(address, expected):
                yield from self._bury(address, expected)
            case Told(said):
                if (worker := self._holder(said["key"])) and worker.stack:
                    ids = tuple(run.id for run in worker.stack.runs)
                    yield Advanced(ids, said["step"], said["steps"], tuple(said["losses"]), tuple(said["alive"]))
            case Returned(key, value, error):
                if worker := self._holder(key):
                    yield from self._take(worker, value, error)
            case Gone():
                self._lost_scheduler()

    def _holder(self, key: str) -> Worker | None:
        return next((worker for worker in self.workers.values() if worker.key == key), None)

    def _lost_scheduler(self) -> None:
        # A signal to the whole group reaches us too, perhaps a moment later.
        time.sleep(WAIT)
        self.interrupts.check()
        raise SchedulerLost(f"lost the scheduler at {self.line.address}")

    def _compare(self, found: Any) -> Iterator[Event]:
        for address in self.workers.keys() - found.keys():
            yield from self._bury(address, expected=False)
        fitting = [a for a, facts in found.items() if not self.gpu or facts["resources"].get("GPU", 0) >= 1]
        for address in fitting:
            if address not in self.workers:
                self.workers[address] = worker = Worker(address, key=f"greet-{uuid.uuid4().hex}")
                self.line.submit(address, greet, self.setup, key=str(worker.key))
            if (threads := found[address]["nthreads"]) > 1:
                self._warn_once(f"worker {address} has {threads} threads and uses one: start workers with --nthreads 1")
        if not fitting and not self.own:
            lacking = "no worker that offers a GPU (--resources GPU=1)" if found else "no worker"
            self._warn_once(f"{lacking} at {self.line.address} now: waiting for one")

    def _warn_once(self, text: str) -> None:
        if text not in self.warned:
            self.warned.add(text)
            self.warn(text)

    def _take(self, worker: Worker, value: Any, error: BaseException | None) -> Iterator[Event]:
        """A task of `worker` has ended."""
        stack, worker.key, worker.stack = worker.stack, None, None
        if error is not None and _is_cancelled(error):
            self._lost_scheduler()
        if stack is None:
            self._meet(worker, value, error)
        elif error is not None and type(error).__name__ in ("KilledWorker", "NoValidWorkerError"):
            yield from self._lose(stack, f"worker {worker.address} died", "", died=True)
        elif error is not None:
            yield from self._lose(stack, _summary(error), _summary(error), died=False)
        elif isinstance(value, Crashed):
            yield from self._lose(stack, value.reason, value.text, died=False)
            if value.leaving:
                self._replace(worker)
        elif value is None:
            self.queue.appendleft(stack)
            yield Retried(tuple(run.id for run in stack.runs), f"worker {worker.address} gave up", alone=False)
        else:
            yield from self._publish(value)

    def _publish(self, records: list[RunRecord]) -> Iterator[Event]:
        for record in records:
            publish(self.setup.root, record)
            yield self._finished(record.run)

    def _meet(self, worker: Worker, value: Greeting | None, error: BaseException | None) -> None:
        if error is None and value is not None:
            if value.plugins == plugin_digests(self.setup.plugins):
                self._welcome(worker, value)
                return
            worker.refused = "plugins: their source differs from the client's"
        else:
            worker.refused = _summary(error) if error else "no answer"
        if all(other.refused for other in self.workers.values()):
            raise CannotStart(f"{worker.address}: {worker.refused}")
        self.warn(f"worker {worker.address} is not used: {worker.refused}")

    def _welcome(self, worker: Worker, greeting: Greeting) -> None:
        worker.greeting = greeting
        if self.own:
            self.own.greeted.add(greeting.pid)
        here = versions()
        other = [f"{name} {here[name]} -> {there}" for name, there in greeting.versions.items() if there != here[name]]
        if other:
            self._warn_once(f"workers differ from this process, last digits may too: {', '.join(other)}")

    def _replace(self, worker: Worker) -> None:
        """Use `worker` no more: its GPU may be in a bad state. One with a nanny, or of our own, comes back afresh."""
        greeting, worker.greeting, worker.refused = worker.greeting, None, "a run crashed on its GPU"
        if child := self._child(greeting):
            child.process.kill()
        else:
            self.warn(f"worker {worker.address} is not used before it starts afresh: {worker.refused}")
            self.line.restart(worker.address)

    def _bury(self, address: str, expected: bool) -> Iterator[Event]:
        worker = self.workers.pop(address, None)
        if worker is None or worker.key is None:
            return
        self.line.drop(worker.key)
        if worker.stack is None:
            return
        time.sleep(WAIT)
        self.interrupts.check()
        ids = tuple(run.id for run in worker.stack.runs)
        if expected:
            self.queue.appendleft(worker.stack)
            yield Retried(ids, f"worker {address} left", alone=False)
            return
        greeting = worker.greeting
        assert greeting
        if child := self._child(greeting):
            yield from self._lose(worker.stack, f"worker {child.end()}", child.words(), died=True)
        else:
            where = f"process {greeting.pid} on {greeting.host}; what it said is in its own log"
            yield from self._lose(worker.stack, f"worker {address} died", where, died=True)

    def _child(self, greeting: Greeting | None) -> Child | None:
        return self.own.find(greeting.pid, greeting.host) if self.own and greeting else None

    def _lose(self, stack: Stack, reason: str, text: str, died: bool) -> Iterator[Event]:
        if again := stack.retries(stack.runs, died):
            self.queue.extend(again)
            yield Retried(tuple(run.id for run in stack.runs), reason)
            return
        for run in stack.runs:
            publish_failure(self.setup.root, run.id, f"{reason}\n\nrun: {run.label}\n\n{text}\n")
            yield Failed(run.id, reason)


def _is_cancelled(error: BaseException) -> bool:
    return any(kind.__name__ in ("CancelledError", "FutureCancelledError") for kind in type(error).__mro__)


def _summary(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
