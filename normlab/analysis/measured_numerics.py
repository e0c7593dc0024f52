"""Tables of `numerics`: which printed numbers come out, the nearest settings, precision, what is before the head."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from normlab.analysis.table import Table
from normlab.measures import Measure

NONE = "–"


def tables(measure: Measure) -> list[Table]:
    """By experiment first; then by printed number, by nearest setting, by precision, by model."""
    return [
        _agreement(measure),
        _numbers(measure),
        _nearest(measure),
        _precision(measure),
        _final_norm(measure),
        _identities(measure),
    ]


def number(value: float | None) -> str:
    """Six significant digits; `not finite` for a null."""
    return "not finite" if value is None or math.isnan(value) else f"{value:.6g}"


def at(values: Any, path: str) -> float | None:
    """The number at a dotted path."""
    for key in path.split("."):
        values = values[int(key)] if isinstance(values, list) else values[key]
    return None if values is None else float(values)


def _printed(measure: Measure) -> Iterator[dict[str, Any]]:
    """A row a printed number: experiment, path, printed, measured, difference, agrees, nearest."""
    settings = measure.settings
    for experiment, printed in settings["printed"].items():
        values: Mapping[str, Any] = measure.values[experiment]
        for path, text in printed.items():
            measured, near = at(values, path), values.get("nearest")
            exact = None if text.startswith("~") or measured is None else measured - float(text)
            yield {
                "experiment": experiment,
                "number": path,
                "printed": text,
                "measured": measured,
                "difference": exact,
                "agrees": settings["agrees"][experiment][path],
                "nearest": at(near, path) if near else None,
            }


def _agreement(measure: Measure) -> Table:
    data, rows = [], []
    for experiment, group in pd.DataFrame(_printed(measure)).groupby("experiment", sort=False):
        near = measure.values[str(experiment)].get("nearest") or {}
        agree, largest = int(group["agrees"].sum()), group["difference"].abs().max()
        row = {"experiment": experiment, "printed": len(group), "agree": agree, "largest_difference": largest}
        data.append({**row, "nearest_distance": near.get("distance"), "nearest_setting": near.get("setting")})
        far = NONE if agree == len(group) or pd.isna(largest) else f"{largest:.3g}"
        distance = f"{near['distance']:.2g}" if near else NONE
        rows.append([str(experiment), str(len(group)), str(agree), far, distance])
    return Table(
        "agreement",
        "printed numbers that come out, by experiment",
        ["experiment", "printed numbers", "agree", "largest difference", "distance of the nearest setting"],
        rows,
        pd.DataFrame(data),
        "The distance is the root mean square of measured minus printed in the setting that comes nearest; the table"
        " `nearest` names it.",
    )


def _numbers(measure: Measure) -> Table:
    data = pd.DataFrame(_printed(measure))
    rows = []
    for row in _records(data):
        difference = NONE if pd.isna(row["difference"]) else f"{row['difference']:+.2g}"
        near = NONE if pd.isna(row["nearest"]) else number(row["nearest"])
        name = f"{row['experiment']}: {row['number']}"
        rows.append([name, row["printed"], number(row["measured"]), difference, _yes(row["agrees"]), near])
    return Table(
        "numbers",
        "every printed number",
        ["number", "printed", "measured", "difference", "agrees", "nearest setting gives"],
        rows,
        data,
        _twice_printed(measure),
    )


def _twice_printed(measure: Measure) -> str:
    batch, layer = measure.values["batch-statistics"]["k1"], measure.values["layer-statistics"]["sequences"][0]
    if batch != layer:
        return ""
    return (
        "The statistics of the first sequence alone (k1) and those of sequence 0 are the same two numbers, and the"
        " article prints two different pairs for them: no setting gives both."
    )


def _nearest(measure: Measure) -> Table:
    data = []
    for experiment, family in measure.settings["families"].items():
        for kind in ("nearest", "simplest"):
            found = measure.values[experiment].get(kind)
            if found:
                tried = found.get("tried")
                row = {"experiment": experiment, "kind": kind, "distance": found["distance"], "tried": tried}
                data.append({**row, "setting": found["setting"], "family": family})
    rows = [
        [
            row["experiment"],
            f"{row['distance']:.2g}",
            NONE if pd.isna(row["tried"]) else f"{row['tried']:.0f}",
            row["setting"],
        ]
        for row in _records(pd.DataFrame(data))
    ]
    families = "; ".join(f"{experiment}: {family}" for experiment, family in measure.settings["families"].items())
    return Table(
        "nearest",
        "settings that come nearest to what is printed",
        ["experiment", "distance", "settings tried", "setting"],
        rows,
        pd.DataFrame(data),
        f"Tried: {families}. A row without a number of settings is the simplest change that has the printed size."
        " The more settings are tried, the nearer the nearest comes by chance.",
    )


def _precision(measure: Measure) -> Table:
    found = measure.values["fp16-eps"]
    data = pd.DataFrame(found["rows"])
    outputs = [str(name) for name in data if str(name).startswith("rms_eps")]
    rows = []
    for row in _records(data):
        cells = ["nan" if pd.isna(row[name]) else f"{row[name]:.3g}" for name in outputs]
        variance = "overflows" if row["infinite"] else "0" if row["zero"] == 1 else f"{row['variance']:.3g}"
        rows.append([f"{row['dtype']}, values of scale {row['scale']:g}", variance, *cells])
    stored = "; ".join(
        f"{dtype}: eps " + ", ".join(f"{eps} is stored as {value:.4g}" for eps, value in by_eps.items())
        for dtype, by_eps in found["stored_eps"].items()
    )
    bounds = "; ".join(
        f"{dtype}: squares are 0 up to |x| = {low:.3g} and overflow above {found['overflow_scale'][dtype]:.4g}"
        for dtype, low in found["underflow_scale"].items()
    )
    return Table(
        "precision",
        "a norm that takes its statistics in the low precision",
        ["precision and scale", "variance", *(f"output rms, eps {n.removeprefix('rms_eps_')}" for n in outputs)],
        rows,
        data,
        f"{stored}. {bounds}. An output of root mean square 1 is a normalised one.",
    )


def _final_norm(measure: Measure) -> Table:
    data = pd.DataFrame(measure.values["final-norm-check"]["rows"])
    rows = [
        [
            row["model"],
            row["before_head"],
            _yes(row["has_final_norm"]),
            f"{row['response']:.2f}",
            row["missing"] or NONE,
            row["superfluous"] or NONE,
        ]
        for row in _records(data)
    ]
    return Table(
        "final_norm",
        "what stands before the head",
        ["model", "module before the head", "final norm", "response to 8", "missing", "superfluous"],
        rows,
        data,
        "Response to 8: how much larger the head's input becomes when the stream behind the last block is 8 times"
        " larger.",
    )


def _identities(measure: Measure) -> Table:
    geometry, added = measure.values["layernorm-geometry"], measure.values["qknorm-parameters"]
    named = {
        "LayerNorm against projection and scaling, largest difference, float64": geometry["max_abs_error"],
        "the same in float32": geometry["max_abs_error_float32"],
        f"parameters that QK-norm adds to a layer, width {added['width']}, {added['heads']} heads": (
            added["added_parameters"]
        ),
        "2 d": added["two_d"],
        "2 d_k (head width)": added["two_d_k"],
    }
    return Table(
        "identities",
        "identities and counts",
        ["quantity", "measured"],
        [[name, number(value)] for name, value in named.items()],
        pd.DataFrame({"quantity": list(named), "measured": list(named.values())}),
    )


def _records(data: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in data.to_dict("records")]


def _yes(value: bool) -> str:
    return "yes" if value else "no"
