"""The line to a dask scheduler: tasks go out, and all that happens comes back as messages in one inbox.

A task is pinned to one worker. So a worker that dies costs its own stack only, and no other has its attempts used up
by it; which worker takes what is decided here, not by the scheduler.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Any

from normlab.execute.cluster import connect

# Seconds between two looks at the list of workers; one that comes or goes is told at once besides.
LOOK = 2.0


@dataclass(frozen=True)
class Roster:
    """The workers that the scheduler has, by address, with what it knows of them."""

    workers: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Left:
    """A worker is gone; `expected` if it said that it would go."""

    address: str
    expected: bool


@dataclass(frozen=True)
class Returned:
    """A task has ended, with its value or with an error that is not of its own function's making."""

    key: str
    value: Any
    error: BaseException | None = None


@dataclass(frozen=True)
class Told:
    """A task has said something about its progress."""

    message: Mapping[str, Any]


@dataclass(frozen=True)
class Gone:
    """The scheduler does not answer any more."""


class Line:
    """An open line; `inbox` is filled by dask's thread."""

    def __init__(self, address: str, gpu: bool) -> None:
        self.inbox: SimpleQueue[Roster | Left | Returned | Told | Gone] = SimpleQueue()
        self.client = connect(address)
        assert self.client.loop
        self.loop = self.client.loop
        self.address = address
        self.resources = {"GPU": 1} if gpu else None
        self.topic = f"normlab-{uuid.uuid4().hex}"
        self.futures: dict[str, Any] = {}
        self.joined = asyncio.Event()
        self.client.subscribe_topic(self.topic, lambda event: self.inbox.put(Told(event[1])))
        self.client.subscribe_topic("all", self._on_event)
        self.loop.add_callback(self._look)

    def submit(self, worker: str, function: Callable[..., Any], *arguments: Any, key: str) -> None:
        """Have `worker` call `function` with the arguments; the outcome will come as `Returned`."""
        future = self.client.submit(
            function,
            *arguments,
            key=key,
            workers=[worker],
            allow_other_workers=False,
            resources=self.resources,
            pure=False,
        )
        self.futures[key] = future
        self.loop.add_callback(self._fetch, key, future)

    def drop(self, key: str) -> None:
        """Want the task no more; nothing more is heard of it."""
        if future := self.futures.pop(key, None):
            future.release()

    def restart(self, worker: str) -> None:
        """Have the nanny of `worker`, if it has one, start it afresh; else it stays as it is."""

        def ask() -> None:
            with suppress(Exception):  # ValueError: it has no nanny.
                self.client.restart_workers([worker], raise_for_error=False)

        Thread(target=ask, daemon=True).start()

    def close(self) -> None:
        """End the line; the scheduler takes back what was still to be done."""
        with suppress(TimeoutError, OSError):
            self.client.close(timeout=2)

    async def _fetch(self, key: str, future: Any) -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = await self.client.gather(future, asynchronous=True)
        except (CancelledError, asyncio.CancelledError) as cancelled:
            error = cancelled
        except Exception as fault:
            error = fault
        if self.futures.pop(key, None):
            future.release()
            self.inbox.put(Returned(key, value, error))

    def _on_event(self, event: tuple[float, Mapping[str, Any]]) -> None:
        _, facts = event
        if facts.get("action") == "remove-worker":
            self.inbox.put(Left(facts["worker"], bool(facts.get("expected"))))
        elif facts.get("action") == "add-worker":
            self.joined.set()

    async def _look(self) -> None:
        """Ask for the list of workers for as long as the line is open."""
        scheduler: Any = self.client.scheduler
        while self.client.status == "running":
            try:
                found = await asyncio.wait_for(scheduler.identity(n_workers=-1), 60)
            except (OSError, TimeoutError):
                break
            self.inbox.put(Roster(found["workers"]))
            with suppress(TimeoutError):
                await asyncio.wait_for(self.joined.wait(), LOOK)
            self.joined.clear()
        self.inbox.put(Gone())
