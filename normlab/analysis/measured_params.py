"""The tables of `normlab params`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from normlab.analysis.table import Table
from normlab.catalogue import NORMS
from normlab.manifests import names_of_plugins
from normlab.measures import Measure

_FINAL = {"none": "no norm", "same": "the same norm", "auto": "the norm that each asks for"}


def tables(measure: Measure) -> list[Table]:
    """One table: a row a norm, parameters and reductions at the setting asked for."""
    with names_of_plugins(measure.settings):
        return [_table(measure)]


def _table(measure: Measure) -> Table:
    rows = measure.values["counts"]["rows"]
    header = ["norm", "one norm", "one layer", "all norms", "saved", "share of the model"]
    header += ["reductions, one norm", "one layer", "model"]
    columns = ("per_norm", "per_layer", "model", "saved")
    reductions = ("reductions_per_norm", "reductions_per_layer", "reductions_model")
    cells = [
        [NORMS.title(row["norm"])]
        + [f"{row[key]:,}" for key in columns]
        + ["–" if row["share"] is None else f"{100 * row['share']:.2g}%"]
        + [f"{row[key]:,}" for key in reductions]
        for row in rows
    ]
    title = "parameters and reductions of the norms"
    return Table("params", title, header, cells, pd.DataFrame(rows), _note(measure.settings))


def _note(settings: Mapping[str, Any]) -> str:
    per_layer, final = settings["norms_per_layer"], settings["final_norm"]
    before = _FINAL.get(final) or f"always {NORMS.title(final)}"
    note = (
        f"Width {settings['width']:,}, {settings['depth']:,} layers, {per_layer} norm{'s' if per_layer != 1 else ''} a"
        f" layer, {before} before the head."
        " Saved: against LayerNorm. Reductions: sums over the width, a token's forward pass."
    )
    if settings["model_parameters"] is not None:
        own = NORMS.title(settings["model_norm"])
        note += f" Share: of the model's {settings['model_parameters']:,} parameters with {own}."
    return note
