"""The measured value of each cell of the article's tables, from the studies that feed it; a function a table.

Each gives {(row key, column key): Measured}; a cell that nothing measured is not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from normlab.analysis.article_heads import LAYOUTS, Layout
from normlab.analysis.article_runs import WARM, groups
from normlab.analysis.cells import outcome_data, step_data
from normlab.analysis.evidence import Evidence
from normlab.analysis.frames import OUTCOMES, UNFINISHED, Results
from normlab.analysis.tables import LR, window_table

# Why a cell of a table has no measured value, or that it has one.
MEASURED, NOT_RUN, NOT_MEASURABLE, NOT_EVALUATED = "measured", "not run", "not measurable here", "not evaluated"
_COUNTS = {"n", "finite", "not_taken", "pending", "warm_n", "nan_first", "nan_last", *OUTCOMES}
FORWARD = {"layernorm": ("layernorm", "native"), "rmsnorm handwritten": ("rmsnorm", "handwritten")}


@dataclass(frozen=True)
class Measured:
    """A cell: its short text in English, and the same at full precision."""

    text: str
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """`measured`, or how all its runs came to give no value."""
        n, counts = self.data.get("n"), {kind: self.data.get(kind, 0) for kind in ("not_taken", *UNFINISHED)}
        if not n or sum(counts.values()) < n:
            return MEASURED
        return NOT_EVALUATED if counts["not_taken"] else next(kind for kind in reversed(UNFINISHED) if counts[kind])


Cells = dict[tuple[str, str], Measured]


def measured_cells(layout: Layout, evidence: Evidence) -> Cells:
    """The cells of a table of the article; empty where its studies are not in the evidence."""
    reader = _READERS.get(layout.id)
    return reader(layout, evidence) if reader else {}


def plain_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """A cell's data as plain values: counts whole, None for what is missing."""
    values = {key: getattr(value, "item", lambda v=value: v)() for key, value in data.items()}
    return {
        key: None if pd.isna(value) else int(value) if key in _COUNTS else value
        for key, value in values.items()
        if key not in ("text", "condition")
    }


def _by_step(layout: Layout, evidence: Evidence) -> Cells:
    """Loss at the steps of the rows."""
    cells: Cells = {}
    for group in groups(layout, evidence):
        for row in layout.rows:
            data = step_data(group.runs, group.results.evaluations, int(row.key))
            cells[row.key, group.key] = Measured(str(data["text"]), data | {"run_ids": " ".join(group.runs["id"])})
    return cells


def _final(layout: Layout, evidence: Evidence) -> Cells:
    """Final loss or outcome."""
    cells: Cells = {}
    for group in groups(layout, evidence):
        for row in layout.rows:
            runs = group.runs[group.rows == row.key]
            if len(runs):
                data = outcome_data(runs)
                cells[row.key, group.key] = Measured(str(data["text"]), data)
    return cells


def _windows(layout: Layout, evidence: Evidence) -> Cells:
    """Window and best loss on the printed grid; at 12 layers the window is that of the wider grid where it was run."""
    cells: Cells = {}
    for placement in ("post", "pre"):
        results = evidence.results(f"{placement}ln")
        for depth, texts, data in _window_rows(results, "model.depth"):
            net = f"{placement} {depth}"
            cells[net, "window"] = Measured(texts[0], data)
            cells[net, "best loss"] = Measured(texts[1], data)
            cells[net, "extra hyper-parameter"] = Measured("none")
    for placement, texts, data in _window_rows(evidence.results("lr_wide"), "model.placement"):
        cells[f"{placement} 12", "window"] = Measured(texts[0], data)
    return cells | _warmed(evidence, cells)


def _window_rows(results: Results | None, axis: str) -> Iterator[tuple[str, list[str], dict[str, Any]]]:
    """Label on an axis, texts of window and best loss, and their data."""
    if results is not None:
        table = window_table(results)
        for row, data in zip(table.rows, table.data.to_dict("records"), strict=True):
            kept = {str(key): value for key, value in data.items() if "." not in str(key)}
            yield str(data[axis]), row[1:], kept


