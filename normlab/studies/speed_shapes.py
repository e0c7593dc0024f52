"""Every norm at one shape, in rounds: each round visits every cell, so that a drift of the machine hits all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from normlab.studies.speed_clock import Call, free_memory, times, wait_for
from normlab.studies.speed_norms import Absent, Cell, build, error_against_formula, prepare

LONGEST = 20.0  # seconds that the rounds of one cell may take, whatever is asked for
TENSORS = 12  # of the shape's size that a handwritten backward pass may hold at once, with what is shared


class Shape(NamedTuple):
    """Batch x tokens x width, and the microseconds that the article prints for LayerNorm and RMSNorm there."""

    batch: int
    tokens: int
    width: int
    printed: tuple[float, float] | None = None

    @property
    def name(self) -> str:
        return f"{self.batch}x{self.tokens}x{self.width}"

    @property
    def bytes(self) -> int:
        """Of one float32 tensor."""
        return 4 * self.batch * self.tokens * self.width


class Pace(NamedTuple):
    """Rounds, seconds of a visit, and seconds after which a cell that is no headline gets fewer rounds (at least
    `least`)."""

    rounds: int
    visit: float
    patience: float
    least: int = 3


@dataclass
class Timed:
    """Seconds a call by round: every block of the round. `error` is the largest difference from the formula."""

    by_round: list[list[float]] = field(default_factory=list)
    error: float | None = None

    @property
    def all(self) -> list[float]:
        return [t for blocks in self.by_round for t in blocks]

    @property
    def medians(self) -> list[float]:
        """One value a round."""
        return [median(blocks) for blocks in self.by_round]


@dataclass
class AtShape:
    """What was found at one shape; `absent` says why a cell has no times. The copies are of one tensor of the shape:
    `copy` into memory that is there already, `clone` into new memory."""

    shape: Shape
    cells: dict[Cell, Timed] = field(default_factory=dict)
    absent: dict[Cell, str] = field(default_factory=dict)
    copies: dict[str, Timed] = field(default_factory=dict)


@dataclass(frozen=True)
class Subject:
    """What is visited in the first `rounds` rounds. `make` builds the call afresh, and what it holds goes afterwards:
    the graphs of all cells of a large shape would not fit into memory at once."""

    make: Callable[[], Call]
    rounds: int
    timed: Timed = field(default_factory=Timed)


def measure_shape(shape: Shape, cells: Sequence[Cell], headlines: Collection[Cell], pace: Pace, device: str) -> AtShape:
    """Time all `cells` and the two copies; `headlines` are visited in every round, as far as LONGEST lets them."""
    found = AtShape(shape)
    lacking = lacking_memory(shape, device)
    if lacking:
        found.absent = dict.fromkeys(cells, lacking)
        return found
    torch.compiler.reset()
    generator = torch.Generator(device).manual_seed(0)
    # One lane, as the norms of the catalogue take it.
    x = torch.randn(1, *shape[:3], generator=generator, device=device, requires_grad=True)
    grad = torch.randn(1, *shape[:3], generator=generator, device=device)
    subjects = []
    for name, make in _copies(x.detach()).items():
        subjects.append(_subject(make, True, pace, device))
        found.copies[name] = subjects[-1].timed
    for implementation, norm in dict.fromkeys(cell[:2] for cell in cells):
        group = [cell for cell in cells if cell[:2] == (implementation, norm)]
        try:
            module, error = _checked(implementation, norm, x, device)
        except Absent as absent:
            found.absent |= dict.fromkeys(group, str(absent))
            continue
        for cell in group:
            try:
                make = partial(prepare, module, cell.direction, x, grad)
                if implementation == "compiled":
                    make()()  # The backward pass is compiled when it is first called.
                subjects.append(_subject(make, cell in headlines, pace, device))
            except Exception as fault:
                if implementation != "compiled":
                    raise
                found.absent[cell] = _told(fault)
                continue
            subjects[-1].timed.error = error
            found.cells[cell] = subjects[-1].timed
    visit(subjects, pace, device)
    return found


def lacking_memory(shape: Shape, device: str) -> str | None:
    """Why the shape does not fit into the memory that is free; None where it does."""
    free, needed = free_memory(device), TENSORS * shape.bytes
    if free is None or free >= needed:
        return None
    return f"needs {needed / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free"


def _copies(x: Tensor) -> dict[str, Callable[[], Call]]:
    there = torch.empty_like(x)
    return {"copy": lambda: lambda: there.copy_(x), "clone": lambda: x.clone}


def _checked(implementation: str, norm: str, x: Tensor, device: str) -> tuple[Callable[[Tensor], Tensor], float]:
    """The norm, called once, and its error; `Absent` where there is none or it cannot be compiled."""
    module = build(Cell(implementation, norm, "forward"), x.shape[-1], device)
    try:
        # What is compiled is compiled for the whole shape.
        return module, error_against_formula(module, norm, x if implementation == "compiled" else x[:, :1, :8])
    except Exception as fault:
        if implementation != "compiled":
            raise
        raise Absent(_told(fault)) from fault


def _told(fault: Exception) -> str:
    words = " ".join(str(fault).split()).partition(" Set TORCHDYNAMO")[0]
    return f"torch.compile failed: {type(fault).__name__}" + (f": {words[:150]}" if words else "")


def _subject(make: Callable[[], Call], headline: bool, pace: Pace, device: str) -> Subject:
    """Plan from the time of one call, which also warms up; it is no result."""
    call = make()
    wait_for(device)
    begun = time.perf_counter()
    call()
    wait_for(device)
    # A visit takes a call to find the size of its blocks, and then one block at least.
    return Subject(make, rounds_for(2 * (time.perf_counter() - begun), headline, pace))


def rounds_for(seconds: float, headline: bool, pace: Pace) -> int:
    """In how many rounds a cell is visited whose shortest visit takes so long."""
    seconds = max(seconds, pace.visit)
    fitting = int((LONGEST if headline else pace.patience) / seconds)
    return max(1 if seconds > LONGEST else min(pace.least, int(LONGEST / seconds)), min(pace.rounds, fitting))


def visit(subjects: Sequence[Subject], pace: Pace, device: str) -> None:
    """All rounds; every other one goes backwards, so that no cell always follows the same one."""
    for turn in range(pace.rounds):
        for subject in subjects if turn % 2 == 0 else reversed(subjects):
            if turn < subject.rounds:
                subject.timed.by_round.append(times(subject.make(), pace.visit, device))
