"""The workers of a dask cluster as the client sees them: who is there, who can train, who is left out and why."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from normlab.config.plugins import plugin_digests
from normlab.execute.children import CannotStart
from normlab.execute.dask_line import Line
from normlab.execute.dask_own import Child, OwnCluster
from normlab.execute.dask_task import Greeting, greet, versions
from normlab.execute.stacks import Stack
from normlab.execute.worker import Setup, summary


@dataclass
class Worker:
    """A worker: `key` is the task that it has, `stack` what it trains; without a greeting it is not ready, `refused`
    says why it is not used."""

    address: str
    key: str | None = None
    stack: Stack | None = None
    greeting: Greeting | None = None
    refused: str = ""


class Crew:
    """All workers, by address; `own` is the cluster that we started, if any, `warn` is told what is odd."""

    def __init__(self, setup: Setup, line: Line, own: OwnCluster | None, warn: Callable[[str], None]) -> None:
        self.setup, self.line, self.own, self.warn = setup, line, own, warn
        self.gpu = setup.device != "cpu"
        self.workers: dict[str, Worker] = {}
        self.warned: set[str] = set()

    @property
    def busy(self) -> int:
        """How many have a stack."""
        return sum(worker.stack is not None for worker in self.workers.values())

    def holder(self, key: str) -> Worker | None:
        """Who has the task."""
        return next((worker for worker in self.workers.values() if worker.key == key), None)

    def update(self, found: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Greet who is new on the scheduler's list; returns the addresses that are on it no more."""
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
        return [address for address in self.workers if address not in found]

    def meet(self, worker: Worker, value: Greeting | None, error: BaseException | None) -> None:
        """Take the answer to a greeting; raise `CannotStart` if it leaves no worker that could train."""
        if error is None and value is not None:
            if value.plugins == plugin_digests(self.setup.plugins):
                self._welcome(worker, value)
                return
            worker.refused = "plugins: their source differs from the client's"
        else:
            worker.refused = summary(error) if error else "no answer"
        if all(other.refused for other in self.workers.values()):
            raise CannotStart(f"{worker.address}: {worker.refused}")
        self.warn(f"worker {worker.address} is not used: {worker.refused}")

    def _welcome(self, worker: Worker, greeting: Greeting) -> None:
        worker.greeting = greeting
        if self.own:
            self.own.greeted.add(greeting.pid)
        here = versions(self.setup.engine.fused)
        other = [f"{name} {here[name]} -> {there}" for name, there in greeting.versions.items() if there != here[name]]
        if other:
            self._warn_once(f"workers differ from this process, last digits may too: {', '.join(other)}")

    def _warn_once(self, text: str) -> None:
        if text not in self.warned:
            self.warned.add(text)
            self.warn(text)

    def replace(self, worker: Worker) -> None:
        """Use `worker` no more: its GPU may be in a bad state. One with a nanny, or of our own, comes back afresh."""
        child = self.child(worker)
        worker.greeting, worker.refused = None, "a run crashed on its GPU"
        if child:
            child.process.kill()
        else:
            self.warn(f"worker {worker.address} is not used before it starts afresh: {worker.refused}")
            self.line.restart(worker.address)

    def child(self, worker: Worker) -> Child | None:
        """The process of `worker`, if it is one of ours."""
        greeting = worker.greeting
        return self.own.find(greeting.pid, greeting.host) if self.own and greeting else None
