"""A study that trains in no time, and a watcher that keeps what it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from normlab.config.plan import PlannedRun
from normlab.config.schema import Axis, ModelSpec, OptimSpec, Point, RunSpec, Study, TaskSpec, TrainSpec
from normlab.execute.events import Event
from normlab.execute.status import read_status
from normlab.execute.sweep import Summary

TINY = RunSpec(
    task=TaskSpec(vocab=8, length=4, val_size=8),
    model=ModelSpec(depth=1, width=8, hidden=8),
    optim=OptimSpec(),
    train=TrainSpec(steps=10, batch=4, eval_every=5),
)


def axis(name: str, values: Sequence[Any]) -> Axis:
    return Axis(name=name, points=tuple(Point(label=str(value), settings={name: value}) for value in values))


def tiny_study(seeds: Sequence[int] = (0, 1, 2), **changes: Any) -> Study:
    """Two rates times the seeds, one structure."""
    fields = {"name": "tiny", "question": "?", "base": TINY, "axes": (axis("optim.lr", [1e-3, 1e-2]),)}
    return Study(**{**fields, "seeds": tuple(seeds), **changes})


@dataclass
class Recorder:
    """A watcher that keeps what it is told."""

    events: list[Event] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    todo: list[str] = field(default_factory=list)
    ended: bool = False

    def begin(self, todo: Sequence[PlannedRun], planned: int, workers: int) -> None:
        self.todo = [run.id for run in todo]

    def see(self, event: Event) -> None:
        self.events.append(event)

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def end(self) -> None:
        self.ended = True


Runner = Callable[..., tuple[Summary, Recorder]]


def counted_runs(folder: Path) -> dict[str, int]:
    """How many runs `normlab status` says are planned, finished, failed and missing."""
    status = read_status(folder)
    assert status
    return {**{key: status[key] for key in ("planned", "finished", "missing")}, "failed": len(status["failed"])}
