"""`--reuse DIR`: take runs that another results folder holds already. The same id asks the same question, so a run that
two studies share need not be trained twice; it keeps its own timing.json, with the commit it was made at."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from normlab.config.plan import PlannedRun
from normlab.config.schema import Thresholds
from normlab.execute.manifest import read_manifest
from normlab.execute.target import Refused
from normlab.store import read_run

# What moves the last digits of a result: a run made under another value is trained again. The commit is not among them;
# tables print the commits of all their runs.
SAME = ("device", "threads", "torch", "normlab")


def check_sources(sources: Iterable[Path]) -> None:
    """Refuse a source that is not a results folder."""
    for source in sources:
        if read_manifest(source) is None:
            raise Refused(f"--reuse {source}: expected the results folder of a study (it has no manifest.json)")


def reusable(
    todo: Sequence[PlannedRun], sources: Sequence[Path], thresholds: Thresholds, circumstances: Mapping[str, Any]
) -> dict[str, Path]:
    """The folder of each run of `todo`, by id, that a source holds, judged by the same thresholds and made under the
    same circumstances; the first source that has it counts."""
    places = {run.id: [source / "runs" / run.id for source in sources] for run in todo}
    fitting = {
        id: [place for place in found if _fits(place, thresholds, circumstances)] for id, found in places.items()
    }
    return {id: found[0] for id, found in fitting.items() if found}


def _fits(run: Path, thresholds: Thresholds, circumstances: Mapping[str, Any]) -> bool:
    if not (run / "run.json").exists() or not (run / "curve.csv").exists():
        return False
    timing = json.loads((run / "timing.json").read_text(encoding="utf-8"))
    same = all(timing.get(key) == circumstances[key] for key in SAME)
    return same and read_run(run)["thresholds"] == thresholds.model_dump(mode="json")
