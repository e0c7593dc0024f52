"""Final loss against learning rate: a line a condition, a point a seed; what is not finite stands in a band on top."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from normlab.analysis.canvas import GREY, MAX_PANELS, colours, loss_range, outer, panels, plain, reference_lines
from normlab.analysis.frames import FINITE_OUTCOMES, Results
from normlab.analysis.tables import LR, split_axes

_ONE_PANEL = 6
MARKERS = {"trained": "o", "unsteady": "^", "stalled": "s", "diverged": "D", "nan": "X", "failed": "P", "missing": "|"}


def draw(results: Results) -> Figure:
    """Conditions are the combinations of all axes but the rate; more than six get a panel each."""
    axes_names = split_axes(results, LR)
    conditions = {results.name(axes_names, key): runs for key, runs in results.by(axes_names).items()}
    single = len(conditions) <= _ONE_PANEL
    groups = [conditions] if single else [{name: runs} for name, runs in list(conditions.items())[:MAX_PANELS]]
    title = "final validation loss against learning rate"
    if not single and len(conditions) > MAX_PANELS:
        title += f" (first {MAX_PANELS} of {len(conditions)} panels)"
    bottom, top, cut = loss_range(results.runs, results.runs["final_loss"])
    note = "A point a run, the line through the means; it breaks where a seed has no final loss"
    note += f"; losses above {top:.1f} are drawn at {top:.1f}" if cut else ""
    figure, axes = panels(results, len(groups), title, size=(5.6, 4.0) if single else (2.7, 2.3), note=note)
    looks = colours(list(conditions))
    bands = {name: top + (0.07 + 0.13 * i) * (top - bottom) for i, name in enumerate(_bands(results))}
    for axis, group in zip(axes, groups, strict=True):
        _draw_bands(axis, bands, top - bottom)
        for i, (name, runs) in enumerate(group.items()):
            colour, style = looks[i]
            dodge = 10 ** (0.035 * (i - (len(group) - 1) / 2)) if len(group) > 1 else 1.0
            _draw_condition(axis, runs, bands, (bottom, top), colour, style, dodge)
            axis.set_title("" if single else plain(name))
        reference_lines(axis, pd.concat(list(group.values())), results)
    _scale(axes, results, bottom, top, len(bands))
    outer(axes, "peak learning rate (optim.lr)", "final validation loss (nats)" if single else "final loss (nats)")
    _legend(figure, results, list(conditions) if single else [], looks)
    return figure


def _bands(results: Results) -> list[str]:
    there = set(results.runs["outcome"])
    return [name for name in ("nan", "failed", "missing") if name in there]


def _draw_bands(axis: Axes, bands: dict[str, float], span: float) -> None:
    for name, low in bands.items():
        axis.axhspan(low, low + 0.11 * span, color="#f1e4e4" if name == "nan" else "#ececec", linewidth=0, zorder=0)
        where: Any = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 8, "color": GREY}
        axis.annotate(name, (0.012, low + 0.055 * span), **where)


def _draw_condition(
    axis: Axes,
    runs: pd.DataFrame,
    bands: dict[str, float],
    limits: tuple[float, float],
    colour: str,
    style: Any,
    dodge: float,
) -> None:
    bottom, top = limits
    height = 0.11 * (top - bottom)
    means = {}
    for rate in sorted(set(runs[LR])):
        rows = runs[runs[LR] == rate]
        # The line breaks where a seed has no final loss: a mean over the others would hide it.
        finite = rows["outcome"].isin(FINITE_OUTCOMES).all()
        means[rate] = min(rows["final_loss"].mean(), top) if finite else math.nan
        for i, (outcome, loss) in enumerate(zip(rows["outcome"], rows["final_loss"], strict=True)):
            inside = outcome in FINITE_OUTCOMES
            y = min(loss, top) if inside else bands[outcome] + height * (i + 1) / (len(rows) + 1)
            fill = colour if outcome in ("trained", "nan") else "white"
            face: Any = {"markerfacecolor": fill, "markeredgecolor": colour if inside or outcome != "nan" else "white"}
            x = rate if inside else rate * dodge
            size = 5.5 if inside else 6.5
            axis.plot([x], [y], marker=MARKERS[outcome], linestyle="", markersize=size, zorder=4, **face)
    axis.plot(list(means), list(means.values()), color=colour, linestyle=style, linewidth=1.3, zorder=3)


def _scale(axes: list[Axes], results: Results, bottom: float, top: float, bands: int) -> None:
    point_labels = {float(p.settings[LR]): p.label for a in results.study.axes if a.name == LR for p in a.points}
    rates = sorted(point_labels)
    for axis in axes:
        axis.set_xscale("log")
        axis.set_xlim(rates[0] / 1.5, rates[-1] * 1.5)
        if len(rates) <= 10:
            axis.set_xticks(rates, [plain(point_labels[rate]) for rate in rates], fontsize=8 if len(axes) == 1 else 6.5)
            axis.xaxis.set_minor_locator(NullLocator())
        axis.set_ylim(bottom - 0.07 * (top - bottom), top + (0.07 + 0.13 * bands) * (top - bottom))
        axis.set_yticks([tick for tick in axis.get_yticks() if bottom - 0.07 * (top - bottom) <= tick <= top])


def _legend(figure: Figure, results: Results, names: list[str], looks: list[tuple[str, Any]]) -> None:
    handles = []
    if len(names) > 1:
        for name, (colour, style) in zip(names, looks, strict=True):
            handles.append(Line2D([], [], color=colour, linestyle=style, label=plain(name)))
    there = set(results.runs["outcome"])
    for outcome, marker in MARKERS.items():
        if outcome in there:
            fill = GREY if outcome in ("trained", "nan") else "white"
            look: Any = {"markerfacecolor": fill, "markeredgecolor": GREY, "linestyle": ""}
            handles.append(Line2D([], [], marker=marker, label=outcome, **look))
    figure.legend(handles=handles, loc="outside right upper", alignment="left")
