"""Processes that do the same work at the same time, and how many steps they do in a window that all of them share."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from bench.sizes import Recipe

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
WARM_UP = 3  # steps before the first window of a recipe; one before each later window
LEAD = 0.02  # seconds between the word to start and the start, so that nobody is late


class CannotRun(RuntimeError):
    """A process could not do what it was asked; the text is the last line of its error."""


@dataclass(frozen=True)
class Failure:
    """What a process answers then."""

    line: str
    text: str


@dataclass
class Member:
    """A process's own side: its end of the pipe and what it has built."""

    pipe: Connection
    works: dict[Recipe, Any] = field(default_factory=dict)

    def work(self, recipe: Recipe) -> Any:
        """The recipe's work, warmed up."""
        from bench.work import make

        steps = 1
        if recipe not in self.works:
            self.works[recipe], steps = make(recipe), WARM_UP
        for _ in range(steps):
            self.works[recipe].step()
        return self.works[recipe]


def window(member: Member, recipe: Recipe, seconds: float) -> list[float]:
    """When each step ended, by the clock that all processes share, until the window is over."""
    work = member.work(recipe)
    member.pipe.send(None)
    start = member.pipe.recv()
    if start is None:
        return []
    time.sleep(max(0.0, start - time.monotonic()))
    ends: list[float] = []
    while not ends or ends[-1] < start + seconds:
        work.step()
        ends.append(time.monotonic())
    return ends


def fastest(member: Member, recipe: Recipe) -> float:
    """Seconds of the shortest step so far of a matrix product."""
    return member.works[recipe].fastest


def default_threads(member: Member) -> int:
    """Threads that torch takes in this process."""
    import torch

    return torch.get_num_threads()


def serve(pipe: Connection, as_worker: bool, limit: int | None) -> None:
    """A process of a crew: do what comes through the pipe until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch

    from normlab.execute.worker import keep_freed_memory, summary

    if limit:
        torch.set_num_threads(limit)
    if as_worker:
        keep_freed_memory()
    member = Member(pipe)
    try:
        while (message := pipe.recv()) is not None:
            function, arguments = message
            try:
                answer = function(member, *arguments)
            except Exception as error:
                answer = Failure(summary(error), traceback.format_exc())
            pipe.send(answer)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass


class Crew:
    """`size` fresh processes; a context manager. `as_worker` sets them up as normlab sets up its workers; `limit` is
    the number of threads of each, None what torch takes by itself, whatever the environment says."""

    def __init__(self, size: int, as_worker: bool, limit: int | None = 1) -> None:
        context = get_context("spawn")
        self.processes, self.pipes = [], []
        with environment({name: None if limit is None else str(limit) for name in THREAD_VARIABLES}):
            for _ in range(size):
                ours, theirs = context.Pipe()
                process = context.Process(target=serve, args=(theirs, as_worker, limit), daemon=True)
                process.start()
                theirs.close()
                self.processes.append(process)
                self.pipes.append(ours)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.join(2.0)
            if process.is_alive():
                process.kill()
                process.join()

    def call(self, function: Callable[..., Any], *arguments: Any, members: int | None = None) -> list[Any]:
        """What `function(member, *arguments)` gives in each of the first `members` processes, all at once."""
        pipes = self.pipes[:members]
        for pipe in pipes:
            pipe.send((function, arguments))
        return checked([receive(pipe) for pipe in pipes])

    def rate(self, recipe: Recipe, seconds: float, members: int | None = None) -> float:
        """Steps per second, summed over the first `members` processes, in one window that begins when all are ready."""
        pipes = self.pipes[:members]
        for pipe in pipes:
            pipe.send((window, (recipe, seconds)))
        answers = [receive(pipe) for pipe in pipes]
        fine = not any(isinstance(answer, Failure) for answer in answers)
        start = time.monotonic() + LEAD
        for pipe, answer in zip(pipes, answers, strict=True):
            if not isinstance(answer, Failure):
                pipe.send(start if fine else None)
        ends = [a if isinstance(a, Failure) else receive(pipe) for pipe, a in zip(pipes, answers, strict=True)]
        return sum(steps_within(start, seconds, each) for each in checked(ends)) / seconds


def receive(pipe: Connection) -> Any:
    """The next answer; CannotRun if the process has ended."""
    try:
        return pipe.recv()
    except (EOFError, ConnectionResetError):
        raise CannotRun("a process of the benchmark ended by itself") from None


def checked(answers: list[Any]) -> list[Any]:
    """The answers, if none is a failure."""
    for answer in answers:
        if isinstance(answer, Failure):
            raise CannotRun(answer.line) from RuntimeError(answer.text)
    return answers


def steps_within(start: float, seconds: float, ends: Sequence[float]) -> float:
    """Steps done by `start + seconds`; the one that was under way then counts by the share of it that was done."""
    limit, before, count = start + seconds, start, 0.0
    for end in ends:
        if end > limit:
            return count + (limit - before) / (end - before)
        count, before = count + 1, end
    return count


@contextmanager
def environment(values: dict[str, str | None]) -> Iterator[None]:
    """Set these variables (None: unset) for processes that are started inside."""
    before = {name: os.environ.get(name) for name in values}
    try:
        put(values)
        yield
    finally:
        put(before)


def put(values: dict[str, str | None]) -> None:
    """Set or unset variables of the environment."""
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
