"""The article's figures drawn again: what was measured as lines, a thin one a seed, what it prints as open markers."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from normlab.analysis.article_cells import share_text
from normlab.analysis.article_heads import LAYOUTS, Layout
from normlab.analysis.article_notes import origin, shortened
from normlab.analysis.article_printed import printed
from normlab.analysis.article_runs import Group, groups
from normlab.analysis.bands import band_of, band_words, draw_band, loss_band, too_many_points
from normlab.analysis.canvas import GREY, colours, loss_range, plain, reference_lines, render, styled
from normlab.analysis.evidence import Evidence
from normlab.analysis.frames import FINITE_OUTCOMES, Results
from normlab.analysis.verdicts import Judged

_SIZE = (7.4, 4.4)  # inches: as wide as the article's text
_TITLES = {"norm-speed": "share of LayerNorm's time that a hand-written RMSNorm saves"}
_MARKERS = ("o", "s", "D", "^")
_OPEN: dict[str, Any] = {"markerfacecolor": "none", "markeredgewidth": 1.4, "linestyle": "", "clip_on": False}

Printed = Mapping[tuple[str, str], str]  # (row, column): as printed


@dataclass(frozen=True)
class Look:
    """Of a column of the table: its colour, and the marker of its printed values."""

    colour: str
    marker: str


@dataclass(frozen=True)
class Drawn:
    """A figure of the write-up: name of its files, the text that stands for it, images by suffix."""

    name: str
    alt: str
    images: Mapping[str, bytes]


def overlay_figures(evidence: Evidence, judged: Sequence[Judged]) -> Iterator[tuple[str, Drawn]]:
    """Id of the ledger and figure, for each figure whose study is there."""
    entries = {one.entry.id: one.entry for one in judged}
    layouts = {layout.id: layout for layout in LAYOUTS}
    with styled():
        for name, draw in _DRAWERS.items():
            layout = layouts[name]
            texts = {
                (r.key, c.key): printed(layout, r.key, c.key, entries.get(name), "en")
                for r in layout.rows
                for c in layout.columns
            }
            figure = draw(layout, evidence, {place: text for place, text in texts.items() if text})
            if figure is not None:
                title = _TITLES.get(name, layout.title.en)
                alt = f"Measured curves and printed points: {title} (section {layout.section} of the article)."
                alt += f" {words[:1].upper()}{words[1:]}." if (words := _summed(groups(layout, evidence))) else ""
                yield name, Drawn(f"article-{name}", alt, render(figure))


def _frame(layout: Layout, evidence: Evidence, note: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=_SIZE, layout="constrained")
    title = f"Section {layout.place('en').removeprefix('section ')}: {_TITLES.get(layout.id, layout.title.en)}"
    figure.suptitle(plain("\n".join(textwrap.wrap(title, 58))), x=0.01, ha="left", fontsize=10.5)
    cut = shortened(evidence, layout.studies)
    foot = [note] + ([f"SHORTENED RUN: {'; '.join(cut)}"] if cut else [])
    where = origin(layout, evidence, "en")
    foot.append(" · ".join([*where.lines, *where.commands]))
    lines = "\n".join(line for text in foot for line in textwrap.wrap(text, 132))
    figure.supxlabel(plain(lines), x=0.01, ha="left", fontsize=6.3, color=GREY)
    return figure, figure.subplots()


def _curves(layout: Layout, evidence: Evidence, published: Printed) -> Figure | None:
    """Validation loss by step."""
    results = evidence.results(layout.studies[0])
    columns = groups(layout, evidence)
    if results is None or not columns:
        return None
    words = _summed(columns)
    how = f"Median over the seeds; {words}, one that became NaN above all others" if words else "A thin line a seed"
    figure, axis = _frame(layout, evidence, f"{how} (validation loss); open markers: what the article prints.")
    runs = pd.concat([group.runs for group in columns])
    top = _scale(axis, runs, results, published)
    looks = _looks(layout)
    longest = max(int(runs["train.steps"].max()), *(int(row) for row, _ in published), 1)
    axis.set_xlim(-0.01 * longest, 1.03 * longest)
    for group in columns:
        colour = looks[group.key].colour
        if words:
            gone = draw_band(axis, loss_band(group.runs, results.taken), top, colour)
            if gone is not None:
                axis.plot([gone], [top], marker="X", color=colour, markeredgecolor="black", zorder=6)
            continue
        for run_id, onset in zip(group.runs["id"], group.runs["onset_step"], strict=True):
            taken = results.evaluations.get(run_id, pd.Series(dtype=float))
            axis.plot(taken.index, taken.clip(upper=top), color=colour, linewidth=0.9, zorder=3)
            if not pd.isna(onset):
                height = min(float(taken.iloc[-1]), top) if len(taken) else top
                axis.plot([float(onset)], [height], marker="X", color=colour, markeredgecolor="black", zorder=6)
    for (row, column), value in published.items():
        _printed(axis, float(row), value, top, looks[column])
    axis.set_xlabel("step")
    _legend(figure, layout, looks, runs, published)
    return figure


def _summed(columns: Sequence[Group]) -> str:
    """What is drawn of a cell's runs where they are too many to be drawn each; empty where they are not."""
    sizes = [int(n) for group in columns for n in group.rows.value_counts()]
    return band_words(sizes) if too_many_points(sizes) else ""


