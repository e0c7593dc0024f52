"""What the figures share: style, panels, reference lines, foot, and rendering to the same bytes each time."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from normlab.analysis.frames import Results
from normlab.analysis.provenance import origin_text

MAX_PANELS = 24
# Okabe and Ito's colours, told apart with any kind of colour vision.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STYLES = ("-", "--", ":", "-.")
GREY = "#666666"
_STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that text has the same width everywhere
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "figure.dpi": 150,
    "savefig.dpi": 150,
    "svg.hashsalt": "normlab",
    "svg.fonttype": "path",
}


@contextmanager
def styled() -> Iterator[None]:
    """Our style and nothing of the user's matplotlibrc, without touching pyplot or a display."""
    with matplotlib.style.context(["default", _STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def panels(
    results: Results, count: int, title: str, *, size: tuple[float, float], columns: int = 0, note: str = ""
) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels of `size` inches (width, height) with shared axes, the title above, line by line, the
    note and the origin of the results below."""
    width, height = size
    columns = columns or (count if count <= 3 else 4 if count in (4, 7, 8) or count > 9 else 3)
    rows = -(-count // columns)
    figure = Figure(figsize=(columns * width + 1.8, rows * height + 1.0), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    axes = list(grid.flat)
    for spare in axes[count:]:
        spare.set_visible(False)
    for position, axis in enumerate(axes[:count]):
        # The lowest panel of a column carries the labels even where the last row is not full.
        axis.tick_params(labelbottom=position + columns >= count)
    inches = columns * width + 1.8
    head = "\n".join(textwrap.fill(line, int(inches * 12)) for line in f"{results.study.name}: {title}".splitlines())
    figure.suptitle(plain(head), x=0.01, ha="left", fontsize=11)
    foot = "\n".join(
        textwrap.fill(line, int(inches * 19)) for line in [*([note] if note else []), origin_text(results)]
    )
    figure.supxlabel(plain(foot), x=0.01, ha="left", fontsize=6.5, color=GREY)
    return figure, axes[:count]


def outer(axes: Sequence[Axes], x: str, y: str) -> None:
    """Label x under the lowest panels and y beside the leftmost ones."""
    for axis in axes:
        if axis.xaxis.get_tick_params()["labelbottom"]:
            axis.set_xlabel(x)
        if axis.get_subplotspec().is_first_col():  # type: ignore[union-attr]
            axis.set_ylabel(y)


def plain(text: str) -> str:
    """Text in which matplotlib finds no mathematics."""
    return text.replace("$", r"\$")


def colours(labels: Sequence[str]) -> list[tuple[str, Any]]:
    """Colour and line style for each label: in order of lightness where they are four numbers or more."""
    if len(labels) >= 4 and all(_is_number(label) for label in labels):
        ramp = matplotlib.colormaps["viridis"]
        return [(matplotlib.colors.to_hex(ramp(0.86 * i / (len(labels) - 1))), "-") for i in range(len(labels))]
    n = len(_COLOURS)
    return [(_COLOURS[i % n], _STYLES[i // n % len(_STYLES)]) for i in range(len(labels))]


def _is_number(label: str) -> bool:
    try:
        float(label)
    except ValueError:
        return False
    return True


def loss_range(runs: pd.DataFrame, losses: pd.Series) -> tuple[float, float, bool]:
    """Ends of a loss axis that shows `losses`, floor and uniform loss, and whether losses were cut off: no more than
    1.5 nats above the loss of guessing are shown, or one run that has gone away would flatten all the others."""
    finite = losses[np.isfinite(losses)]
    if not len(finite):
        return 0.0, 6.0, False
    limit = float(runs["uniform"].max()) + 1.5
    bottom, top = min(finite.min(), runs["floor"].min()), max(finite.max(), runs["uniform"].max())
    return float(bottom), float(min(top, limit)), bool(top > limit)


def reference_lines(axis: Axes, runs: pd.DataFrame, results: Results) -> None:
    """Uniform loss and floor of each task among `runs`, as labelled lines.

    Where all panels have the same lines their labels stand beside the last column, clear of the data."""
    same = len(results.runs[["uniform", "floor"]].dropna().drop_duplicates()) == 1
    last = axis.get_subplotspec().is_last_col()  # type: ignore[union-attr]
    place: Any = {"xytext": (3, 0), "ha": "left", "va": "center"} if same else {"xytext": (-2, 1), "ha": "right"}
    for name in ("uniform", "floor"):
        for value in sorted(set(runs[name].dropna())):
            axis.axhline(value, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
            if last or not same:
                where: Any = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", **place}
                text = f"{name}\n{value:.2f}" if same else f"{name} {value:.2f}"
                axis.annotate(text, (1, value), fontsize=7, color=GREY, **where)


def render(figure: Figure) -> dict[str, bytes]:
    """The figure as svg and png, without date and version, so that the same figure gives the same bytes."""
    # The layout is worked out once, for both; savefig would do it again for each.
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    images = {}
    for suffix, canvas in (("svg", FigureCanvasSVG), ("png", FigureCanvasAgg)):
        canvas(figure)
        metadata = {"Date": None, "Creator": "normlab"} if suffix == "svg" else {"Software": None}
        buffer = io.BytesIO()
        figure.savefig(buffer, format=suffix, metadata=metadata)
        images[suffix] = buffer.getvalue()
    return images
