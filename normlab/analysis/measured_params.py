"""The tables of `normlab params`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from normlab.analysis.table import Table
from normlab.measures import Measure

_NAMES = {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm", "dyt": "DyT", "none": "none"}


def tables(measure: Measure) -> list[Table]:
    """One table: a row a norm, parameters and reductions at the setting asked for."""
    rows = measure.values["counts"]["rows"]
    header = ["norm", "one norm", "one layer", "all norms", "saved", "share of the model"]
    header += ["reductions, one norm", "one layer", "model"]
    columns = ("per_norm", "per_layer", "model", "saved")
    reductions = ("reductions_per_norm", "reductions_per_layer", "reductions_model")
    cells = [
        [_NAMES[row["norm"]]]
        + [f"{row[key]:,}" for key in columns]
        + ["–" if row["share"] is None else f"{100 * row['share']:.2g}%"]
        + [f"{row[key]:,}" for key in reductions]
        for row in rows
    ]
    title = "parameters and reductions of the norms"
    return [Table("params", title, header, cells, pd.DataFrame(rows), _note(measure.settings))]


def _note(settings: Mapping[str, Any]) -> str:
    per_layer, final = settings["norms_per_layer"], settings["final_norm"]
    before = {"none": "no norm before the head", "same": "the same norm before the head"}
    note = (
        f"Width {settings['width']:,}, {settings['depth']:,} layers, {per_layer} norm{'s' if per_layer != 1 else ''} a"
        f" layer, {before.get(final, f'always {_NAMES.get(final, final)} before the head')}."
        " Saved: against LayerNorm. Reductions: sums over the width, a token's forward pass."
    )
    if settings["model_parameters"] is not None:
        own = _NAMES[settings["model_norm"]]
        note += f" Share: of the model's {settings['model_parameters']:,} parameters with {own}."
    return note
