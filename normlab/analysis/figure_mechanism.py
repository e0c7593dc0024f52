"""What the nets with and without norm do inside, by training step."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from normlab.analysis.canvas import colours, render
from normlab.analysis.figure_measure import band, logarithmic, series, sheet
from normlab.analysis.measured_mechanism import titles
from normlab.analysis.provenance import Provenance
from normlab.measures import Measure

PANELS = {
    "largest_forward_norm": "largest forward norm",
    "grad_norm": "gradient norm",
    "saturated_share": "saturated share of the GELU",
    "off_share": "switched-off share of the GELU",
    "growth_per_layer": "growth of the stream a layer",
    "train_loss": "training loss of a batch (nats)",
}
_LOGARITHMIC = ("largest_forward_norm", "grad_norm")


def draw_all(measure: Measure, source: Provenance) -> Iterator[tuple[str, dict[str, bytes]]]:
    """`by_step` and `by_layer`."""
    yield "by_step", render(by_step(measure, source))
    yield "by_layer", render(by_layer(measure, source))


def by_step(measure: Measure, source: Provenance) -> Figure:
    """A panel a quantity; early steps are drawn wider (logarithmic from step 10 on)."""
    rows = measure.values["collapse-mechanism"]["rows"]
    note = "Line: mean over the seeds; band: their range; a gap: not finite. The axis of steps is linear up to 10."
    title = f"inside a {measure.settings['spec']['model']['depth']}-layer net with and without LayerNorm"
    norms = titles(measure)
    figure, axes = sheet(source, title, 2, 3, (3.0, 2.3), note, sharex=True)
    for axis, (key, words) in zip([axis for row in axes for axis in row], PANELS.items(), strict=True):
        for (norm, label), (colour, style) in zip(norms.items(), colours(list(norms)), strict=True):
            band(axis, series(rows, "step", key, norm=norm), colour, label, linestyle=style)
        if key in _LOGARITHMIC:
            logarithmic(axis)
        axis.set_xscale("symlog", linthresh=10)
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_xlim(0, measure.settings["steps"])
        axis.set_title(words)
    for axis in axes[-1]:
        axis.set_xlabel("step")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside right upper")
    return figure


def by_layer(measure: Measure, source: Provenance) -> Figure:
    """A panel a norm: mean token norm of the stream by layer, a line a step."""
    profiles = measure.values["collapse-mechanism"]["profiles"]
    note = "Line: mean over the seeds; band: their range; a gap: not finite. 0 is the embedding."
    title = "norm of the residual stream by layer"
    norms = titles(measure)
    figure, (axes,) = sheet(source, title, 1, len(norms), (3.6, 2.8), note, sharey=True, sharex=True)
    points = [
        {**profile, "layer": layer, "value": value}
        for profile in profiles
        for layer, value in enumerate(profile["norms"])
    ]
    steps = sorted({profile["step"] for profile in profiles})
    for axis, (norm, label) in zip(axes, norms.items(), strict=True):
        for step, (colour, style) in zip(steps, colours([str(step) for step in steps]), strict=True):
            band(axis, series(points, "layer", "value", norm=norm, step=step), colour, f"step {step}", linestyle=style)
        logarithmic(axis)
        axis.set_title(label)
        axis.set_xlabel("layer")
    axes[0].set_ylabel("mean token norm")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper")
    return figure
