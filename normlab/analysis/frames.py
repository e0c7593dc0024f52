"""A results folder as tidy frames: one row a run, one row a step, one row a layer of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from normlab import store
from normlab.analysis import reading
from normlab.analysis.reading import ResultsError
from normlab.catalogue import CATALOGUES
from normlab.config.engine import SWITCHES
from normlab.config.fields import run_fields
from normlab.config.plan import short_names
from normlab.config.schema import NAMED, Study
from normlab.manifests import names_of_plugins

__all__ = ["FINITE_OUTCOMES", "OUTCOMES", "UNFINISHED", "Results", "ResultsError", "finished", "load"]

OUTCOMES = ("trained", "unsteady", "stalled", "diverged", "nan", "failed", "missing")
FINITE_OUTCOMES = OUTCOMES[:4]  # those whose final loss is a number
UNFINISHED = OUTCOMES[5:]  # those of runs that left no record
_INTEGERS = ("onset_step", "best_step", "steps", "spikes", "parameters")


@dataclass(frozen=True)
class Results:
    """Everything that a results folder holds.

    runs    a row a planned run, in the order of the plan: id, label, condition, seed, every dotted field of its spec,
            the options that the study sets somewhere, a column for each axis of named variants, outcome, onset_step,
            onset_kind, onset_phase, onset_producer, initial_loss, final_loss, best_loss (nats), best_step, steps,
            spikes, parameters, uniform, guess, floor (nats), seconds, peak_memory_mb, device, commit, notes (a tuple:
            what must be said of the run), error. A run that is not there has outcome `missing`, one that crashed
            `failed`.
    labels  the same rows; a column an axis, with the label of the run's point on it
    """

    root: Path
    manifest: Mapping[str, Any]
    study: Study
    runs: pd.DataFrame
    labels: pd.DataFrame

    @cached_property
    def curves(self) -> pd.DataFrame:
        """A row a step and run: id, step, train_loss, grad_norm, val_loss (nats; NaN where it was not taken).

        Every curve whole: some 40 bytes a row. What needs the evaluations alone asks for `evaluations`."""
        return self._stack([self.curve(run_id) for run_id in self._done], reading.CURVE)

    def curve(self, run_id: str) -> pd.DataFrame:
        """The curve of one finished run: step, train_loss, grad_norm, val_loss."""
        return reading.read_curve(self.root / "runs" / run_id)

    @property
    def activations(self) -> pd.DataFrame:
        """A row a layer, evaluation and run: id, step, layer (0 = embedding, l = after block l), rms."""
        return self._stack([_long(taken) for taken in self.taken.values()], reading.ACTIVATIONS)

    @cached_property
    def evaluations(self) -> dict[str, pd.Series]:
        """Validation loss in nats by step, for each run by id; a NaN run's series ends before its onset."""
        indices: dict[bytes, pd.Index] = {}  # Most runs are evaluated at the same steps, and looked up by them often.
        found = {}
        for run_id, taken in self.taken.items():
            finite = np.isfinite(taken.val_loss)
            steps = taken.steps[finite]
            if len(steps):
                index = indices.setdefault(steps.tobytes(), pd.Index(steps, name="step"))
                found[run_id] = pd.Series(taken.val_loss[finite], index=index, name="val_loss")
        return found

    @cached_property
    def taken(self) -> dict[str, reading.Taken]:
        """What the evaluations of each finished run gave, by id: each curve's file is read once for all of it."""
        return {run_id: reading.read_taken(self.root / "runs" / run_id) for run_id in self._done}

    @property
    def _done(self) -> list[str]:
        return list(finished(self.runs)["id"])

    def _stack(self, frames: Sequence[pd.DataFrame], columns: Mapping[str, str]) -> pd.DataFrame:
        """The frames of the finished runs one below the other, with the run's id before them."""
        empty = pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in columns.items()})
        stacked = pd.concat(frames, ignore_index=True) if frames else empty
        ids = np.repeat(np.array(self._done, dtype=object), [len(frame) for frame in frames])
        kind = pd.CategoricalDtype(list(self.runs["id"]))
        stacked.insert(0, "id", pd.Series(ids, dtype=kind))
        return stacked

    @property
    def varied(self) -> list[str]:
        """Names of the axes with more than one point."""
        return [axis.name for axis in self.study.axes if len(axis.points) > 1]

    def by(self, axes: Sequence[str]) -> dict[tuple[str, ...], pd.DataFrame]:
        """The rows of `runs` grouped by their labels on `axes`: groups in the order of the points of these axes, the
        first axis outermost, and rows in the order of the plan."""
        groups: dict[tuple[str, ...], list[int]] = {}
        for position, key in enumerate(self.labels[list(axes)].itertuples(index=False, name=None)):
            groups.setdefault(key, []).append(position)
        points = {axis.name: {point.label: i for i, point in enumerate(axis.points)} for axis in self.study.axes}
        ordered = sorted(groups, key=lambda key: [points[axis][label] for axis, label in zip(axes, key, strict=True)])
        return {key: self.runs.iloc[groups[key]] for key in ordered}

    @cached_property
    def titles(self) -> dict[str, dict[str, str]]:
        """What the points of an axis that names entries are called, by axis and label; only where they differ."""
        titles = {}
        with names_of_plugins(self.manifest):
            for axis in (axis for axis in self.study.axes if axis.name in NAMED):
                catalogue = CATALOGUES[NAMED[axis.name]]
                titles[axis.name] = {point.label: catalogue.title(point.label) for point in axis.points}
        return {axis: called for axis, called in titles.items() if len(set(called.values())) == len(called)}

    def name(self, axes: Sequence[str], labels: Sequence[str]) -> str:
        """`LayerNorm, depth=12, lr=1e-3`: a group of `by` in a heading or legend; axes with one point are left out."""
        short, varied = short_names(self.study.axes), set(self.varied)
        pairs = [(axis, label) for axis, label in zip(axes, labels, strict=True) if axis in varied]
        return ", ".join(
            self.title(axis, label) if axis in self.titles or "." not in axis else f"{short[axis]}={label}"
            for axis, label in pairs
        )

    def title(self, axis: str, label: str) -> str:
        """What one point of an axis is called where the axis need not be named."""
        return self.titles.get(axis, {}).get(label, label)


