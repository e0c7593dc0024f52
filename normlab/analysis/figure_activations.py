"""Largest activation RMS of the residual stream by layer and step: a heat map a condition, one colour scale."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from normlab.analysis.canvas import MAX_PANELS, outer, panels, plain
from normlab.analysis.cells import outcome_text
from normlab.analysis.frames import Results
from normlab.analysis.tables import row_axis, split_axes

_MAP = "viridis"


def draw(results: Results) -> Figure:
    """A row of panels for each combination of the other axes, a column a point of the outcome table's row axis. The
    colour is the largest value over the seeds; a map ends where the last run of its condition ends."""
    rows = row_axis(results)
    axes_names = [*split_axes(results, rows), *([rows] if rows else [])]
    conditions = list(results.by(axes_names).items())
    shown = conditions[:MAX_PANELS]
    title = "largest activation RMS of the residual stream by layer and step"
    if len(shown) < len(conditions):
        title += f" (first {len(shown)} of {len(conditions)} panels)"
    points = max((len(axis.points) for axis in results.study.axes if axis.name == rows), default=1)
    columns = points if len(conditions) > points > 1 and points <= 9 else 0
    size = (min(2.4, max(1.5, 12 / columns)), 1.9) if columns else (2.6, 2.1)
    note = "Per token, over the validation set" + (", largest over seeds" if len(results.study.seeds) > 1 else "")
    note += "; above each map how its runs ended (final validation loss in nats); grey: nothing there"
    figure, axes = panels(results, len(shown), title, size=size, columns=columns, note=note)
    maps = {key: _map(results.activations, runs) for key, runs in shown}
    norm = _norm(list(maps.values()))
    for axis, (key, runs) in zip(axes, shown, strict=True):
        _draw_map(axis, maps[key], norm, float(runs["train.eval_every"].max()))
        name = results.name(axes_names, key) or results.study.name
        axis.set_title(plain(f"{name}\n{outcome_text(runs)}".replace("), ", "),\n")), fontsize=7)
        axis.grid(False)
        axis.set_facecolor("#e6e6e6")
    deepest = results.activations["layer"].max()
    last = float(results.runs["train.steps"].max())
    half = float(results.runs["train.eval_every"].max()) / 2
    axes[0].set_xlim(-half, last + half)
    axes[0].set_ylim(-0.5, (deepest if deepest == deepest else 1) + 0.5)
    axes[0].yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes[0].xaxis.set_major_locator(MaxNLocator(3, integer=True))
    outer(axes, "step", "layer (0 = embedding)")
    figure.colorbar(ScalarMappable(norm, _MAP), ax=axes, label="activation RMS", fraction=0.03, pad=0.02)
    return figure


def _map(activations: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Largest finite RMS over the runs: a row a layer, a column a step."""
    mine = activations[activations["id"].isin(runs["id"]) & np.isfinite(activations["rms"])]
    found = mine.pivot_table(index="layer", columns="step", values="rms", aggfunc="max", observed=True)
    # A layer that is never finite keeps its place.
    return found if found.empty else found.reindex(range(int(found.index.max()) + 1))


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
