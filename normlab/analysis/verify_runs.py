"""Checks the runs of a training study: the plan, each run's identity, its record against its curve, doubles, strays."""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from normlab import store
from normlab.analysis.verify_findings import Report, differences
from normlab.analysis.verify_record import check_record, kept_step
from normlab.config.dump import study_yaml
from normlab.config.errors import ConfigError
from normlab.config.plan import PlannedRun, expand
from normlab.config.schema import RunSpec, Study
from normlab.manifests import ResultsError, names_of_plugins, read_object

_UNREADABLE = (OSError, EOFError, zlib.error, ValueError, StopIteration)
_SHAPE = (KeyError, TypeError, AttributeError, ValueError, IndexError)


@dataclass
class _Seen:
    """What the runs looked at so far had, to find what is there twice. Keys are a curve's digest with the question
    apart from its seed; `tasks` are the losses that runs of one task name."""

    curves: dict[tuple[str, str], str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    tasks: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    rows: int = 0
    steps: int = 0


def check_runs(report: Report, manifest: Mapping[str, Any], study: Study) -> None:
    """Check everything below `runs` and `failed`, and that the manifest plans what its study says."""
    with names_of_plugins(manifest):
        try:
            plan = expand(study)
        except ConfigError as error:
            report.add("manifest.json", "study", "a study that can be run", str(error))
            return
        _check_plan(report, manifest, study, plan)
        planned = {run.id: run for run in plan}
        report.labels |= {f"runs/{run.id}": run.label for run in plan}
        seen, kept = _Seen(), kept_step(manifest.get("curves"))
        done, failed = store.finished_ids(report.root), store.failed_ids(report.root)
        for run in plan:
            if run.id in done:
                _check_run(report, run, study, kept, seen)
                report.checked["runs"] += 1
            elif run.id in failed:
                report.notes.append(f"{run.label} crashed; its traceback is failed/{run.id}/error.txt")
            else:
                report.add(f"runs/{run.id}", "", f"the run {run.label}", "no such run")
    _check_tasks(report, seen)
    _check_strays(report, planned, seen)
    if kept is not None and seen.steps > seen.rows:
        report.notes.append(
            f"curves are thinned: {seen.steps - seen.rows} of {seen.steps} steps between evaluations were not shipped,"
            " so neither they nor the spikes could be checked"
        )


def _check_plan(report: Report, manifest: Mapping[str, Any], study: Study, plan: Sequence[PlannedRun]) -> None:
    expected = [{"id": run.id, "label": run.label, "cell": run.cell, "seed": run.spec.seed} for run in plan]
    for at, old, new in differences({"runs": expected}, {"runs": manifest["runs"]}):
        report.add("manifest.json", at, old, new)
    try:
        text = (report.root / "config.yaml").read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        report.add("config.yaml", "", "the study as YAML", error)
        return
    lines = list(zip(study_yaml(study).splitlines() + [""], text.splitlines() + [""], strict=False))
    changed = next(((n, a, b) for n, (a, b) in enumerate(lines, 1) if a != b), None)
    if changed or text != study_yaml(study):
        number, old, new = changed or (len(lines), "", "more lines")
        report.add("config.yaml", f"line {number}", f"`{old.strip()}`", f"`{new.strip()}`")


def _check_run(report: Report, planned: PlannedRun, study: Study, kept: int | None, seen: _Seen) -> None:
    folder = f"runs/{planned.id}"
    root = report.root / folder
    names = {path.name for path in root.iterdir()}
    curve_file = f"{folder}/{'curve.csv' if 'curve.csv' in names else 'curve.csv.gz'}"
    for stray in sorted(names - {*store.RUN_FILES}):
        report.add(f"{folder}/{stray}", "", "no such file", "one that normlab did not write")
    if {"curve.csv", "curve.csv.gz"} <= names:
        report.add(f"{folder}/curve.csv.gz", "", "one curve", "a second one beside curve.csv")
    try:
        read_object(root / "timing.json")
    except ResultsError as error:
        report.add(f"{folder}/timing.json", "", "the run's circumstances", _short(error, report.root))
    try:
        run = read_object(root / "run.json")
    except ResultsError as error:
        report.add(f"{folder}/run.json", "", "the run's record", _short(error, report.root))
        return
    try:
        spec = _check_identity(report, f"{folder}/run.json", run, planned, study)
    except _SHAPE as error:
        report.add(f"{folder}/run.json", "", "a run's record", _shape(error))
        return
    try:
        text = store.curve_text(root)
        curve = store.parse_curve(text)
    except _UNREADABLE as error:
        report.add(curve_file, "", "the run's curve", f"one that cannot be read: {_short(error, report.root)}")
        return
    try:
        for file, where, old, new in check_record(run, curve, spec or planned.spec, study.thresholds, kept):
            report.add(curve_file if file == "curve" else f"{folder}/{file}", where, old, new)
        seen.rows += len(curve["step"])
        seen.steps += int(run["steps"]) + 1
        _note(report, planned, run, text, curve, seen)
    except _SHAPE as error:
        report.add(f"{folder}/run.json", "", "a record and a curve of a run's shape", _shape(error))


def _check_identity(
    report: Report, file: str, run: Mapping[str, Any], planned: PlannedRun, study: Study
) -> RunSpec | None:
    """Compare what the record says it is with what was planned; its spec, None if that is no legal one."""
    facts = {"format": store.FORMAT, "id": planned.id, "status": "complete"}
    facts |= {"spec": planned.spec.model_dump(mode="json"), "thresholds": study.thresholds.model_dump(mode="json")}
    for at, old, new in differences(facts, {key: run[key] for key in facts}):
        report.add(file, at, old, new)
    try:
        spec = RunSpec.model_validate_json(json.dumps(run["spec"]))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        report.add(file, "spec", "a legal run", f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
        return None
    if spec.id != planned.id:
        report.add(file, "spec", f"one whose SHA-256 begins with the folder's name {planned.id}", spec.id)
    return spec


def _note(
    report: Report,
    planned: PlannedRun,
    run: Mapping[str, Any],
    text: str,
    curve: Mapping[str, Sequence[float | None]],
    seen: _Seen,
) -> None:
    """Find a curve that another seed of the same question has already; remember what later runs are compared with."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    seen.digests.setdefault(digest, planned.id)
    question = planned.spec.model_copy(update={"seed": 0}).id
    # Two seeds that fail at once may well have the same curve.
    if any(loss is not None and math.isfinite(loss) for loss in curve["train_loss"]):
        other = seen.curves.setdefault((digest, question), planned.id)
        if other != planned.id:
            report.add(f"runs/{planned.id}", "", "a curve of its own", f"that of runs/{other}, another seed")
    task, losses = json.dumps(run["spec"]["task"]), json.dumps(run["task"])
    seen.tasks.setdefault(task, {}).setdefault(losses, []).append(planned.id)


def _check_tasks(report: Report, seen: _Seen) -> None:
    """Runs of the same task have the same uniform, guess and floor; the rarer ones are those that were changed."""
    for groups in seen.tasks.values():
        usual = Counter({losses: len(ids) for losses, ids in groups.items()}).most_common(1)[0][0]
        for losses, ids in groups.items():
            for run_id in ids if losses != usual else []:
                report.add(f"runs/{run_id}/run.json", "task", f"{usual}, as in the other runs", losses)


def _check_strays(report: Report, planned: Mapping[str, PlannedRun], seen: _Seen) -> None:
    for kind in ("runs", "failed"):
        folder = report.root / kind
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            if path.name not in planned:
                report.add(f"{kind}/{path.name}", "", "only what the study plans", _what(path, planned, seen))


def _what(path: Path, planned: Mapping[str, PlannedRun], seen: _Seen) -> str:
    """What a stray is: a double of a planned run, or something else."""
    if not (path / "run.json").is_file():
        return "something else"
    try:
        inside = read_object(path / "run.json").get("id")
        if inside in planned:
            return f"a double of runs/{inside} (its run.json has that id)"
        twin = seen.digests.get(hashlib.sha256(store.curve_text(path).encode()).hexdigest())
        return f"a double of runs/{twin} (the same curve)" if twin else "a run of another study"
    except (*_UNREADABLE, ResultsError):
        return "something else"


def _short(error: BaseException, root: Path) -> str:
    return " ".join(str(error).replace(f"{root}/", "").split()) or type(error).__name__


def _shape(error: BaseException) -> str:
    return f"no {error}" if isinstance(error, KeyError) else f"another shape: {error}"
