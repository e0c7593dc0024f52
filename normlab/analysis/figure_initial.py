"""Gradient norm by block before training, and the residual stream's norm by layer."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from normlab.analysis.canvas import colours, render
from normlab.analysis.figure_measure import band, logarithmic, series, sheet
from normlab.analysis.measured_initial import INITS, PLACEMENTS
from normlab.analysis.provenance import Provenance
from normlab.measures import Measure


def draw_all(measure: Measure, source: Provenance) -> Iterator[tuple[str, dict[str, bytes]]]:
    """`gradients` and `growth`."""
    yield "gradients", render(gradients(measure, source))
    yield "growth", render(growth(measure, source))


def gradients(measure: Measure, source: Provenance) -> Figure:
    """A row an init, a column a depth; the y axis is logarithmic and shared within a row."""
    depths, found = measure.settings["depths"], measure.values["postln-gradient"]
    note = "Line: mean over the seeds; band: their range. Gradient of the loss on one batch, all parameters of a block."
    title = "gradient norm by block at initialisation"
    figure, axes = sheet(source, title, len(INITS), len(depths), (2.5, 2.0), note, sharey="row")
    for row, (suffix, init) in zip(axes, INITS.items(), strict=True):
        for axis, depth in zip(row, depths, strict=True):
            for (name, words), (colour, style) in zip(PLACEMENTS.items(), colours(list(PLACEMENTS)), strict=True):
                values = series(found[f"rows{suffix}"], "layer", "grad_norm", placement=name, depth=depth)
                band(axis, values, colour, words, linestyle=style)
            logarithmic(axis)
            axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            axis.set_title(f"{depth} layers, init {init.split(' ')[0]}")
        row[0].set_ylabel("gradient norm")
    for axis in axes[-1]:
        axis.set_xlabel("block")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside right upper")
    return figure


def growth(measure: Measure, source: Provenance) -> Figure:
    """One panel, a line an init, logarithmic: a straight line is a constant growth a layer."""
    found = measure.values["initial-growth"]
    note = "Mean over the tokens of one batch; line: mean over the seeds, band: their range. 0 is the embedding."
    title = "norm of the residual stream by layer at initialisation, Pre-LN, 20 layers"
    figure, ((axis,),) = sheet(source, title, 1, 1, (7.0, 3.4), note)
    for (suffix, init), (colour, style) in zip(INITS.items(), colours(list(INITS)), strict=True):
        band(axis, series(found[f"rows{suffix}"], "layer", "norm"), colour, init, linestyle=style)
    logarithmic(axis)
    axis.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    axis.set_xlabel("layer")
    axis.set_ylabel("mean token norm")
    axis.legend(title="init")
    return figure