def finished(runs: pd.DataFrame) -> pd.DataFrame:
    """The rows of the runs that left a record, whatever it says."""
    return runs[~runs["outcome"].isin(UNFINISHED)]


def load(path: str | Path) -> Results:
    """Read a results folder; curves are read when they are first asked for.

    ResultsError if it is none, if a run cannot be read, or if it holds a run that its manifest does not plan.
    """
    root = Path(path)
    manifest = reading.read_manifest(root)
    study = reading.read_study(root, manifest)
    planned = manifest["runs"]
    finished, failed = store.finished_ids(root), store.failed_ids(root)
    strays = sorted(finished - {run["id"] for run in planned})
    if strays:
        more = f" and {len(strays) - 1} more" if len(strays) > 1 else ""
        raise ResultsError(f"{root}: runs/{strays[0]}{more} not in manifest.json: runs of another study?")
    rows = []
    thresholds, options = study.thresholds.model_dump(mode="json"), reading.option_columns(study)
    fields: dict[tuple[str, ...], dict[str, Any]] = {}
    for run in planned:
        row = {"id": run["id"], "label": run["label"], "seed": run["seed"], "notes": ()}
        cell = tuple(run["cell"][axis.name] for axis in study.axes)
        if cell not in fields and (options or run["id"] not in finished):
            fields[cell] = reading.planned_fields(root, manifest, study, run["cell"])
        row |= fields.get(cell, {})
        if run["id"] in finished:
            rows.append(row | reading.finished_row(root, run["id"], thresholds))
        elif run["id"] in failed:
            rows.append(row | {"outcome": "failed", "error": reading.last_line(root, run["id"])})
        else:
            rows.append(row | {"outcome": "missing"})
    labels = pd.DataFrame([run["cell"] for run in planned], columns=[axis.name for axis in study.axes], dtype=object)
    results = Results(root, manifest, study, _tidy(rows, options, labels), labels)
    axes = [axis.name for axis in study.axes]
    rows_of_labels = list(labels.itertuples(index=False, name=None))
    conditions = {row: results.name(axes, row) for row in dict.fromkeys(rows_of_labels)}
    results.runs.insert(2, "condition", [conditions[row] for row in rows_of_labels])
    return results


def _tidy(rows: list[dict[str, Any]], options: Sequence[str], labels: pd.DataFrame) -> pd.DataFrame:
    losses = [f"{key}_loss" for key in ("initial", "final", "best")] + ["uniform", "guess", "floor"]
    numbers = [*losses, "seconds", "peak_memory_mb"]
    onset = ["onset_step", "onset_kind", "onset_phase", "onset_producer"]
    columns = ["id", "label", "seed", *run_fields(), *options, "outcome", *onset, *losses[:3]]
    columns += ["best_step", "steps", "spikes", "parameters", *losses[3:], "seconds", "peak_memory_mb", "device"]
    columns += ["commit", *SWITCHES, "notes", "error"]
    runs = pd.DataFrame(rows, columns=columns)
    runs = runs.astype({**dict.fromkeys(_INTEGERS, "Int64"), **dict.fromkeys(numbers, "float64")})
    for position, name in enumerate(name for name in labels if name not in runs):
        runs.insert(3 + position, name, list(labels[name]))
    return runs


def _long(taken: reading.Taken) -> pd.DataFrame:
    there = ~np.isnan(taken.rms).all(axis=1)
    steps, layers = taken.steps[there], np.array(taken.layers, dtype=np.int64)
    columns = {"step": steps.repeat(len(layers)), "layer": np.tile(layers, len(steps)), "rms": taken.rms[there].ravel()}
    return pd.DataFrame(columns).astype(reading.ACTIVATIONS)
