"""Reads the files of a results folder, each fault as one line that names the file."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from normlab import store
from normlab.config.fields import run_fields, set_fields
from normlab.config.schema import Study
from normlab.manifests import ResultsError, read_manifest, read_object, read_study

__all__ = ["ResultsError", "finished_row", "last_line", "planned_fields", "read_curve"]
__all__ += ["read_manifest", "read_object", "read_study"]

CURVE = {"step": "int64", "train_loss": "float64", "grad_norm": "float64", "val_loss": "float64"}
ACTIVATIONS = {"step": "int64", "layer": "int64", "rms": "float64"}


def finished_row(root: Path, run_id: str, study: Study) -> dict[str, Any]:
    folder = root / "runs" / run_id
    run, timing = read_object(folder / "run.json"), read_object(folder / "timing.json")
    try:
        if run["id"] != run_id:
            raise ResultsError(f"{folder}: run.json belongs to run {run['id']}")
        if run["thresholds"] != study.thresholds.model_dump(mode="json"):
            raise ResultsError(f"{folder}: judged by other thresholds than those of the study")
        onset, loss = run["onset"] or {}, run["loss"]
        return {
            **{name: _leaf(run["spec"], name) for name in run_fields()},
            "outcome": run["outcome"],
            **{f"onset_{key}": onset.get(key) for key in ("step", "kind", "phase", "producer")},
            **{f"{key}_loss": loss[key] for key in ("initial", "final", "best")},
            "best_step": loss["best_step"],
            "steps": run["steps"],
            "spikes": run["spikes"],
            "parameters": run["built"]["parameters"],
            **{key: run["task"][key] for key in ("uniform", "guess", "floor")},
            **{key: timing.get(key) for key in ("seconds", "peak_memory_mb", "device", "commit")},
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ResultsError(f"{folder / 'run.json'}: not a run's record: no {error}") from error


def _leaf(spec: Mapping[str, Any], name: str) -> Any:
    section, field = name.split(".")
    return spec[section][field]


def planned_fields(study: Study, run: Mapping[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for axis in study.axes:
        settings |= next((point.settings for point in axis.points if point.label == run["cell"][axis.name]), {})
    spec = set_fields(study.base.model_dump(mode="json"), settings)
    return {name: _leaf(spec, name) for name in run_fields()}


def last_line(root: Path, run_id: str) -> str:
    # It was written while something went wrong, so it may hold anything.
    text = (root / "failed" / run_id / "error.txt").read_text(encoding="utf-8", errors="replace").strip()
    return text.splitlines()[-1] if text else "failed"


def read_curve(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Curve (step, train_loss, grad_norm, val_loss) and activations (step, layer, rms) of a published run."""
    try:
        # Not pandas' own reader: that of older versions may be off in the last digit.
        columns = store.read_curve(folder)
        curve = pd.DataFrame({name: columns[name] for name in CURVE}).astype(CURVE)
        layers = [name for name in columns if name.startswith("act_rms_")]
        rms = np.array([columns[name] for name in layers], dtype=float).reshape(len(layers), len(curve))
        taken = ~np.isnan(rms).all(axis=0)
        numbers = [int(name.removeprefix("act_rms_")) for name in layers]
        steps = curve["step"].to_numpy()[taken]
        long = {"step": steps.repeat(len(layers)), "layer": numbers * len(steps), "rms": rms[:, taken].T.ravel()}
        return curve, pd.DataFrame(long).astype(ACTIVATIONS)
    except (OSError, EOFError, zlib.error, ValueError, KeyError, StopIteration) as error:
        raise ResultsError(f"{folder}: its curve cannot be read: {' '.join(str(error).split())}") from error
