"""A line to a dask cluster that is not there: its workers answer at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from fakes import quick

from normlab.config.schema import RunSpec
from normlab.execute.dask_line import Left, Returned, Roster, Told
from normlab.execute.dask_task import Greeting, greet, versions

Trainer = Callable[["FakeLine", str, list[RunSpec], str], None]


def facts(gpus: int = 0, threads: int = 1) -> dict[str, Any]:
    """What the scheduler knows of a worker."""
    return {"resources": {"GPU": gpus} if gpus else {}, "nthreads": threads}


class FakeLine:
    """A line whose workers answer at once: to a greeting with `greetings[address]`, to a stack by `trainer`."""

    trainer: Trainer
    roster: dict[str, dict[str, Any]]
    greetings: dict[str, Any]

    def __init__(self, address: str, gpu: bool) -> None:
        self.address, self.topic, self.inbox = address, "topic", SimpleQueue[Any]()
        self.stacks: list[tuple[str, list[int]]] = []
        self.restarted: list[str] = []
        self.dropped: list[str] = []
        self.inbox.put(Roster(dict(self.roster)))

    def submit(self, worker: str, function: Callable[..., Any], *arguments: Any, key: str) -> None:
        if function is greet:
            answer = self.greetings.get(worker, Greeting(1, "host", versions(), {}))
            failed = isinstance(answer, Exception)
            self.inbox.put(Returned(key, None, answer) if failed else Returned(key, answer))
        else:
            specs = arguments[1]
            self.stacks.append((worker, [spec.seed for spec in specs]))
            assert len(self.stacks) < 50, "the same is sent again and again"
            type(self).trainer(self, worker, specs, key)

    def drop(self, key: str) -> None:
        self.dropped.append(key)

    def restart(self, worker: str) -> None:
        self.restarted.append(worker)

    def close(self) -> None: ...


def train(line: FakeLine, worker: str, specs: Sequence[RunSpec], key: str) -> None:
    line.inbox.put(
        Told({"key": key, "step": 5, "steps": 10, "losses": [1.0] * len(specs), "alive": [True] * len(specs)})
    )
    line.inbox.put(Returned(key, quick(specs)))


def lose(line: FakeLine, worker: str, expected: bool) -> None:
    """The worker goes, and another one comes."""
    line.inbox.put(Left(worker, expected))
    line.inbox.put(Roster({f"{worker}'": facts()}))
