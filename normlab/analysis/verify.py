"""`normlab verify`: whether what lies in a results folder still follows from its runs.

A study: every run is the run that its id, the manifest and the study say, its record follows from its curve, every file
has the hash that was recorded when it was made, and the tables are those that the runs give. A measure: its tables
follow from measure.json. A reproduction: all of that for each of its studies, then its verdicts and its own tables.

What cannot be found: a change of a measured value that was made together with its hash, its record and all tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from normlab import measures
from normlab.analysis.evidence import Evidence
from normlab.analysis.frames import load
from normlab.analysis.measured import measure_provenance, measure_tables
from normlab.analysis.measured import table_texts as measure_texts
from normlab.analysis.outputs import table_texts
from normlab.analysis.tables import all_tables
from normlab.analysis.verify_findings import Finding, Report, differences
from normlab.analysis.verify_runs import check_runs
from normlab.analysis.verify_tables import check_tables
from normlab.manifests import NAME, REPRODUCTION, ResultsError, read_json, read_manifest, read_object, read_study
from normlab.measures import read_measure
from normlab.store import RUN_FILES, file_hash, finished_ids, strict_json

__all__ = ["Finding", "Report", "verify"]

_KINDS = {"study": "training", "measure": "measure"}  # Words of a reproduction's manifest.


def verify(path: str | Path) -> Report:
    """Check a training study, a measure or a reproduction; ResultsError if the folder is none of them."""
    root = Path(path)
    if (root / measures.NAME).is_file():
        report = _measure(root)
    elif (root / NAME).is_file() and read_object(root / NAME).get("kind") == REPRODUCTION:
        return _reproduction(root)
    else:
        report = _study(root)
    if (root / "verdicts.json").is_file():  # `normlab report` was asked for this folder alone.
        _check_judgement(report, Evidence.open(root))
    return report


def _study(root: Path) -> Report:
    manifest = read_manifest(root)
    study = read_study(root, manifest)
    report = Report(root, "study")
    if (root / ".lock").exists():
        report.notes.append("the folder is being written, or was when its writer was killed")
    check_runs(report, manifest, study)
    _check_hashes(report, manifest, _recordable(root, manifest))
    try:
        results = load(root)
        texts = {table.name: table_texts(table, results) for table in all_tables(results)}
    except (ResultsError, LookupError, ValueError, TypeError, AssertionError) as error:
        # Records that do not fit their study make no tables; where nothing else is wrong, the fault is ours.
        if not report.findings and not isinstance(error, ResultsError):
            raise
        report.add("tables", "", "tables that can be computed again", f"none, for {_why(error, root)}")
    else:
        check_tables(report, {f"{name}.{end}": text for name, inner in texts.items() for end, text in inner.items()})
    return report


def _why(error: Exception, root: Path) -> str:
    return str(error).replace(f"{root}/", "") if isinstance(error, ResultsError) else "the runs do not fit the study"


def _recordable(root: Path, manifest: Mapping[str, Any]) -> list[str]:
    """The files whose hashes a sitting records: those of the planned runs that are there."""
    done = finished_ids(root)
    names = [f"runs/{run['id']}/{file}" for run in manifest["runs"] if run["id"] in done for file in RUN_FILES]
    return ["config.yaml", *(name for name in names if (root / name).is_file())]


def _check_hashes(report: Report, manifest: Mapping[str, Any], there: list[str]) -> None:
    """Compare every file with the hash that the manifest holds of it, and every file `there` with the manifest."""
    files = manifest.get("files")
    if not isinstance(files, dict):
        report.notes.append("no file hashes were recorded: a value in a curve that nothing else holds may have changed")
        return
    gone = {finding.file for finding in report.findings}
    for name, digest in files.items():
        path = report.root / name
        if not path.is_file():
            if not any(name.startswith(f"{file}/") or name == file for file in gone):
                report.add(name, "", f"the file with sha256 {str(digest)[:12]}", "no such file")
            continue
        report.checked["hashes"] += 1
        found = file_hash(path)
        if found != digest:
            report.add(name, "sha256", str(digest)[:12], found[:12])
    for name in there:
        if name not in files:
            report.add(name, "sha256", "one recorded in manifest.json", "none (--resume records it)")


def _measure(root: Path) -> Report:
    try:
        measure = read_measure(root)
        source = measure_provenance(measure)
        texts = {table.name: measure_texts(table, source) for table in measure_tables(measure)}
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise ResultsError(f"{root}: cannot be read as a measure: {what.removeprefix(f'{root}: ')}") from error
    report = Report(root, "measure")
    check_tables(report, {f"{name}.{end}": text for name, inner in texts.items() for end, text in inner.items()})
    report.checked["measures"] += 1
    report.notes.append(f"the values are as they were measured; `{measure.command}` measures them again")
    return report


def _reproduction(root: Path) -> Report:
    evidence = Evidence.open(root)
    manifest = evidence.manifest
    report = Report(root, REPRODUCTION)
    for study in manifest["studies"]:
        _check_part(report, study)
    parts = [f"{study['folder']}/{name}" for study in manifest["studies"] for name in (NAME, measures.NAME)]
    _check_hashes(report, manifest, [name for name in parts if (root / name).is_file()])
    known = {Path(study["folder"]) for study in manifest["studies"]}
    for path in sorted((root / "studies").glob("*")):
        if path.relative_to(root) not in known:
            report.add(f"studies/{path.name}", "", "only studies of the manifest", "something else")
    _check_judgement(report, evidence)
    return report


def _check_part(report: Report, study: Mapping[str, Any]) -> None:
    """Verify one study of a reproduction and that it is the one that the manifest lists."""
    folder, kind = study["folder"], study.get("kind", "study")
    if not (report.root / folder).is_dir():
        report.add(folder, "", f"the {kind} {study['name']}", "no such folder")
        return
    try:
        inner = verify(report.root / folder)
    except ResultsError as error:
        report.add(folder, "", f"the {kind} {study['name']}", str(error).replace(f"{report.root}/", ""))
        return
    report.take(inner, folder)
    content = read_object(inner.root / (measures.NAME if inner.kind == "measure" else NAME))
    name = content["name"] if inner.kind == "measure" else content["study"]["name"]
    there = {"kind": _KINDS[inner.kind], "name": name, "command": content.get("command")}
    for what, found in there.items():
        if study.get(what, found) != found:
            report.add(folder, what, f"{study[what]}, as manifest.json lists it", found)


def _check_judgement(report: Report, evidence: Evidence) -> None:
    """Judge every claim again and compare with verdicts.json; in a reproduction also the article's tables, which show
    the verdicts."""
    from normlab.analysis.article import table_files
    from normlab.analysis.verdicts import judge_all, verdicts_json

    try:
        judged = judge_all(evidence)
        tables = table_files(evidence, judged) if evidence.whole else {}
    except (ResultsError, LookupError, ValueError, TypeError, AssertionError) as error:
        if not report.findings and not isinstance(error, ResultsError):
            raise
        why = _why(error, report.root)
        report.add("verdicts.json", "", "verdicts and tables that can be computed again", f"none, for {why}")
        return
    report.checked["verdicts"] += len(judged)
    report.notes.append("figures, REPORT.md and report.html are not drawn and written again")
    if evidence.whole:
        check_tables(report, tables)
    if not (report.root / "verdicts.json").is_file():
        report.add("verdicts.json", "", "the file", "no such file")
        return
    try:
        there = read_json(report.root / "verdicts.json")
    except ResultsError as error:
        report.add("verdicts.json", "", "strict JSON", str(error))
        return
    for at, old, new in differences(json.loads(strict_json(verdicts_json(judged))), there):
        report.add("verdicts.json", at, old, new)
