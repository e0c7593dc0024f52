"""Reads the files of a results folder, each fault as one line that names the file."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import ValidationError

from normlab import store
from normlab.config.errors import ConfigError
from normlab.config.fields import run_fields, set_fields
from normlab.config.names import KNOWN
from normlab.config.schema import Study

CURVE = {"step": "int64", "train_loss": "float64", "grad_norm": "float64", "val_loss": "float64"}
ACTIVATIONS = {"step": "int64", "layer": "int64", "rms": "float64"}
_NAMES = {
    "norms": "model.norm",
    "placements": "model.placement",
    "mixers": "model.mixer",
    "inits": "model.init",
    "tasks": "task.name",
    "optimizers": "optim.name",
    "schedules": "optim.schedule",
    "precisions": "train.precision",
}


class ResultsError(ConfigError):
    """A folder that cannot be read as results; the message is one line for the user."""

    def __init__(self, message: str) -> None:
        super().__init__([message])


def read_manifest(root: Path) -> dict[str, Any]:
    path = root / "manifest.json"
    if not path.is_file():
        what = "has no manifest.json" if root.is_dir() else "does not exist"
        raise ResultsError(f"{root}: {what}: expected the results folder of a study, such as results/postln")
    manifest = _read_json(path)
    if not isinstance(manifest, dict) or not {"study", "runs"} <= manifest.keys():
        raise ResultsError(f"{path}: expected a manifest with 'study' and 'runs'")
    if manifest.get("format") != store.FORMAT:
        raise ResultsError(f"{path}: expected format {store.FORMAT}, got {manifest.get('format')}")
    return manifest


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path}: cannot be read: {error}") from error


def _read_object(path: Path) -> dict[str, Any]:
    content = _read_json(path)
    if not isinstance(content, dict):
        raise ResultsError(f"{path}: expected an object, got {json.dumps(content)[:40]}")
    return content


def read_study(root: Path, manifest: Mapping[str, Any]) -> Study:
    try:
        with _names_of_plugins(manifest["study"]):
            study = Study.model_validate_json(json.dumps(manifest["study"]))
    except (ValidationError, TypeError, KeyError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else None
        what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}" if first else str(error)
        raise ResultsError(f"{root / 'manifest.json'}: study: {what}") from error
    axes = {axis.name for axis in study.axes}
    if any(not {"id", "label", "cell", "seed"} <= run.keys() or set(run["cell"]) != axes for run in manifest["runs"]):
        raise ResultsError(f"{root / 'manifest.json'}: runs: expected id, label, seed and a cell with {sorted(axes)}")
    return study


@contextmanager
def _names_of_plugins(study: Mapping[str, Any]) -> Iterator[None]:
    """Let the study use the names that its plugins registered: they were legal when it ran, and reading results must
    not import the plugins (and torch with them)."""
    added = []
    for kind, name in _NAMES.items():
        section, field = name.split(".")
        used = study["base"][section][field]
        if study.get("plugins") and used not in KNOWN[kind]:
            KNOWN[kind].append(used)
            added.append((kind, used))
    try:
        yield
    finally:
        for kind, used in added:
            KNOWN[kind].remove(used)


def finished_row(root: Path, run_id: str, study: Study) -> dict[str, Any]:
    folder = root / "runs" / run_id
    run, timing = _read_object(folder / "run.json"), _read_object(folder / "timing.json")
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