def _warmed(evidence: Evidence, cells: Cells) -> Cells:
    """Post-LN at 12 layers with the loss that a warm-up gives, and how long that is."""
    curve = next(layout for layout in LAYOUTS if layout.id == "warmup-curve")
    runs = next((group.runs for group in groups(curve, evidence) if group.key == WARM), None)
    without = cells.get(("post 12", "best loss"))
    if runs is None or without is None:
        return {}
    loss = outcome_data(runs)
    data = {f"warm_{key}": loss[key] for key in ("n", "mean", "sd", "run_ids")}
    steps = ", ".join(map(str, sorted(set(runs["optim.warmup"]))))
    return {
        ("post 12", "best loss"): Measured(f"{without.text}; {loss['text']} (with warm-up)", {**without.data, **data}),
        ("post 12", "extra hyper-parameter"): Measured(f"warm-up steps ({steps})"),
    }


def window_grids(evidence: Evidence) -> str:
    """`lr_wide 1e-5 ... 1e-1; postln 1e-4 ...`: the rates of each study that a window was read from."""
    texts = []
    for name in ("lr_wide", "postln", "preln"):
        if (results := evidence.results(name)) is not None:
            axis = next(axis for axis in results.study.axes if axis.name == LR)
            depths = ", ".join(map(str, sorted(set(results.runs["model.depth"]))))
            texts.append(f"{name} ({depths}) {', '.join(point.label for point in axis.points)}")
    return "; ".join(texts)


def _speed(layout: Layout, evidence: Evidence) -> Cells:
    measure = evidence.measure("speed")
    values = measure.values.get("norm-speed") if measure else None
    if not values:
        return {}
    cells: Cells = {}
    for cell in values.get("cells", []):
        for column, (norm, implementation) in FORWARD.items():
            if (cell["norm"], cell["implementation"], cell["pass"]) == (norm, implementation, "forward"):
                data = {key: cell[key] for key in ("median_us", "low_us", "high_us", "n") if key in cell}
                low, high = _digits(data["low_us"]), _digits(data["high_us"])
                text = f"{_digits(data['median_us'])} us [{low}, {high}]"
                cells[cell["shape"], column] = Measured(text, data)
    for shape, ratio in values.get("ratio", {}).items():
        cells[shape, "rmsnorm faster by"] = Measured(share_text(ratio), dict(ratio))
    return cells


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def share_text(ratio: Mapping[str, float]) -> str:
    """`14 % [13, 15]`: a share with its interval, negative where RMSNorm is slower."""
    low, high = (f"{100 * ratio[key]:.0f}".replace("-", "−") for key in ("low", "high"))
    return f"{100 * ratio['median']:.0f} % [{low}, {high}]".replace("-", "−")


def _parameters(layout: Layout, evidence: Evidence) -> Cells:
    measure = evidence.measure("params")
    counted = measure.values.get("norm-parameters") if measure else None
    cells: Cells = {}
    if measure is None or not counted:
        return cells
    for row in ("one", "model"):
        ln, rms = int(counted[f"ln_{row}"]), int(counted[f"rms_{row}"])
        for column, value in (("layernorm", ln), ("rmsnorm", rms), ("difference", rms - ln)):
            cells[row, column] = Measured(str(value).replace("-", "−"), {"mean": value})
    reductions = measure.values.get("reductions")
    if reductions:
        for column, norm in (("layernorm", "ln"), ("rmsnorm", "rms")):
            each, layer = int(reductions[f"{norm}_per_norm"]), int(reductions[f"{norm}_per_layer"])
            cells["reductions", column] = Measured(f"{layer // each} norms x {each}", {"mean": layer})
        less = int(reductions["rms_per_layer"]) - int(reductions["ln_per_layer"])
        cells["reductions", "difference"] = Measured(str(less).replace("-", "−"), {"mean": less})
    return cells


_READERS: dict[str, Callable[[Layout, Evidence], Cells]] = {
    "collapse-20": _by_step,
    "warmup-curve": _by_step,
    "collapse-depth": _final,
    "lr-sensitivity": _final,
    "lr-window": _windows,
    "norm-speed": _speed,
    "norm-parameters": _parameters,
}
