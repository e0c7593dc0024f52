"""Loss against step: validation loss solid, training loss faint, a thin line a seed, a cross at the NaN onset; of very
many runs the median and a band from 10 to 90 % of them instead."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

from normlab.analysis.bands import band_patch, band_words, draw_band, loss_band, spread_out, too_many
from normlab.analysis.canvas import GREY, MAX_PANELS, colours, loss_range, outer, panels, plain, reference_lines
from normlab.analysis.cells import outcome_text
from normlab.analysis.frames import Results
from normlab.analysis.tables import row_axis, split_axes

_ONE_PANEL = 6  # more conditions than this are spread over small multiples
_LEVEL = 5.5  # points between marks that would hide each other
_LINE = 8.5  # points between lines of outcomes above a panel
_STRIDE = 10  # training loss is drawn at every tenth step: the faint band looks the same and the SVG stays small


@dataclass(frozen=True)
class _Line:
    label: str
    runs: pd.DataFrame


@dataclass
class _Marks:
    """Marks of one panel. Where those of several conditions would hide each other, each condition has its level."""

    axis: Axes
    span: tuple[float, float]  # steps and nats that the panel shows
    placed: list[tuple[float, float, str]] = field(default_factory=list)

    def add(self, x: float, y: float, condition: str, **look: Any) -> None:
        """A mark at step x and loss y, moved downwards by its level: there is room below, and the step stays true."""
        near = {name for px, py, name in self.placed if self._near(px - x, py - y)} - {condition}
        self.placed.append((x, y, condition))
        down = ScaledTranslation(0, -_LEVEL * len(near) / 72, self.axis.figure.dpi_scale_trans)
        aside = self.axis.transData + down
        self.axis.plot([x], [y], transform=aside, linestyle="", clip_on=False, **look)

    def _near(self, steps: float, nats: float) -> bool:
        return abs(steps) < 0.02 * self.span[0] and abs(nats) < 0.02 * self.span[1]


@dataclass(frozen=True)
class _Losses:
    results: Results
    evaluations: Mapping[str, pd.Series]
    bottom: float
    top: float
    cut: bool  # some losses lie above `top`


def _losses(results: Results) -> _Losses:
    finite = [taken.to_numpy() for taken in results.evaluations.values()]
    losses = pd.Series(np.concatenate(finite) if finite else [], dtype=float)
    return _Losses(results, results.evaluations, *loss_range(results.runs, losses))


def draw(results: Results) -> Figure:
    """Up to six conditions share a panel; more get a panel for each combination of the axes that are not the rows of
    the outcome table. Of very many conditions in a panel some are shown, of very many runs their quantiles."""
    groups, points = _groups(results)
    shown = dict(list(groups.items())[:MAX_PANELS])
    single = len(groups) == 1
    bands = too_many(sum(len(line.runs) for line in lines) for lines in shown.values())
    title = "validation loss by step"
    if len(shown) < len(groups):
        title += f" (first {len(shown)} of {len(groups)} panels)"
    drawn = [points] if points else []
    if bands:
        drawn.append(band_words(len(line.runs) for lines in shown.values() for line in lines))
    title += "\n" * bool(drawn) + "; ".join(drawn)
    losses = _losses(results)
    note = _note(results, losses, bands)
    note += "" if single else "; above each panel how its runs ended (final validation loss in nats)"
    above = 0 if single else max(len(_outcomes(lines)) for lines in shown.values())
    size = (6.0, 4.0) if single else (2.9, 2.4 + above * _LINE / 72)
    figure, axes = panels(results, len(shown), title, size=size, note=note)
    labels = list(dict.fromkeys(line.label for lines in shown.values() for line in lines))
    looks = dict(zip(labels, colours(labels), strict=True))
    last, span, marked = float(results.runs["train.steps"].max()), losses.top - losses.bottom, False
    for axis, (name, lines) in zip(axes, shown.items(), strict=True):
        texts = [] if single else _outcomes(lines)
        axis.set_title(plain(name), pad=6 + _LINE * above)
        for i, text in enumerate(texts, 1):
            height = 4 + _LINE * (above - i)
            where: Any = {"xycoords": "axes fraction", "xytext": (0, height), "textcoords": "offset points"}
            axis.annotate(plain(text), (0, 1), fontsize=6.5, color=GREY, **where)
        marks = _Marks(axis, (last, span))
        for line in lines:
            (_draw_band if bands else _draw_condition)(marks, line, losses, *looks[line.label])
        marked = marked or bool(marks.placed)
        reference_lines(axis, pd.concat([line.runs for line in lines]), results)
    axes[0].set_ylim(losses.bottom - 0.07 * span, losses.top + 0.08 * span)
    axes[0].set_xlim(0, last * 1.02)
    outer(axes, "step", "loss (nats)")
    _legend(figure, results, next(iter(shown.values())), looks, single, bands, marked)
    return figure


def _note(results: Results, losses: _Losses, bands: bool) -> str:
    nan = bool((results.runs["outcome"] == "nan").any())
    if bands:
        note = "A line is the median over the runs of a setting, its band holds those from 10 to 90 %; single runs and"
        note += " training losses are not drawn"
        note += "; from its onset on a run that became nan counts as above all others" if nan else ""
        return note + (f"; what lies above {losses.top:.1f} is drawn there" if losses.cut or nan else "")
    note = "A line a seed: validation loss solid, training loss faint"
    note += f"; a triangle where a validation loss first passes {losses.top:.1f}" if losses.cut else ""
    return note + ("; marks at one place stand one below the other" if losses.cut or nan else "")


def _groups(results: Results) -> tuple[dict[str, list[_Line]], str]:
    """Lines by panel title, and how many points of the panels' axis they are where not all are taken."""
    axes = [axis.name for axis in results.study.axes]
    conditions = results.by(axes)
    names = {key: results.name(axes, key) or results.study.name for key in conditions}
    if len(conditions) <= _ONE_PANEL:
        return {"": [_Line(names[key], runs) for key, runs in conditions.items()]}, ""
    rows, others = row_axis(results), split_axes(results, row_axis(results))
    assert rows is not None  # without axes there is one condition
    groups: dict[str, list[_Line]] = {}
    by_rows = results.by([rows, *others])
    labels = list(dict.fromkeys(key[0] for key in by_rows))
    kept = set(spread_out(labels))
    for key, runs in by_rows.items():
        if key[0] in kept:
            groups.setdefault(results.name(others, key[1:]), []).append(_Line(results.title(rows, key[0]), runs))
    return groups, f"{len(kept)} of {len(labels)} points of {rows}" if len(kept) < len(labels) else ""


