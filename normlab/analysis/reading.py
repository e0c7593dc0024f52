"""Reads the files of a results folder, each fault as one line that names the file."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import attrgetter, getitem
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from pydantic import ValidationError

from normlab import store
from normlab.catalogue import CATALOGUES
from normlab.config.engine import SWITCHES
from normlab.config.fields import run_fields, set_fields
from normlab.config.schema import NAMED, OPTIONS, RunSpec, Study
from normlab.manifests import NAME, ResultsError, names_of_plugins, read_manifest, read_object, read_study

__all__ = ["ResultsError", "Taken", "finished_row", "last_line", "option_columns", "planned_fields", "read_curve"]
__all__ += ["read_manifest", "read_object", "read_study", "read_taken"]

CURVE = {"step": "int64", "train_loss": "float64", "grad_norm": "float64", "val_loss": "float64"}
ACTIVATIONS = {"step": "int64", "layer": "int64", "rms": "float64"}
_T = TypeVar("_T")


@dataclass(frozen=True)
class Taken:
    """What a run's evaluations gave: steps [E], val_loss [E] in nats (NaN where it was not taken), the numbers of the
    layers [L], and the largest activation RMS of each, rms [E, L]."""

    steps: np.ndarray
    val_loss: np.ndarray
    layers: tuple[int, ...]
    rms: np.ndarray


def option_columns(study: Study) -> list[str]:
    """Dotted names of the options that the study sets somewhere."""
    base = study.base.model_dump()
    named = [f"{path}.{option}" for path in OPTIONS for option in value_at(base, path)]
    named += [name for axis in study.axes for point in axis.points for name in point.settings]
    return list(dict.fromkeys(name for name in named if name.rpartition(".")[0] in OPTIONS))


def finished_row(root: Path, run_id: str, thresholds: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a run that is there; `thresholds`: the study's, as JSON."""
    folder = root / "runs" / run_id
    run, timing = read_object(folder / "run.json"), read_object(folder / "timing.json")
    try:
        if run["id"] != run_id:
            raise ResultsError(f"{folder}: run.json belongs to run {run['id']}")
        if run["thresholds"] != thresholds:
            raise ResultsError(f"{folder}: judged by other thresholds than those of the study")
        onset, loss = run["onset"] or {}, run["loss"]
        return {
            **_leaves(run["spec"]),
            **_built_options(run["built"]),
            "outcome": run["outcome"],
            **{f"onset_{key}": onset.get(key) for key in ("step", "kind", "phase", "producer")},
            **{f"{key}_loss": loss[key] for key in ("initial", "final", "best")},
            "best_step": loss["best_step"],
            "steps": run["steps"],
            "spikes": run["spikes"],
            "parameters": run["built"]["parameters"],
            **{key: run["task"][key] for key in ("uniform", "guess", "floor")},
            **{key: timing.get(key) for key in ("seconds", "peak_memory_mb", "device", "commit")},
            **{key: _switch(timing.get(key)) for key in SWITCHES},
            "notes": tuple(map(str, run.get("notes") or ())),
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ResultsError(f"{folder / 'run.json'}: not a run's record: no {error}") from error


def _switch(value: object) -> str:
    """A switch of the engine in a table: `on` or what it is set to, empty for off."""
    return "on" if value is True else str(value or "")


def _leaves(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value_at(spec, name) for name in run_fields()}


def value_at(tree: Mapping[str, Any], name: str) -> Any:
    """The value at a dotted name."""
    return reduce(getitem, name.split("."), tree)


def planned_fields(root: Path, manifest: Mapping[str, Any], study: Study, cell: Mapping[str, str]) -> dict[str, Any]:
    """The fields and options of every run of a cell, from the study alone; of an entry of a plugin that is not imported
    only those options that are set."""
    settings: dict[str, Any] = {}
    for axis in study.axes:
        settings |= next((point.settings for point in axis.points if point.label == cell[axis.name]), {})
    try:
        with names_of_plugins(manifest):
            spec = RunSpec.model_validate(set_fields(study.base.model_dump(), settings))
    except ValidationError as error:
        raise ResultsError(f"{root / NAME}: study: {error.errors()[0]['msg']} (at {dict(cell)})") from error
    options = {path: attrgetter(path)(spec).all() for path in OPTIONS}
    return _leaves(spec.model_dump(mode="json")) | _dotted(options)


def _built_options(built: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a run's entries were built with, defaults included, by dotted name."""
    options = built.get("options") or {}
    return _dotted({path: options.get(CATALOGUES[NAMED[of]].singular) or {} for path, of in OPTIONS.items()})


def _dotted(options: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{path}.{name}": value for path, of_entry in options.items() for name, value in of_entry.items()}


def last_line(root: Path, run_id: str) -> str:
    # It was written while something went wrong, so it may hold anything.
    text = (root / "failed" / run_id / "error.txt").read_text(encoding="utf-8", errors="replace").strip()
    return text.splitlines()[-1] if text else "failed"


def read_curve(folder: Path) -> pd.DataFrame:
    """The whole curve of a published run: step, train_loss, grad_norm, val_loss; a row a step."""

    def read() -> pd.DataFrame:
        columns = store.read_curve(folder)
        return pd.DataFrame({name: columns[name] for name in CURVE}).astype(CURVE)

    return _told(folder, read)


def read_taken(folder: Path) -> Taken:
    """What the evaluations of a published run gave; the rows of its curve between them are not looked into."""

    def read() -> Taken:
        columns = store.read_evaluations(folder)
        layers = [name for name in columns if name.startswith("act_rms_")]
        steps = np.array(columns["step"], dtype=np.int64)
        rms = np.array([columns[name] for name in layers], dtype=float).reshape(len(layers), len(steps)).T
        numbers = tuple(int(name.removeprefix("act_rms_")) for name in layers)
        return Taken(steps, np.array(columns["val_loss"], dtype=float), numbers, np.ascontiguousarray(rms))

    return _told(folder, read)


def _told(folder: Path, read: Callable[[], _T]) -> _T:
    try:
        return read()
    except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError) as error:
        raise ResultsError(f"{folder}: its curve cannot be read: {' '.join(str(error).split())}") from error
