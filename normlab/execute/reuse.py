"""`--reuse DIR`: take runs that another results folder holds already. The same id asks the same question, so a run that
two studies share need not be trained twice; it keeps its own timing.json, with the commit it was made at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from normlab.config.engine import SWITCHES, Engine
from normlab.config.plan import PlannedRun
from normlab.config.plugins import plugin_digests
from normlab.config.schema import Study, Thresholds
from normlab.execute.target import Refused
from normlab.fused.cover import engine_for
from normlab.manifests import ResultsError, find_manifest, read_manifest, read_object, read_study

# What moves the last digits of a result: a run made under another value is trained again. The commit is not among them;
# tables print the commits of all their runs.
SAME = ("device", "threads", "torch", "normlab")


def check_sources(sources: Iterable[Path]) -> None:
    """Refuse a source that is not a results folder, or one that cannot be read."""
    for source in sources:
        try:
            manifest = find_manifest(source)
            if manifest is None:
                raise Refused(f"--reuse {source}: expected the results folder of a study (it has no manifest.json)")
            read_study(source, manifest)
        except ResultsError as error:
            raise Refused(f"--reuse {error}") from None


def reusable(
    todo: Sequence[PlannedRun], sources: Sequence[Path], study: Study, circumstances: Mapping[str, Any]
) -> dict[str, Path]:
    """The folder of each run of `todo`, by id, that a source holds, judged by the study's thresholds, made with the
    same plugins and under the same circumstances; the first source that has it counts."""
    digests = plugin_digests(study.plugins)
    fitting = [source for source in sources if _offers(read_manifest(source), digests)]
    places = {run.id: [source / "runs" / run.id for source in fitting] for run in todo}
    shared = {key: value for key, value in circumstances.items() if key not in SWITCHES}
    engine = Engine(**{key: value for key, value in circumstances.items() if key in SWITCHES})
    found: dict[str, Path] = {}
    for run in todo:
        here = shared | engine_for(engine, run.spec).facts()
        fitting_places = (place for place in places[run.id] if _fits(place, study.thresholds, here))
        if place := next(fitting_places, None):
            found[run.id] = place
    return found


def other_code(runs: Iterable[Path], code: str) -> str | None:
    """A line on those of the reused runs that other code than `code` trained; None if there are none."""
    digests = [read_object(run / "timing.json").get("code") or "not told" for run in runs]
    others = sorted({digest for digest in digests if digest != code})
    if not others:
        return None
    count = sum(digest != code for digest in digests)
    runs_text = "1 reused run was" if count == 1 else f"{count} reused runs were"
    return f"{runs_text} trained by other code: {', '.join(others)} -> {code}"


def _offers(manifest: Mapping[str, Any], digests: Mapping[str, str]) -> bool:
    """Whether a source was made with the same plugins and holds whole curves (committed ones may be thinned)."""
    return manifest.get("plugins", {}) == digests and "thinned" not in manifest.get("curves", "")


def _fits(run: Path, thresholds: Thresholds, circumstances: Mapping[str, Any]) -> bool:
    """Whether a run was made and judged alike; refuse a run that lies there and cannot be read."""
    if not (run / "run.json").is_file():
        return False
    try:
        record, timing = read_object(run / "run.json"), read_object(run / "timing.json")
    except ResultsError as error:
        raise Refused(f"--reuse {error}") from None
    same = all(timing.get(key) == circumstances[key] for key in SAME)
    same &= all(timing.get(key, False) == circumstances.get(key, False) for key in SWITCHES)
    return same and record.get("thresholds") == thresholds.model_dump(mode="json")
