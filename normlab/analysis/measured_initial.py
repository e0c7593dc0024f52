"""Tables of `initial`: gradients from the first block to the last and by depth, and growth of the stream."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from normlab import catalogue
from normlab.analysis.measured_text import by_seed, seeds_text
from normlab.analysis.table import Table
from normlab.catalogue import NORMS
from normlab.measures import Measure

# Words by the suffix of the keys.
INITS = {"": "small_normal (default reading)", "_torch_init": "torch", "_xavier_init": "xavier (the paper's)"}
PLACEMENTS = {**{name: catalogue.PLACEMENTS.title(name) for name in ("post", "pre")}, "none": NORMS.title("none")}


def tables(measure: Measure) -> list[Table]:
    """Last block over first; last block by depth; growth of the stream; every block."""
    return [
        _ratios(
            measure,
            "last_over_first",
            "last_over_first",
            "gradient norm of the last block over that of the first",
            "Above 1: larger near the output layer; 1: flat.",
        ),
        _ratios(
            measure,
            "last_over_first_outer",
            "last_over_first_outer",
            "the same for the outer feed-forward weight alone",
            "Above 1: larger near the output layer; 1: flat.",
        ),
        _by_depth(measure),
        _growth(measure),
        _layers(measure),
    ]


def _ratios(measure: Measure, key: str, name: str, title: str, notes: str) -> Table:
    found, depths = measure.values["postln-gradient"], measure.settings["depths"]
    rows, data = [], []
    for suffix, init in INITS.items():
        for placement, words in PLACEMENTS.items():
            cells = [by_seed(found[f"{key}{suffix}"][f"{placement}_{depth}"]) for depth in depths]
            rows.append([f"{words}, init {init}", *map(seeds_text, cells)])
            data += [
                {"init": init, "placement": placement, "depth": depth, **_summary(cell)}
                for depth, cell in zip(depths, cells, strict=True)
            ]
    header = ["placement and init", *(f"{depth} layers" for depth in depths)]
    return Table(name, title, header, rows, pd.DataFrame(data), notes)


def _by_depth(measure: Measure) -> Table:
    title = "gradient norm of the last block's outer weight by depth"
    table = _ratios(measure, "last_outer", "last_by_depth", title, "")
    depths = measure.settings["depths"]
    found = measure.values["postln-gradient"]
    shallow, deep = min(depths), max(depths)
    changes = []
    for suffix in INITS:
        for placement in PLACEMENTS:
            ends = [by_seed(found[f"last_outer{suffix}"][f"{placement}_{depth}"]) for depth in (shallow, deep)]
            changes.append(seeds_text([last / first for first, last in zip(*ends, strict=True)]))
    rows = [[*row, change] for row, change in zip(table.rows, changes, strict=True)]
    theory = math.sqrt(shallow / deep)
    notes = f"The theorem of arXiv:2002.04745 has 1 for Post-LN and {theory:.2f} for Pre-LN in the last column."
    return Table(table.name, table.title, [*table.header, f"{deep} over {shallow} layers"], rows, table.data, notes)


def _growth(measure: Measure) -> Table:
    found = measure.values["initial-growth"]
    rows, data = [], []
    depth = max(row["layer"] for row in found["rows"])
    for suffix, init in INITS.items():
        rates = by_seed(found[f"growth_per_layer{suffix}"])
        norms = pd.DataFrame(found[f"rows{suffix}"])
        ends = [list(norms.loc[norms["layer"] == layer, "norm"]) for layer in (0, depth)]
        rows.append([init, *map(seeds_text, ends), seeds_text([100 * rate for rate in rates])])
        data.append({"init": init, **_summary(rates)})
    return Table(
        "growth",
        f"growth of the residual stream, Pre-LN, {depth} layers, before training",
        ["init", "mean token norm, embedding", "after the last block", "growth a layer (%)"],
        rows,
        pd.DataFrame(data),
        "Growth a layer is geometric: last norm over first, to the power of 1 over the number of layers, less 1.",
    )


def _layers(measure: Measure) -> Table:
    found = measure.values["postln-gradient"]
    frames = [pd.DataFrame(found[f"rows{suffix}"]).assign(init=init) for suffix, init in INITS.items()]
    data = pd.concat(frames, ignore_index=True)
    deepest = data[data["depth"] == data["depth"].max()]
    means = deepest.groupby(["layer", "init", "placement"])["grad_norm"].mean()
    columns = {(i, p): f"{w}, {i.split(' ')[0]}" for i in INITS.values() for p, w in PLACEMENTS.items()}
    wide = pd.DataFrame({name: means.xs(key, level=("init", "placement")) for key, name in columns.items()})
    rows = [
        [str(layer), *(f"{value:.3g}" for value in values)]
        for layer, values in zip(wide.index, wide.values, strict=True)
    ]
    title = f"gradient norm by block, {data['depth'].max()} layers"
    notes = "Means over the seeds; every depth and seed is in measure.json."
    return Table("layers", title, ["block", *columns.values()], rows, wide.reset_index(names="block"), notes)


def _summary(values: list[float]) -> dict[str, Any]:
    series = pd.Series(values, dtype=float)
    return {
        "n": len(series),
        "mean": series.mean(skipna=False),
        "sd": series.std(skipna=False),
        "text": seeds_text(values),
    }