def _lines(layout: Layout, evidence: Evidence, published: Printed) -> Figure | None:
    """Final loss by learning rate or depth: means with the range over the seeds, printed values beside them."""
    columns = groups(layout, evidence)
    if not columns:
        return None
    rates = layout.corner.en == "learning rate"
    words = _summed(columns)
    note = (
        f"Median over the seeds, {words.replace('bands', 'bars')}, one without a final loss above all others."
        if words
        else "Mean over the seeds, bars from the lowest to the highest seed, dots a seed each; a mean is drawn where"
        " every seed has a finite loss."
    )
    figure, axis = _frame(layout, evidence, f"{note} Open markers: what the article prints.")
    runs = pd.concat([group.runs for group in columns])
    results = next(found for name in layout.studies if (found := evidence.results(name)) is not None)
    top = _scale(axis, runs, results, published)
    looks = _looks(layout)
    places = {row.key: math.log10(float(row.key)) if rates else float(i) for i, row in enumerate(layout.rows)}
    step = 0.035 if rates else 0.07
    shift = {key: step * (i - (len(looks) - 1) / 2) for i, key in enumerate(looks)}
    for group in columns:
        draw = _draw_bars if words else _draw_line
        draw(axis, group, places, shift[group.key], looks[group.key].colour, top)
    for (row, column), value in published.items():
        _printed(axis, places[row] + shift[column], value, top, looks[column])
    axis.set_xticks(list(places.values()), list(places))
    axis.set_xlabel(layout.corner.en)
    # Where bars stand for the runs, no mark stands for a NaN.
    _legend(figure, layout, looks, runs.iloc[:0] if words else runs, published)
    return figure


def _draw_bars(axis: Axes, group: Group, places: Mapping[str, float], shift: float, colour: str, top: float) -> None:
    """Median and bar from 10 to 90 % at each place, and the share that became NaN."""
    values: dict[float, list[float]] = {}
    for row, place in places.items():
        runs = group.runs[group.rows == row]
        values[place + shift] = [float(loss) for loss in runs["final_loss"].fillna(math.inf)]
        gone = int((runs["outcome"] == "nan").sum())
        if gone:
            where: Any = {"textcoords": "offset points", "ha": "center", "va": "top", "rotation": 90, "fontsize": 6}
            axis.annotate(f"{100 * gone / len(runs):.2g} % NaN", (place + shift, top), (0, -8), color=colour, **where)
    band = band_of(values)
    axis.vlines(band.at, np.minimum(band.low, top), np.minimum(band.high, top), color=colour, linewidth=3, alpha=0.5)
    median = np.where(np.isfinite(band.median), np.minimum(band.median, top), np.nan)
    axis.plot(band.at, median, color=colour, linewidth=1.1, marker="o", markersize=4, zorder=4)


def _draw_line(axis: Axes, group: Group, places: Mapping[str, float], shift: float, colour: str, top: float) -> None:
    means: list[float] = []
    xs = [places[row] + shift for row in places]
    for x, row in zip(xs, places, strict=True):
        runs = group.runs[group.rows == row]
        losses = [float(loss) for loss in runs["final_loss"].dropna()]
        whole = bool(len(runs)) and bool(runs["outcome"].isin(FINITE_OUTCOMES).all())
        means.append(min(sum(losses) / len(losses), top) if whole else math.nan)
        shown = [min(loss, top) for loss in losses]
        axis.plot([x] * len(shown), shown, marker=".", markersize=4, linestyle="", color=colour, zorder=4)
        if len(shown) > 1:
            axis.vlines(x, min(shown), max(shown), color=colour, linewidth=1.6, zorder=3)
        gone = int((runs["outcome"] == "nan").sum())
        if gone:
            axis.plot([x], [top], marker="X", color=colour, markeredgecolor="black", clip_on=False, zorder=6)
            axis.annotate(
                f"{gone}/{len(runs)}", (x, top), (5, -9), textcoords="offset points", fontsize=6, color=colour
            )
    axis.plot(xs, means, color=colour, linewidth=1.1, zorder=3)


