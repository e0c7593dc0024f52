"""What a results folder holds: read from the files alone, so it is right at any moment."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from normlab.execute.display import counted
from normlab.execute.lease import holder, shards, writer_name
from normlab.manifests import ResultsError, find_manifest, read_object, read_study
from normlab.outcome import OUTCOMES
from normlab.store import failed_ids, finished_ids

_MOST_FAILED = 20  # told one by one


def read_status(folder: Path) -> dict[str, Any] | None:
    """Counts and ids by state, and who writes the folder now: a process alone (`writer`), or some `shards`.
    None if it is no results folder. ResultsError if its manifest or the record of a run cannot be read."""
    manifest = find_manifest(folder)
    if manifest is None:
        return None
    read_study(folder, manifest)
    labels = {run["id"]: run["label"] for run in manifest["runs"]}
    done = finished_ids(folder) & labels.keys()
    failed = (failed_ids(folder) & labels.keys()) - done
    outcomes = Counter(_outcome(folder / "runs" / run) for run in done)
    return {
        "folder": str(folder),
        "planned": len(labels),
        "finished": len(done),
        "outcomes": {name: outcomes[name] for name in OUTCOMES if outcomes[name]},
        "failed": [_failure(folder, run, label) for run, label in labels.items() if run in failed],
        "missing": len(labels) - len(done) - len(failed),
        "writer": holder(folder),
        "shards": shards(folder),
        "command": manifest.get("command", "an unknown command"),
    }


def _outcome(folder: Path) -> str | None:
    path = folder / "run.json"
    try:
        return read_object(path).get("outcome")
    except ResultsError:
        if path.exists():
            raise
        return None  # Being overwritten at this moment.


def _failure(folder: Path, run: str, label: str) -> dict[str, str]:
    path = folder / "failed" / run / "error.txt"
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:  # Being retried at this moment.
        lines = []
    return {"id": run, "label": label, "error": lines[0] if lines else "", "path": str(path)}


def status_lines(status: dict[str, Any]) -> list[str]:
    """The status for a person."""
    more = len(status["failed"]) - _MOST_FAILED
    outcomes = ", ".join(f"{count} {name}" for name, count in status["outcomes"].items())
    lines = [
        f"{status['folder']}: {counted(status['planned'], 'run')} planned by `{status['command']}`",
        f"finished {status['finished']}" + (f" ({outcomes})" if outcomes else ""),
        f"failed {len(status['failed'])}",
        *(f"  {run['label']}: {run['error']} ({run['path']})" for run in status["failed"][:_MOST_FAILED]),
        *([f"  and {more} more: --json lists all"] if more > 0 else []),
        f"missing {status['missing']}",
    ]
    return [*lines, *writer_line(status["writer"]), *(f"being written by {writer_name(s)}" for s in status["shards"])]


def writer_line(writer: dict[str, Any] | None) -> list[str]:
    """A line that says who writes the folder, if somebody does."""
    if writer is None:
        return []
    return [f"being written by {writer_name(writer)}"]
