"""Tables of `mechanism`: what the nets with and without norm did at their worst, and at a few steps."""

from __future__ import annotations

from typing import Any

import pandas as pd

from normlab.analysis.measured_text import by_seed, seeds_text
from normlab.analysis.table import Table
from normlab.catalogue import NORMS
from normlab.measures import Measure

STEPS = (0, 100, 300, 500, 1000, 2000, 3000)
COLUMNS = {
    "largest_forward_norm": "forward norm",
    "saturated_share": "saturated (%)",
    "grad_norm": "gradient norm",
    "growth_per_layer": "growth a layer (%)",
}
_PERCENT = ("saturated_share", "off_share", "growth_per_layer")


def titles(measure: Measure) -> dict[str, str]:
    """What the norms of the nets are called, in their order."""
    return {row["norm"]: NORMS.title(row["norm"]) for row in measure.values["collapse-mechanism"]["rows"]}


def tables(measure: Measure) -> list[Table]:
    """The extremes; by step."""
    return [_extremes(measure), _by_step(measure)]


def _extremes(measure: Measure) -> Table:
    found, growth = measure.values["collapse-mechanism"], measure.values["growth-in-training"]
    norms = titles(measure)
    named: dict[str, tuple[bool, dict[str, list[float]]]] = {}
    for key, words in (
        ("largest_forward_norm", "largest forward norm (mean over tokens)"),
        ("largest_token_norm", "largest forward norm of a single token"),
        ("largest_grad_norm", "largest gradient norm, all steps"),
    ):
        named[words] = (False, {norm: by_seed(found[key][norm]) for norm in norms})
    for share, words in (("saturated_share", "saturated"), ("off_share", "switched off")):
        for when, at in (("start", "before training"), ("peak", "at its peak"), ("end", "at the end")):
            values = {norm: by_seed(found[share][f"{norm}_{when}"]) for norm in norms}
            named[f"{words} inputs of the GELU {at} (%)"] = (True, values)
    for when, at in (("start", "before training"), ("end", "at the end")):
        named[f"growth of the stream a layer {at} (%)"] = (True, {"layernorm": by_seed(growth[f"at_{when}"])})
    rows, data = [], []
    for words, (percent, values) in named.items():
        rows.append(
            [words, *(seeds_text(values[norm], 100 if percent else 1) if norm in values else "–" for norm in norms)]
        )
        for norm, of_seeds in values.items():
            data += [
                {"quantity": words.removesuffix(" (%)"), "norm": norm, "seed": seed, "value": value}
                for seed, value in zip(measure.settings["seeds"], of_seeds, strict=True)
            ]
    rows.append(["first step with something non-finite", *(_onsets(found["onset_step"][norm]) for norm in norms)])
    title = f"what the nets did at their worst, {measure.settings['steps']} steps"
    return Table("extremes", title, ["quantity", *norms.values()], rows, pd.DataFrame(data), _about(measure))


def _onsets(leaf: dict[str, Any]) -> str:
    steps = leaf["by_seed"]
    return ", ".join("never" if step is None else f"{step:.0f}" for step in dict.fromkeys(steps.values()))


def _about(measure: Measure) -> str:
    model, optim = measure.settings["spec"]["model"], measure.settings["spec"]["optim"]
    return f"{model['depth']} layers, placement {model['placement']}, learning rate {optim['lr']:g}."


def _by_step(measure: Measure) -> Table:
    data = pd.DataFrame(measure.values["collapse-mechanism"]["rows"])
    last = data["step"].max()
    rows = []
    for norm, words in titles(measure).items():
        for step in [*(step for step in STEPS if step < last), last]:
            here = data[(data["norm"] == norm) & (data["step"] == step)]
            cells = [seeds_text(list(here[key].astype(float)), 100 if key in _PERCENT else 1) for key in COLUMNS]
            rows.append([f"{words}, step {step}", *cells])
    return Table(
        "by_step", "inside the nets by step", ["norm and step", *COLUMNS.values()], rows, data, _about(measure)
    )
