"""Largest activation RMS of the residual stream by layer and step: a heat map a condition, one colour scale."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from normlab.analysis.bands import spread_out
from normlab.analysis.canvas import MAX_PANELS, outer, panels, plain
from normlab.analysis.cells import outcome_text
from normlab.analysis.frames import Results
from normlab.analysis.reading import Taken
from normlab.analysis.tables import row_axis, split_axes

_MAP = "viridis"


def draw(results: Results) -> Figure:
    """A row of panels for each combination of the other axes, a column a point of the outcome table's row axis. The
    colour is the largest value over the seeds; a map ends where the last run of its condition ends."""
    rows = row_axis(results)
    axes_names = [*split_axes(results, rows), *([rows] if rows else [])]
    conditions, points = list(results.by(axes_names).items()), _points(results, rows)
    kept = spread_out(points)
    if len(kept) < len(points):
        conditions = [(key, runs) for key, runs in conditions if key[-1] in set(kept)]
    shown = conditions[:MAX_PANELS]
    title = "largest activation RMS of the residual stream by layer and step"
    if len(shown) < len(conditions):
        title += f" (first {len(shown)} of {len(conditions)} panels)"
    if len(kept) < len(points):
        title += f"\n{len(kept)} of {len(points)} points of {rows}"
    columns = len(kept) if len(conditions) > len(kept) > 1 and len(kept) <= 9 else 0
    size = (min(2.4, max(1.5, 12 / columns)), 1.9) if columns else (2.6, 2.1)
    note = "Per token, over the validation set" + (", largest over seeds" if len(results.study.seeds) > 1 else "")
    note += "; above each map how its runs ended (final validation loss in nats); grey: nothing there"
    figure, axes = panels(results, len(shown), title, size=size, columns=columns, note=note)
    maps = {key: _map(results.taken, runs) for key, runs in shown}
    norm = _norm(list(maps.values()))
    for axis, (key, runs) in zip(axes, shown, strict=True):
        _draw_map(axis, maps[key], norm, float(runs["train.eval_every"].max()))
        name = results.name(axes_names, key) or results.study.name
        axis.set_title(plain(f"{name}\n{outcome_text(runs)}".replace("), ", "),\n")), fontsize=7)
        axis.grid(False)
        axis.set_facecolor("#e6e6e6")
    deepest = max((max(taken.layers, default=0) for taken in results.taken.values()), default=1)
    last = float(results.runs["train.steps"].max())
    half = float(results.runs["train.eval_every"].max()) / 2
    axes[0].set_xlim(-half, last + half)
    axes[0].set_ylim(-0.5, deepest + 0.5)
    axes[0].yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes[0].xaxis.set_major_locator(MaxNLocator(3, integer=True))
    outer(axes, "step", "layer (0 = embedding)")
    figure.colorbar(ScalarMappable(norm, _MAP), ax=axes, label="activation RMS", fraction=0.03, pad=0.02)
    return figure


def _points(results: Results, rows: str | None) -> list[str]:
    """Labels of the points of the axis `rows`."""
    return [point.label for axis in results.study.axes if axis.name == rows for point in axis.points]


def _map(taken: Mapping[str, Taken], runs: pd.DataFrame) -> pd.DataFrame:
    """Largest finite RMS over the runs: a row a layer, a column a step."""
    mine = [taken[run_id] for run_id in runs["id"] if run_id in taken]
    steps = np.unique(np.concatenate([one.steps for one in mine])) if mine else np.empty(0)
    found = np.full((max((max(one.layers, default=-1) for one in mine), default=-1) + 1, len(steps)), np.nan)
    for one in mine:
        place = np.ix_(np.array(one.layers), np.searchsorted(steps, one.steps))
        found[place] = np.fmax(found[place], np.where(np.isfinite(one.rms), one.rms, np.nan).T)
    there = np.isfinite(found)
    if not there.any():
        return pd.DataFrame()
    # A layer that is never finite keeps its place below others; a step without any is left out.
    deepest, kept = int(np.flatnonzero(there.any(axis=1))[-1]), there.any(axis=0)
    return pd.DataFrame(found[: deepest + 1, kept], columns=steps[kept])


def _norm(maps: list[pd.DataFrame]) -> LogNorm:
    values = np.concatenate([values.to_numpy(float).ravel() for values in maps])
    values = values[np.isfinite(values) & (values > 0)]
    if not len(values):
        return LogNorm(0.1, 10)
    low, high = float(values.min()), float(values.max())
    return LogNorm(low, max(high, low * 1.01))


def _draw_map(axis: Axes, values: pd.DataFrame, norm: LogNorm, every: float) -> None:
    """`every`: steps between evaluations, the width of a cell that has no neighbour to end at."""
    if values.empty:
        return
    layers = values.index.to_numpy(float)
    across, up = _edges(values.columns.to_numpy(float), every), np.append(layers - 0.5, layers[-1] + 0.5)
    masked = np.ma.masked_invalid(values.to_numpy(float))
    # As an image inside the SVG: thousands of little squares would be slow to show and large.
    axis.pcolormesh(across, up, masked, norm=norm, cmap=_MAP, rasterized=True, shading="flat")


def _edges(steps: np.ndarray, every: float) -> np.ndarray:
    """Edges of the cells around `steps`: half way to the neighbour, and as far outwards as evaluations lie apart."""
    middles = (steps[1:] + steps[:-1]) / 2
    return np.concatenate([[steps[0] - every / 2], middles, [steps[-1] + every / 2]])