def _scale(axis: Axes, runs: pd.DataFrame, results: Results, published: Printed) -> float:
    """Set the loss axis so that runs and printed values fit; returns its upper edge, where NaN stands."""
    losses = [*runs["final_loss"], *runs["initial_loss"], *(_number(value) for value in published.values())]
    low, high, _ = loss_range(runs, pd.Series(losses, dtype=float))
    top = high + 0.12 * (high - low)
    axis.set_ylim(low - 0.05 * (high - low), top)
    axis.set_ylabel("validation loss (nats)")
    reference_lines(axis, runs, results)
    return top


def _looks(layout: Layout) -> dict[str, Look]:
    inks = colours([head.en for head in layout.columns])
    return {head.key: Look(ink, marker) for head, (ink, _), marker in zip(layout.columns, inks, _MARKERS, strict=False)}


def _number(text: str) -> float:
    """The number that a printed cell starts with; NaN for none."""
    found = re.match(r"[\d.]*\d", text)
    return float(found[0]) if found else math.nan


def _printed(axis: Axes, x: float, text: str, top: float, look: Look) -> None:
    """An open marker at a printed value; NaN at the top edge; what is printed behind the number beside it."""
    number = _number(text)
    lost = math.isnan(number)
    y, marker, size = (top, "X", 8) if lost else (number, look.marker, 6.5)
    axis.plot([x], [y], marker=marker, color=look.colour, zorder=5, markersize=size, **_OPEN)
    remark = text.partition(",")[2].strip()
    if remark and not lost:
        style: Any = {"fontsize": 6.5, "color": look.colour, "textcoords": "offset points"}
        axis.annotate(plain(f"printed: {text}"), (x, y), (7, 3), **style)


def _legend(figure: Figure, layout: Layout, looks: Mapping[str, Look], runs: pd.DataFrame, published: Printed) -> None:
    heads = {head.key: head.en for head in layout.columns}
    handles = [Line2D([], [], color=look.colour, label=heads[key]) for key, look in looks.items()]
    for key, look in looks.items():
        handles.append(Line2D([], [], color=look.colour, marker=look.marker, label=f"printed: {heads[key]}", **_OPEN))
    if any(math.isnan(_number(value)) for value in published.values()):
        handles.append(Line2D([], [], color=GREY, marker="X", label="printed: NaN", **_OPEN))
    if (runs["outcome"] == "nan").any():
        handles.append(
            Line2D([], [], color=GREY, marker="X", markeredgecolor="black", linestyle="", label="measured: NaN")
        )
    figure.legend(handles=handles, loc="outside right upper", alignment="left")


def _ratios(layout: Layout, evidence: Evidence, published: Printed) -> Figure | None:
    """By how much RMSNorm is faster than LayerNorm, by shape: the interval of the rounds, and the printed share."""
    measure = evidence.measure("speed")
    ratios = ((measure.values.get("norm-speed") or {}).get("ratio") if measure else None) or {}
    there = [row for row in layout.rows if row.key in ratios]
    if not there:
        return None
    figure, axis = _frame(
        layout, evidence, "Dot: median over the rounds, bar: 20th to 80th percentile; below 0 RMSNorm is slower."
    )
    colour = colours(["measured"])[0][0]
    axis.axhline(0, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    for i, row in enumerate(there):
        ratio = ratios[row.key]
        axis.vlines(i, 100 * ratio["low"], 100 * ratio["high"], color=colour, linewidth=3)
        axis.plot([i], [100 * ratio["median"]], marker="o", color=colour, linestyle="")
        where: Any = {"textcoords": "offset points", "ha": "center", "fontsize": 7}
        axis.annotate(share_text(ratio), (i, 100 * ratio["low"]), (0, -11), **where)
        share = _number(published.get((row.key, "rmsnorm faster by"), ""))
        axis.plot([i], [share], marker="o", color="black", markersize=6.5, **_OPEN)
    axis.set_xticks(range(len(there)), [row.en for row in there])
    axis.set_xlim(-0.5, len(there) - 0.5)
    axis.margins(y=0.15)
    axis.set_xlabel(layout.corner.en)
    axis.set_ylabel("RMSNorm faster by (%)")
    handles = [
        Line2D([], [], color=colour, marker="o", label="measured"),
        Line2D([], [], color="black", marker="o", label="printed", **_OPEN),
    ]
    figure.legend(handles=handles, loc="outside right upper", alignment="left")
    return figure


_DRAWERS: dict[str, Callable[[Layout, Evidence, Printed], Figure | None]] = {
    "warmup-curve": _curves,
    "collapse-20": _curves,
    "collapse-depth": _lines,
    "lr-sensitivity": _lines,
    "norm-speed": _ratios,
}
FIGURES = tuple(_DRAWERS)
