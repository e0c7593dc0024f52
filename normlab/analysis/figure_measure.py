"""A figure of a measure: panels in a row, title above, note and origin below."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from numpy.typing import NDArray

from normlab.analysis.canvas import GREY, plain
from normlab.analysis.provenance import Provenance


def sheet(
    source: Provenance, title: str, rows: int, columns: int, size: tuple[float, float], note: str = "", **shared: Any
) -> tuple[Figure, list[list[Axes]]]:
    """A figure of rows x columns panels of `size` inches each; `shared` goes to matplotlib's `subplots`."""
    width, height = columns * size[0], rows * size[1] + 1.1
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **shared)
    figure.suptitle(plain(textwrap.fill(f"{source.name}: {title}", int(width * 12))), x=0.01, ha="left", fontsize=11)
    origin = " · ".join([*source.counts, source.origin, source.command])
    foot = "\n".join(textwrap.fill(line, int(width * 19)) for line in (note, origin) if line)
    figure.supxlabel(plain(foot), x=0.01, ha="left", fontsize=6.5, color=GREY)
    return figure, [list(row) for row in axes]


def band(axis: Axes, by_seed: Mapping[int, Mapping[float, float | None]], colour: str, label: str, **look: Any) -> None:
    """The mean over seeds as a line and the seeds' range as a band; x and y by seed. A value that is not finite breaks
    line and band: it is never averaged away."""
    xs = sorted({x for values in by_seed.values() for x in values})
    table: NDArray[np.float64] = np.array(
        [[np.nan if values.get(x) is None else values[x] for x in xs] for values in by_seed.values()], dtype=float
    )
    axis.plot(xs, table.mean(0), color=colour, label=label, **{"linewidth": 1.4, **look})
    if len(table) > 1:
        axis.fill_between(xs, table.min(0), table.max(0), color=colour, alpha=0.2, linewidth=0)


def series(rows: Sequence[Mapping[str, Any]], x: str, y: str, **where: Any) -> dict[int, dict[float, float | None]]:
    """y by x by seed, of the rows whose fields equal `where`."""
    found: dict[int, dict[float, float | None]] = {}
    for row in rows:
        if all(row[key] == value for key, value in where.items()):
            found.setdefault(row["seed"], {})[row[x]] = row[y]
    return found


def logarithmic(axis: Axes) -> None:
    """A logarithmic y axis with plain numbers at 1, 2 and 5 times the powers of ten."""
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
