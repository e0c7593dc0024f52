"""The tables of a study: what stands in them, apart from how they are written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from normlab.analysis.cells import mean_text, number, outcome_data, outcome_text, reach_data, step_data
from normlab.analysis.frames import Results, ResultsError
from normlab.analysis.metrics import lr_sensitivity, lr_window, spread
from normlab.analysis.provenance import listed
from normlab.analysis.readings import is_readings, readings_tables
from normlab.analysis.table import Table

LR = "optim.lr"
_WIDE = 8  # more columns than this do not fit a page: conditions then go into the rows


def all_tables(results: Results) -> list[Table]:
    """Every table of the study; those of learning rates only where `optim.lr` is an axis."""
    tables = [outcome_table(results), steps_table(results)]
    if has_rates(results):
        tables += [window_table(results), sensitivity_table(results)]
    if results.study.outputs.reach:
        tables.append(reach_table(results))
    if is_readings(results.study):
        tables += readings_tables(results)
    return [*tables, runs_table(results)]


def has_rates(results: Results) -> bool:
    """Whether the study has an axis of learning rates."""
    return any(axis.name == LR for axis in results.study.axes)


def row_axis(results: Results) -> str | None:
    """The axis that makes the rows of the outcome table: as the study says, else optim.lr, else the first; None for a
    study without axes."""
    names = [axis.name for axis in results.study.axes]
    asked = results.study.outputs.rows
    if asked is not None and asked not in names:
        raise ResultsError(f"outputs.rows: expected an axis of the study ({', '.join(names) or 'none'}), got '{asked}'")
    return asked or (LR if LR in names else names[0] if names else None)


def split_axes(results: Results, rows: str | None) -> list[str]:
    """All axes of the study but `rows`, in their order."""
    return [axis.name for axis in results.study.axes if axis.name != rows]


def outcome_table(results: Results) -> Table:
    """Final validation loss or outcome: a row a point of the row axis, a column a combination of the other axes."""
    rows_by = row_axis(results)
    others = split_axes(results, rows_by)
    axes = ([rows_by] if rows_by else []) + others
    cells = results.by(axes)
    columns = list(dict.fromkeys(key[1:] if rows_by else key for key in cells))
    heads = list(dict.fromkeys(key[0] for key in cells)) if rows_by else [results.study.name]
    rows = [
        [
            results.title(rows_by, head) if rows_by else head,
            *(
                outcome_text(cells[key]) if (key := (head, *column) if rows_by else column) in cells else ""
                for column in columns
            ),
        ]
        for head in heads
    ]
    data = pd.DataFrame([dict(zip(axes, key, strict=True)) | outcome_data(runs) for key, runs in cells.items()])
    header = [rows_by or "study", *(results.name(others, column) or "final loss" for column in columns)]
    return Table("outcome", "final validation loss (nats) or outcome", header, rows, data, _spread_note(results))


def _spread_note(results: Results) -> str:
    if len(results.study.seeds) == 1:
        return "One seed: no spread."
    note = f"Mean ± sample standard deviation over {len(results.study.seeds)} seeds"
    return f"{note}; where seeds end differently, each outcome with the seeds that share it."


def steps_table(results: Results) -> Table:
    """Validation loss by step: rows are steps, columns conditions (the other way round if they are many)."""
    axes = [axis.name for axis in results.study.axes]
    evaluations = results.evaluations
    steps = _steps(results)
    conditions = results.by(axes)
    data, texts = [], []
    for key, runs in conditions.items():
        cells = [step_data(runs, evaluations, step) for step in steps]
        data += [{**dict(zip(axes, key, strict=True)), "step": s} | cell for s, cell in zip(steps, cells, strict=True)]
        texts.append([cell["text"] for cell in cells])
    names = [results.name(axes, key) or results.study.name for key in conditions]
    header, rows = _oriented("step", [str(step) for step in steps], names, texts)
    note = f"{_step_note(results)} nan: at or after the onset; –: not evaluated at that step."
    return Table("loss_by_step", "validation loss (nats) by step", header, rows, pd.DataFrame(data), note)


def _step_note(results: Results) -> str:
    if len(results.study.seeds) == 1:
        return _spread_note(results)
    note = (
        f"Mean ± sample standard deviation over those of {len(results.study.seeds)} seeds that are finite at the step"
    )
    return f"{note}, however their runs end; counts where not all are."


def _steps(results: Results) -> list[int]:
    """The steps that the study asks for, as far as its runs go, and the last step of its longest runs."""
    longest = int(results.runs["train.steps"].max())
    return sorted({step for step in results.study.outputs.steps if step <= longest} | {longest})


def _oriented(
    corner: str, heads: Sequence[str], names: Sequence[str], texts: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    """Header and rows with one column a name, or one row a name where they would be too many columns."""
    if len(names) > _WIDE:
        return ["condition", *(f"{corner} {head}" for head in heads)], [
            [name, *row] for name, row in zip(names, texts, strict=True)
        ]
    turned = zip(*texts, strict=True)
    return [corner, *names], [[head, *row] for head, row in zip(heads, turned, strict=True)]


def window_table(results: Results) -> Table:
    """Learning-rate window of each condition, with the lowest loss in it."""
    axes = split_axes(results, LR)
    labels = _rate_labels(results)
    rows, data = [], []
    for key, runs in results.by(axes).items():
        window = lr_window(runs)
        means: dict[float, list[float]] = {}
        for rate, loss in sorted(zip(runs[LR], runs["final_loss"], strict=True), key=lambda pair: pair[0]):
            if window.low <= rate <= window.high:
                means.setdefault(rate, []).append(loss)
        best = min(means, key=lambda rate: spread(means[rate]).mean) if means else math.nan
        text = "none"
        if means:
            open_edge = "≥ " if window.open_low or window.open_high else ""
            ends = labels[window.low] if window.low == window.high else f"{labels[window.low]} to {labels[window.high]}"
            text = f"{open_edge}{window.decades:.2f} ({ends})"
        if window.pending:
            text += f", {window.pending} run{'s' if window.pending > 1 else ''} missing or failed"
        best_text = f"{mean_text(means[best])} at {labels[best]}" if means else "–"
        rows.append([results.name(axes, key) or results.study.name, text, best_text])
        best_spread = spread(means[best] if means else [])
        data.append(
            dict(zip(axes, key, strict=True))
            | {"decades": window.decades, "low": window.low, "high": window.high}
            | {"open_low": window.open_low, "open_high": window.open_high, "pending": window.pending}
            | {"best_lr": best, "best_mean": best_spread.mean, "best_sd": best_spread.sd}
            | {"grid": " ".join(map(str, window.grid)), "text": text}
        )
    note = (
        "Decades between the ends of the longest run of neighbouring grid points at which every seed trains; ≥ where it"
        f" touches the edge of the grid ({listed(list(labels.values()))}); a single point spans 0 decades."
    )
    header = ["condition", "window (decades)", "lowest loss in it (nats)"]
    return Table("lr_window", "learning-rate window", header, rows, pd.DataFrame(data), note)


def _rate_labels(results: Results) -> dict[float, str]:
    axis = next(axis for axis in results.study.axes if axis.name == LR)
    return {rate: label for rate, label in sorted((float(p.settings[LR]), p.label) for p in axis.points)}


def sensitivity_table(results: Results) -> Table:
    """Learning-rate sensitivity of each condition, and what the number alone would hide."""
    axes = split_axes(results, LR)
    labels = _rate_labels(results)
    rows, data = [], []
    for key, runs in results.by(axes).items():
        s = lr_sensitivity(runs)
        values = [value for value in s.by_seed.values() if value is not None]
        lacking = len(s.by_seed) - len(values)
        text = mean_text(values) if values else "–"
        if lacking:
            text += f" ({len(values)}/{len(s.by_seed)} seeds complete)"
        edge = "–" if math.isnan(s.best) else "yes" if s.on_edge else "no"
        best, largest = labels.get(s.best, "none" if values else "–"), labels.get(s.largest, "none")
        rows.append([results.name(axes, key) or results.study.name, text, best, edge, largest])
        data.append(
            dict(zip(axes, key, strict=True))
            | {
                "sensitivity": spread(values).mean,
                "sd": spread(values).sd,
                "n": len(s.by_seed),
                "complete": len(values),
            }
            | {"best_lr": s.best, "on_edge": s.on_edge, "largest_lr_that_trains": s.largest}
            | {"grid": " ".join(map(str, s.grid)), "text": text}
        )
    header = ["condition", "sensitivity (nats)", "best lr", "best on grid's edge", "largest lr that trains"]
    note = (
        "Mean over the grid of min(final loss, loss at init) minus its minimum (Wortsman et al. 2023,"
        f" arXiv:2309.14322), nan counted as the loss at init; grid {listed(list(labels.values()))}."
        " A net that learns nothing anywhere scores 0: never rank by this number alone."
    )
    return Table("lr_sensitivity", "learning-rate sensitivity", header, rows, pd.DataFrame(data), note)


def reach_table(results: Results) -> Table:
    """Steps to reach each loss that the study asks for."""
    axes = [axis.name for axis in results.study.axes]
    evaluations, losses = results.evaluations, results.study.outputs.reach
    rows, data = [], []
    for key, runs in results.by(axes).items():
        cells = [reach_data(runs, evaluations, loss) for loss in losses]
        rows.append([results.name(axes, key) or results.study.name, *(cell["text"] for cell in cells)])
        data += [{**dict(zip(axes, key, strict=True)), "loss": at} | c for at, c in zip(losses, cells, strict=True)]
    every = sorted(set(results.runs["train.eval_every"]))
    note = f"First evaluation at or below the loss (every {', '.join(map(str, every))} steps)"
    note += "; median (range) over the seeds that reach it." if len(results.study.seeds) > 1 else "."
    header = ["condition", *(f"loss {loss:g}" for loss in losses)]
    return Table("steps_to_loss", "steps to reach a validation loss (nats)", header, rows, pd.DataFrame(data), note)


def runs_table(results: Results) -> Table:
    """A row a run. Times and memory stay out: tables are the same bytes wherever the runs were made."""
    data = results.runs.drop(columns=["seconds", "peak_memory_mb", "device", "commit"])
    data["notes"] = data["notes"].map("; ".join)
    rows = [[_cell(run[key]) for key in _RUN_COLUMNS] for run in data.to_dict("records")]
    header = list(_RUN_COLUMNS.values())
    return Table("runs", "every run", header, rows, data, "Losses in nats; – where there is none.")


_RUN_COLUMNS = {
    "label": "run",
    "id": "id",
    "outcome": "outcome",
    "onset_step": "onset step",
    "onset_kind": "onset in",
    "onset_producer": "first made by",
    "initial_loss": "initial loss",
    "final_loss": "final loss",
    "best_loss": "best loss",
    "best_step": "best at",
    "spikes": "spikes",
}


def _cell(value: Any) -> str:
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return number(value) if isinstance(value, float) else str(value)
