"""Reads the files of a results folder, each fault as one line that names the file."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from normlab import store
from normlab.config.engine import SWITCHES
from normlab.config.fields import run_fields, set_fields
from normlab.config.schema import Study
from normlab.manifests import ResultsError, read_manifest, read_object, read_study

__all__ = ["ResultsError", "Taken", "finished_row", "last_line", "planned_fields", "read_curve", "read_taken"]
__all__ += ["read_manifest", "read_object", "read_study"]

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
            "outcome": run["outcome"],
            **{f"onset_{key}": onset.get(key) for key in ("step", "kind", "phase", "producer")},
            **{f"{key}_loss": loss[key] for key in ("initial", "final", "best")},
            "best_step": loss["best_step"],
            "steps": run["steps"],
            "spikes": run["spikes"],
            "parameters": run["built"]["parameters"],
            **{key: run["task"][key] for key in ("uniform", "guess", "floor")},
            **{key: timing.get(key) for key in ("seconds", "peak_memory_mb", "device", "commit")},
            **{key: bool(timing.get(key, False)) for key in SWITCHES},
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ResultsError(f"{folder / 'run.json'}: not a run's record: no {error}") from error


def _leaves(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {name: spec[section][field] for name, section, field in _paths()}


@cache
def _paths() -> tuple[tuple[str, str, str], ...]:
    return tuple((name, *name.split(".")) for name in run_fields())  # type: ignore[misc]


def planned_fields(study: Study, cell: Mapping[str, str]) -> dict[str, Any]:
    """The fields of every run of a cell, from the study alone."""
    settings: dict[str, Any] = {}
    for axis in study.axes:
        settings |= next((point.settings for point in axis.points if point.label == cell[axis.name]), {})
    return _leaves(set_fields(study.base.model_dump(mode="json"), settings))


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
