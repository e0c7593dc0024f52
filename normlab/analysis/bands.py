"""Where lines would be too many to tell apart: quantiles over the runs of a condition, and fewer points of a grid."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from normlab.analysis.canvas import GREY
from normlab.analysis.reading import Taken

LOW, HIGH = 0.1, 0.9
MOST_IN_PANEL = 60  # runs with a line each in one panel
MOST_IN_FIGURE = 300  # ... and in all panels of a figure
MOST_AT_PLACE, MOST_POINTS = 30, 600  # runs with a point each above one another, and in a figure
_MOST_POINTS = 24  # points of an axis that are told apart by colour or have a panel each
_SPREAD_POINTS = 8  # where there are more, so many of them are shown
_FILL: dict[str, Any] = {"alpha": 0.2, "linewidth": 0}
_T = TypeVar("_T")


@dataclass(frozen=True)
class Band:
    """Quantiles over runs at each of `at`: 10 %, 50 % and 90 %; infinite where that share has no finite value."""

    at: np.ndarray
    low: np.ndarray
    median: np.ndarray
    high: np.ndarray


def too_many(panels: Iterable[int]) -> bool:
    """Whether figures of so many runs a panel are drawn as bands."""
    counts = list(panels)
    return max(counts, default=0) > MOST_IN_PANEL or sum(counts) > MOST_IN_FIGURE


def too_many_points(places: Iterable[int]) -> bool:
    """Whether figures of so many runs at each place (a setting and a rate) are drawn as bands."""
    counts = list(places)
    return max(counts, default=0) > MOST_AT_PLACE or sum(counts) > MOST_POINTS


def band_of(values: Mapping[float, Sequence[float]]) -> Band:
    """Quantiles of the values at each place, which may be infinite; each is one of the values, none in between."""
    ordered = {at: sorted(found) for at, found in sorted(values.items()) if len(found)}
    low, median, high = (
        np.array([found[math.ceil(share * len(found)) - 1] for found in ordered.values()], dtype=float)
        for share in (LOW, 0.5, HIGH)
    )
    return Band(np.array(list(ordered), dtype=float), low, median, high)


def loss_band(runs: pd.DataFrame, taken: Mapping[str, Taken]) -> Band:
    """Validation loss by step over the runs of one condition. From its onset on a run that became NaN counts as above
    all others: left out, it would make the rest look like all."""
    values: dict[float, list[float]] = {}
    onsets: list[float] = []
    for run_id, onset in zip(runs["id"].tolist(), runs["onset_step"].tolist(), strict=True):
        if run_id not in taken:
            continue
        end = math.inf if pd.isna(onset) else onset
        if end < math.inf:
            onsets.append(end)
        steps, losses = taken[run_id].steps, taken[run_id].val_loss
        for step, loss in zip(steps.tolist(), losses.tolist(), strict=True):
            if step < end and math.isfinite(loss):
                values.setdefault(step, []).append(loss)
    gone = np.sort(np.array(onsets))
    for step, found in values.items():
        found += [math.inf] * int(np.searchsorted(gone, step, side="right"))
    return band_of(values)


def draw_band(axis: Axes, band: Band, top: float, colour: str, under: int = 2, **look: Any) -> float | None:
    """Draw the band (at zorder `under`) and its median, cut at `top`; `look`: of the line. Returns the first place at
    which the median is infinite, where the line ends; None where it is finite at each."""
    low, median, high = (np.minimum(values, top) for values in (band.low, band.median, band.high))
    axis.fill_between(band.at, low, high, color=colour, zorder=under, **_FILL)
    gone = ~np.isfinite(band.median)
    axis.plot(band.at, np.where(gone, np.nan, median), color=colour, zorder=3, **{"linewidth": 1.2, **look})
    return float(band.at[gone][0]) if gone.any() else None


def band_patch() -> Patch:
    """What a legend says of a band."""
    return Patch(color=GREY, label=f"{100 * LOW:g}-{100 * HIGH:g} % of the runs", **_FILL)


def band_words(sizes: Iterable[int]) -> str:
    """`bands: 10-90 % of 500 runs`, for a title; sizes: the runs of each band."""
    low, high = min(counts := list(sizes), default=0), max(counts, default=0)
    return f"bands: {100 * LOW:g}-{100 * HIGH:g} % of {high if low == high else f'{low} to {high}'} runs"


def spread_out(points: Sequence[_T]) -> list[_T]:
    """All of a few points; of very many, eight that lie evenly, with the first and the last."""
    if len(points) <= _MOST_POINTS:
        return list(points)
    return [points[round(i * (len(points) - 1) / (_SPREAD_POINTS - 1))] for i in range(_SPREAD_POINTS)]
