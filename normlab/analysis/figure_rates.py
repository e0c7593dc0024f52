"""Final loss against learning rate: a line a condition, a point a seed; what is not finite stands in a strip on top. Of
very many runs the median and a band from 10 to 90 % of them instead, and on top the share that is not finite."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from normlab.analysis.bands import band_of, band_patch, band_words, draw_band, too_many_points
from normlab.analysis.canvas import GREY, MAX_PANELS, colours, loss_range, outer, panels, plain, reference_lines
from normlab.analysis.frames import FINITE_OUTCOMES, UNFINISHED, Results
from normlab.analysis.tables import LR, split_axes

_ONE_PANEL = 6
# Parts of the grid's decades: room of a condition at a rate, in the one panel and in a small one, and the least margin.
_ROOM, _ROOM_SMALL, _MARGIN = 0.035, 0.07, 0.04
_MARKED = 20  # of up to so many rates each has a mark at its median
_EACH = (
    "A point a run, set beside its rate where several share one; the line through the means breaks where a seed has no"
    " final loss"
)
_SUMMED = (
    "A line is the median over the runs at a rate, its band holds those from 10 to 90 %; a run without a final loss"
    " counts as above all others, and a bar on top, as high as its strip for all of them, tells their share"
)
_STRIP, _APART = 0.11, 0.13  # height of a strip, and from one to the next, as parts of the range of losses
MARKERS = {"trained": "o", "unsteady": "^", "stalled": "s", "diverged": "D", "nan": "X", "failed": "P", "missing": "|"}


@dataclass(frozen=True)
class _Losses:
    """Ends of the losses that are shown (nats), and above them the lower edge of the strip of each outcome without a
    final loss."""

    bottom: float
    top: float
    strips: dict[str, float]

    @property
    def span(self) -> float:
        return self.top - self.bottom

    @property
    def height(self) -> float:
        """Of a strip."""
        return _STRIP * self.span


@dataclass(frozen=True)
class _Look:
    """Of a condition: by how many decades it is moved, clear of the others, and the room (decades) of its seeds."""

    colour: str
    style: Any
    dodge: float
    room: float


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
    sizes = [n for group in groups for runs in group.values() for n in _sizes(runs)]
    bands = too_many_points(sizes)
    if bands:
        title += f"\n{band_words(sizes)} at a rate"
    note = _SUMMED if bands else _EACH
    note += f"; losses above {top:.1f} are drawn at {top:.1f}" if cut else ""
    figure, axes = panels(results, len(groups), title, size=(5.6, 4.0) if single else (2.7, 2.3), note=note)
    looks = colours(list(conditions))
    strips = {name: top + (0.07 + _APART * i) * (top - bottom) for i, name in enumerate(_lost(results))}
    losses = _Losses(bottom, top, strips)
    most = max(map(len, groups))
    room = _room(results, most, single)
    for axis, group in zip(axes, groups, strict=True):
        _draw_strips(axis, losses)
        for i, (name, runs) in enumerate(group.items()):
            look = _Look(*looks[i], dodge=room * (i - (len(group) - 1) / 2), room=room)
            (_draw_quantiles if bands else _draw_condition)(axis, runs, losses, look)
            axis.set_title("" if single else plain(name))
        reference_lines(axis, pd.concat(list(group.values())), results)
    _scale(axes, results, losses, room * most / 2)
    outer(axes, "peak learning rate (optim.lr)", "final validation loss (nats)" if single else "final loss (nats)")
    _legend(figure, results, list(conditions) if single else [], looks, bands)
    return figure


def _sizes(runs: pd.DataFrame) -> list[int]:
    """How many runs each rate has."""
    return [int(n) for n in runs[LR].value_counts()]


def _lost(results: Results) -> list[str]:
    """The outcomes without a final loss that runs have."""
    there = set(results.runs["outcome"])
    return [name for name in ("nan", *UNFINISHED) if name in there]


def _draw_strips(axis: Axes, losses: _Losses) -> None:
    for name, low in losses.strips.items():
        colour = "#f1e4e4" if name == "nan" else "#ececec"
        axis.axhspan(low, low + losses.height, color=colour, linewidth=0, zorder=0)


def _draw_condition(axis: Axes, runs: pd.DataFrame, losses: _Losses, look: _Look) -> None:
    means = {}
    for rate in sorted(set(runs[LR])):
        rows = runs[runs[LR] == rate]
        # The line breaks where a seed has no final loss: a mean over the others would hide it.
        finite = rows["outcome"].isin(FINITE_OUTCOMES).all()
        means[rate] = min(rows["final_loss"].mean(), losses.top) if finite else math.nan
        for i, (outcome, loss) in enumerate(zip(rows["outcome"], rows["final_loss"], strict=True)):
            inside = outcome in FINITE_OUTCOMES
            y = min(loss, losses.top) if inside else losses.strips[outcome] + losses.height * (i + 1) / (len(rows) + 1)
            fill = look.colour if outcome in ("trained", "nan") else "white"
            edge = look.colour if inside or outcome != "nan" else "white"
            face: Any = {"markerfacecolor": fill, "markeredgecolor": edge}
            # In a strip the seeds stand one above the other; as losses they may be equal, so they stand side by side.
            aside = 0.6 * look.room * (i / (len(rows) - 1) - 0.5) if inside and len(rows) > 1 else 0.0
            x = rate * 10 ** (look.dodge + aside)
            size = 5.5 if inside else 6.5
            axis.plot([x], [y], marker=MARKERS[outcome], linestyle="", markersize=size, zorder=4, **face)
    rates = [rate * 10**look.dodge for rate in means]
    axis.plot(rates, list(means.values()), color=look.colour, linestyle=look.style, linewidth=1.3, zorder=3)


def _draw_quantiles(axis: Axes, runs: pd.DataFrame, losses: _Losses, look: _Look) -> None:
    """The runs of a condition as quantiles over each rate. A run without a final loss counts as above all others."""
    values: dict[float, list[float]] = {}
    gone: dict[tuple[str, float], int] = {}
    for rate, outcome, loss in zip(
        runs[LR].tolist(), runs["outcome"].tolist(), runs["final_loss"].tolist(), strict=True
    ):
        finite = outcome in FINITE_OUTCOMES
        values.setdefault(rate, []).append(loss if finite else math.inf)
        if not finite:
            gone[outcome, rate] = gone.get((outcome, rate), 0) + 1
    band = band_of(values)
    marker = "o" if len(band.at) <= _MARKED else ""
    line: Any = {"linestyle": look.style, "linewidth": 1.3, "marker": marker, "markersize": 4}
    draw_band(axis, band, losses.top, look.colour, under=1, **line)
    for (outcome, rate), count in gone.items():
        x, low = rate * 10**look.dodge, losses.strips[outcome]
        ends = [low, low + losses.height * count / len(values[rate])]
        axis.plot([x, x], ends, color=look.colour, linewidth=2, solid_capstyle="butt")


def _rates(results: Results) -> dict[float, str]:
    """Label of each rate, in increasing order."""
    rates = {float(p.settings[LR]): p.label for a in results.study.axes if a.name == LR for p in a.points}
    return dict(sorted(rates.items()))


def _span(results: Results) -> float:
    """Decades of the grid; 1 for a single rate."""
    rates = list(_rates(results))
    return math.log10(rates[-1] / rates[0]) or 1.0


def _room(results: Results, conditions: int, single: bool) -> float:
    """Decades that a condition's points take at a rate: two thirds of the way to the next rate for all together."""
    rates = [math.log10(rate) for rate in _rates(results)]
    gap = min((b - a for a, b in pairwise(rates)), default=1.0)
    return min((_ROOM if single else _ROOM_SMALL) * _span(results), 0.66 * gap / conditions)


