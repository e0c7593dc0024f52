"""What the folder of a reproduction holds, part by part: read from the files alone, so it is right at any moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from normlab.execute.display import counted
from normlab.execute.journal import read_journal
from normlab.execute.lease import holder
from normlab.execute.measuring import last
from normlab.execute.status import read_status, writer_line


def whole_status(folder: Path) -> dict[str, Any]:
    """State of each part (complete, incomplete, failed, missing), and who writes the folder now; ResultsError if a
    part cannot be read."""
    journal = read_journal(folder)
    parts = [_part(folder, study) for study in journal.get("studies", [])]
    facts = {"folder": str(folder), "command": journal.get("command", "an unknown command"), "studies": parts}
    return facts | {"shortened": journal.get("shortened", []), "writer": holder(folder)}


def _part(root: Path, study: dict[str, Any]) -> dict[str, Any]:
    name, folder = study["name"], root / study["folder"]
    facts = {"name": name, "kind": study["kind"]}
    if study["kind"] == "measure":
        found, failed = last(folder), (root / "failed" / name / "error.txt").is_file()
        return facts | {"state": "failed" if failed else "missing" if found is None else "complete"}
    runs = read_status(folder)
    if runs is None:
        return facts | {"state": "missing"}
    counts = {key: runs[key] for key in ("planned", "finished", "missing")} | {"failed": len(runs["failed"])}
    state = "complete" if counts["finished"] == counts["planned"] else "failed" if counts["failed"] else "incomplete"
    return facts | {"state": state} | counts


def whole_lines(status: dict[str, Any]) -> list[str]:
    """The status for a person."""
    lines = [f"{status['folder']}: `{status['command']}`"]
    for part in status["studies"]:
        counts = ""
        if "planned" in part:
            counts = f"{part['finished']} of {counted(part['planned'], 'run')}"
            counts += f", {part['failed']} failed" if part["failed"] else ""
        lines.append(f"  {part['kind']:9} {part['name']:10} {part['state']:11}{counts}".rstrip())
    lines += [f"shortened: {sentence}" for sentence in status["shortened"]]
    return [*lines, *writer_line(status["writer"])]
