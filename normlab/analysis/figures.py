"""The figures of a study: loss curves, final loss against learning rate, activations by layer and step."""

from __future__ import annotations

from collections.abc import Iterator

from normlab.analysis import figure_activations, figure_curves, figure_rates
from normlab.analysis.canvas import render, styled
from normlab.analysis.frames import Results
from normlab.analysis.tables import has_rates


def all_figures(results: Results) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Name and images (by suffix, svg and png) of each figure; that of learning rates only where they are an axis."""
    with styled():
        yield "loss_curves", render(figure_curves.draw(results))
        if has_rates(results):
            yield "loss_vs_lr", render(figure_rates.draw(results))
        yield "activations", render(figure_activations.draw(results))