def _scale(axes: list[Axes], results: Results, losses: _Losses, widest: float) -> None:
    """`widest`: decades that points stand beside their rate at most."""
    point_labels = _rates(results)
    rates = list(point_labels)
    # Half a marker more than the points take, so that none is cut.
    margin = 10 ** max(_MARGIN * _span(results), widest + 0.02 * _span(results))
    for axis in axes:
        axis.set_xscale("log")
        axis.set_xlim(rates[0] / margin, rates[-1] * margin)
        if len(rates) <= 10:
            axis.set_xticks(rates, [plain(point_labels[rate]) for rate in rates], fontsize=8 if len(axes) == 1 else 6.5)
            axis.xaxis.set_minor_locator(NullLocator())
    # All panels share the axis of losses; a strip's name stands beside it like a number.
    bottom, top = losses.bottom - 0.07 * losses.span, losses.top
    axes[0].set_ylim(bottom, top + (0.07 + _APART * len(losses.strips)) * losses.span)
    ticks = [tick for tick in axes[0].get_yticks() if bottom <= tick <= top]
    texts = axes[0].yaxis.get_major_formatter().format_ticks(ticks)
    centres = [low + losses.height / 2 for low in losses.strips.values()]
    axes[0].set_yticks([*ticks, *centres], [*texts, *losses.strips])


def _legend(figure: Figure, results: Results, names: list[str], looks: list[tuple[str, Any]], bands: bool) -> None:
    handles: list[Artist] = []
    if len(names) > 1:
        for name, (colour, style) in zip(names, looks, strict=True):
            handles.append(Line2D([], [], color=colour, linestyle=style, label=plain(name)))
    if bands:
        handles.append(Line2D([], [], color=GREY, label="median"))
        handles.append(band_patch())
    there = set() if bands else set(results.runs["outcome"])
    for outcome, marker in MARKERS.items():
        if outcome in there:
            fill = GREY if outcome in ("trained", "nan") else "white"
            look: Any = {"markerfacecolor": fill, "markeredgecolor": GREY, "linestyle": ""}
            handles.append(Line2D([], [], marker=marker, label=outcome, **look))
    figure.legend(handles=handles, loc="outside right upper", alignment="left")
