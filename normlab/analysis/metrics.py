"""The numbers behind the tables: spread over seeds, learning-rate window and sensitivity, steps to a loss.

Every function takes rows of `Results.runs` (a row a run) and never averages a NaN away: a run without a final loss
counts as said in the docstring, or not at all and is then counted beside the mean.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from normlab.analysis.frames import UNFINISHED


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation (n - 1; NaN for fewer than two values) of n finite values."""

    n: int
    mean: float
    sd: float


def spread(values: Sequence[float]) -> Spread:
    """Mean and spread of finite values; NaN for none of them. Raises on a value that is not finite."""
    assert all(math.isfinite(value) for value in values), "a value that is not finite cannot be averaged"
    mean = statistics.fmean(values) if values else math.nan
    return Spread(len(values), mean, statistics.stdev(values) if len(values) > 1 else math.nan)


@dataclass(frozen=True)
class Window:
    """The learning rates that train: the longest run of neighbouring grid points at which every seed trains.

    `low`, `high`: its ends, NaN if no grid point trains. `decades` = log10(high / low), 0 for a single point, NaN for
    none. `open_low`, `open_high`: the window touches that edge of the grid, so it may be wider than `decades`.
    `pending`: runs missing or failed; a grid point with one of them does not count as trained.
    """

    grid: tuple[float, ...]
    low: float
    high: float
    decades: float
    open_low: bool
    open_high: bool
    pending: int


def lr_window(runs: pd.DataFrame) -> Window:
    """Learning-rate window of one condition; of equally long runs of points the one that spans most decades, then the
    lowest, is taken. Reads the columns `optim.lr` and `outcome`."""
    trains = _trains(runs)
    grid = tuple(trains)
    best: tuple[int, int] | None = None
    start = None
    for position, rate in enumerate(grid):
        start = None if not trains[rate] else position if start is None else start
        if start is not None and (best is None or _length(grid, start, position) > _length(grid, *best)):
            best = (start, position)
    pending = int(runs["outcome"].isin(UNFINISHED).sum())
    if best is None:
        return Window(grid, math.nan, math.nan, math.nan, False, False, pending)
    low, high = grid[best[0]], grid[best[1]]
    decades = math.log10(high) - math.log10(low)
    return Window(grid, low, high, decades, best[0] == 0, best[1] == len(grid) - 1, pending)


def _length(grid: Sequence[float], first: int, last: int) -> tuple[int, float]:
    # Rounded, so that two windows of equal width do not differ by the last bit of a logarithm.
    return last - first, round(math.log10(grid[last] / grid[first]), 9)


def _trains(runs: pd.DataFrame) -> dict[float, bool]:
    """Whether every seed trains, by learning rate in increasing order."""
    trained: dict[float, bool] = {}
    for rate, outcome in zip(runs["optim.lr"].tolist(), runs["outcome"].tolist(), strict=True):
        trained[float(rate)] = trained.get(rate, True) and outcome == "trained"
    return dict(sorted(trained.items()))


@dataclass(frozen=True)
class Sensitivity:
    """LR sensitivity of one condition (Wortsman et al. 2023, arXiv:2309.14322, section 2.2), nats.

    `by_seed`: the value of each seed; None where one of its runs is missing or failed. `best`: the grid's rate with
    the lowest loss, averaged over the complete seeds; NaN if no seed learns anywhere or none is complete. `largest`:
    the largest rate at which every seed trains, NaN for none. `on_edge`: `best` is the grid's first or last rate.
    """

    grid: tuple[float, ...]
    by_seed: Mapping[int, float | None]
    best: float
    largest: float
    on_edge: bool


def lr_sensitivity(runs: pd.DataFrame) -> Sensitivity:
    """mean over the grid of min(loss(lr), loss at init) - min over the grid of the same, for each seed.

    A run without a final loss (nan) counts as the loss at init. The minimum is taken of the clipped losses too, so
    that a net that learns nothing anywhere scores 0 and not less. Reads `optim.lr`, `seed`, `outcome`, `initial_loss`,
    `final_loss`. Never rank by the number alone: see `best` and `largest` beside it.
    """
    trains = _trains(runs)
    grid = tuple(trains)
    by_seed: dict[int, float | None] = {}
    complete: list[dict[float, float]] = []
    learns = False
    groups: dict[int, list[_Ended]] = {}
    columns = (runs[name].tolist() for name in ("seed", "optim.lr", "outcome", "initial_loss", "final_loss"))
    for seed, *row in zip(*columns, strict=True):
        groups.setdefault(int(seed), []).append(_Ended(*row))
    for seed, rows in sorted(groups.items()):
        losses = _clipped(rows)
        by_seed[seed] = statistics.fmean(losses.values()) - min(losses.values()) if losses else None
        if losses:
            complete.append(losses)
            learns = learns or any(row.final < row.initial for row in rows)
    best = math.nan
    if learns:
        best = min(grid, key=lambda rate: statistics.fmean(losses[rate] for losses in complete))
    largest = max((rate for rate in grid if trains[rate]), default=math.nan)
    return Sensitivity(grid, by_seed, best, largest, best in (grid[0], grid[-1]))


class _Ended(NamedTuple):
    """How one run ended; losses in nats, NaN for none."""

    rate: float
    outcome: str
    initial: float
    final: float


def _clipped(rows: Sequence[_Ended]) -> dict[float, float] | None:
    """min(final, initial) by learning rate for one seed; None if a run or every initial loss is lacking."""
    initial = next((row.initial for row in rows if not math.isnan(row.initial)), None)
    if initial is None or any(row.outcome in UNFINISHED for row in rows):
        return None
    losses = {}
    for row in rows:
        # A run that is not finite at step 0 has no initial loss of its own; its neighbours start from the same weights.
        start = initial if math.isnan(row.initial) else row.initial
        losses[float(row.rate)] = start if math.isnan(row.final) else min(row.final, start)
    return losses


def first_step_at(evaluations: pd.Series | None, loss: float) -> int | None:
    """First evaluation at or below `loss`; None if there is none. `evaluations`: validation loss in nats by step."""
    if evaluations is None:
        return None
    reached = evaluations.index[evaluations <= loss]
    return int(reached[0]) if len(reached) else None
