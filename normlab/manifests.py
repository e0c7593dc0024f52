"""Reads `manifest.json` and the JSON records beside it, for both halves; each fault is one line that names the file
(no torch, no pandas)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from normlab.catalogue import CATALOGUES
from normlab.catalogue.entry import describe, known_by
from normlab.config.errors import ConfigError
from normlab.config.schema import NAMED, Study

FORMAT = 1
NAME = "manifest.json"
REPRODUCTION = "reproduction"

_RUN = {"id": str, "label": str, "cell": dict, "seed": int}
_PARTS = {"plugins": dict, "sessions": list, "files": dict, "curves": str, "command": str}


class ResultsError(ConfigError):
    """A folder that cannot be read as results; the message is one line for the user."""

    def __init__(self, message: str) -> None:
        super().__init__([message])


def read_json(path: Path) -> Any:
    """The JSON in a file; ResultsError if there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ResultsError(f"{path}: cannot be read: {error}") from error


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; ResultsError if there is none."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise ResultsError(f"{path}: expected an object, got {json.dumps(content)[:40]}")
    return content


def looks_ours(folder: Path) -> bool:
    """Whether the folder's manifest is one of a study, of whatever format: who asks to overwrite need not read it."""
    try:
        manifest = read_object(folder / NAME)
    except ResultsError:
        return False
    return "study" in manifest and isinstance(manifest.get("runs"), list)


def find_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a study; None if there is no such file, ResultsError as `read_manifest`."""
    return read_manifest(folder) if (folder / NAME).is_file() else None


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a study's results folder, its format and outer shape checked; ResultsError if there is none."""
    path = folder / NAME
    if not path.is_file():
        what = "does not exist" if not folder.exists() else f"has no {NAME}" if folder.is_dir() else "is not a folder"
        raise ResultsError(f"{folder}: {what}: expected the results folder of a study, such as results/postln")
    manifest = read_object(path)
    if manifest.get("kind") == REPRODUCTION:
        raise ResultsError(
            f"{folder}: a reproduction: expected the folder of one of its studies, below {folder}/studies"
        )
    if not {"study", "runs"} <= manifest.keys():
        raise ResultsError(f"{path}: expected a manifest with 'study' and 'runs'")
    if manifest.get("format") != FORMAT:
        raise ResultsError(f"{path}: expected format {FORMAT}, got {manifest.get('format')}")
    for name, kind in {"study": dict, "runs": list, **_PARTS}.items():
        if name in manifest and not isinstance(manifest[name], kind):
            raise ResultsError(f"{path}: {name}: expected {_JSON[kind]}, got {json.dumps(manifest[name])[:40]}")
    for number, run in enumerate(manifest["runs"]):
        if not isinstance(run, dict) or any(not isinstance(run.get(name), kind) for name, kind in _RUN.items()):
            raise ResultsError(f"{path}: runs: expected id, label, cell and seed in entry {number}")
    return manifest


_JSON = {dict: "an object", list: "a list", str: "a text"}


def read_study(root: Path, manifest: Mapping[str, Any]) -> Study:
    """The study of a manifest that `read_manifest` read; ResultsError if it is none of this version."""
    try:
        with names_of_plugins(manifest):
            study = Study.model_validate_json(json.dumps(manifest["study"]))
    except (ValidationError, TypeError, KeyError, AttributeError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else None
        what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}" if first else str(error)
        raise ResultsError(f"{root / NAME}: study: {what}") from error
    axes = {axis.name for axis in study.axes}
    if any(set(run["cell"]) != axes for run in manifest["runs"]):
        raise ResultsError(f"{root / NAME}: runs: expected id, label, seed and a cell with {sorted(axes)}")
    return study


@contextmanager
def names_of_plugins(manifest: Mapping[str, Any]) -> Iterator[None]:
    """Let the study of a manifest use the entries that its plugins registered: they were legal when it ran, and reading
    results must not import the plugins (and torch with them). What is known of them stands in the manifest."""
    added = []
    for kind, entries in (manifest.get("entries") or {}).items():
        for name, facts in entries.items():
            if kind in CATALOGUES and name not in CATALOGUES[kind]:
                CATALOGUES[kind][name] = known_by(name, facts)
                added.append((kind, name))
    try:
        yield
    finally:
        for kind, name in added:
            del CATALOGUES[kind][name]


def plugin_entries(study: Study) -> dict[str, dict[str, dict[str, Any]]]:
    """What must be known of every entry of a user's module that the study names, by kind and name."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for path, kind in {**NAMED, "model.final_norm": "norms"}.items():
        section, field = path.split(".")
        named = [getattr(getattr(study.base, section), field)]
        named += [point.settings[path] for axis in study.axes for point in axis.points if path in point.settings]
        for name in named:
            if name in CATALOGUES[kind].added:
                found.setdefault(kind, {})[name] = describe(CATALOGUES[kind][name])
    return found