def _outcomes(lines: list[_Line]) -> list[str]:
    """Lines of text as wide as a small panel: how each condition ended."""
    return [text for line in lines for text in textwrap.wrap(f"{line.label}: {outcome_text(line.runs)}", 58)]


def _draw_condition(marks: _Marks, line: _Line, losses: _Losses, colour: str, style: Any) -> None:
    axis = marks.axis
    width = 1.4 if len(line.runs) == 1 else 0.9
    for run_id, onset in zip(line.runs["id"], line.runs["onset_step"], strict=True):
        if run_id not in losses.results.taken:
            continue
        curve = losses.results.curve(run_id)
        train = curve[curve["step"] % _STRIDE == 0]
        axis.plot(train["step"], train["train_loss"], color=colour, alpha=0.25, linewidth=0.5, zorder=2)
        taken = losses.evaluations.get(run_id, pd.Series(dtype=float))
        axis.plot(taken.index, taken, color=colour, linestyle=style, linewidth=width, zorder=3)
        outside = taken[taken > losses.top]
        if len(outside):
            look: Any = {"marker": "^", "color": colour, "markersize": 5, "zorder": 4}
            marks.add(float(outside.index[0]), losses.top, line.label, **look)
        if not pd.isna(onset):
            last = min(float(taken.iloc[-1]), losses.top) if len(taken) else float(line.runs["uniform"].max())
            start = taken.index[-1] if len(taken) else 0
            axis.plot([start, onset], [last, last], color=colour, linestyle=":", linewidth=1, zorder=3)
            look = {"marker": "X", "color": colour, "markeredgecolor": "black", "markersize": 7, "zorder": 5}
            marks.add(float(onset), last, line.label, **look)


def _draw_band(marks: _Marks, line: _Line, losses: _Losses, colour: str, style: Any) -> None:
    band = loss_band(line.runs, losses.results.taken)
    gone = draw_band(marks.axis, band, losses.top, colour, linestyle=style)
    if gone is not None:
        look: Any = {"marker": "X", "color": colour, "markeredgecolor": "black", "markersize": 7, "zorder": 5}
        marks.add(gone, losses.top, line.label, **look)


def _legend(
    figure: Figure,
    results: Results,
    lines: list[_Line],
    looks: dict[str, tuple[str, Any]],
    single: bool,
    bands: bool,
    marked: bool,
) -> None:
    """`bands`: quantiles were drawn instead of runs; `marked`: with a mark where the median is lost."""
    handles: list[Artist] = []
    outcomes = {line.label: f"\n{outcome_text(line.runs)}" if single else "" for line in lines}
    for label, (colour, style) in looks.items():
        text = plain(label + outcomes.get(label, ""))
        handles.append(Line2D([], [], color=colour, linestyle=style, label=text))
    look: Any = {"color": GREY, "marker": "X", "markeredgecolor": "black"}
    if bands:
        handles.append(band_patch())
        if marked:
            handles.append(Line2D([], [], linestyle="", label="half are NaN", **look))
    else:
        handles.append(Line2D([], [], color=GREY, alpha=0.4, linewidth=0.8, label="training loss"))
        if (results.runs["outcome"] == "nan").any():
            handles.append(Line2D([], [], linestyle=":", label="NaN onset", **look))
    title = None if single else row_axis(results)
    figure.legend(handles=handles, loc="outside right upper", title=title, alignment="left")
