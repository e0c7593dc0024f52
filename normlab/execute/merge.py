"""Joins results folders of one study, such as those of its shards, into a new one.

Everything is compared before anything is written: the folders must have been made with the same study, plan and
plugins, and a run that two of them hold must be the same in both (`run.json`, the curve; how long it took may differ).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from normlab.config.dump import diff_studies, study_yaml
from normlab.config.schema import Study
from normlab.execute.display import counted
from normlab.execute.hold import taken, writable
from normlab.execute.lease import Held, holder, shards
from normlab.execute.manifest import config_facts, differing, write_manifest
from normlab.execute.target import Refused, changed_plugins, clear, is_empty
from normlab.manifests import NAME, ResultsError, looks_ours, read_manifest, read_object, read_study
from normlab.store import RUN_FILES, curve_text, failed_ids, finished_ids, publish_copy, publish_failure, write_file

# Lines of conflicts that are told.
SHOWN = 5


@dataclass(frozen=True)
class Source:
    """One of the folders that are joined."""

    folder: Path
    manifest: Mapping[str, Any]
    study: Study
    finished: frozenset[str]
    failed: frozenset[str]


@dataclass(frozen=True)
class Joined:
    """What will be written: the folder of each finished run by id, of each failed one, and the sessions of all."""

    sources: Sequence[Source]
    finished: Mapping[str, Path]
    failed: Mapping[str, Path]
    sessions: Sequence[Mapping[str, Any]]
    warnings: Sequence[str] = field(default=())

    @property
    def missing(self) -> list[str]:
        """Labels of the runs that no folder holds."""
        there = self.finished.keys() | self.failed.keys()
        return [run["label"] for run in self.sources[0].manifest["runs"] if run["id"] not in there]


def merge(folders: Sequence[Path], out: Path) -> Joined:
    """Write the runs of `folders` into `out`, which is new or empty. `Refused` (before anything is written) if they
    cannot be joined, ResultsError if one of them cannot be read, OSError on a full disk."""
    _check_names(folders, out)
    joined = compared([read_source(folder) for folder in folders])

    def check() -> None:
        if out.exists() and not (out.is_dir() and is_empty(out)):
            raise Refused(f"-o {out}: expected a folder that is new or empty")

    with taken(out, lambda: looks_ours(out), check):
        try:
            _write(joined, out)
        except BaseException:  # A full disk, Ctrl-C: half of it is of no use, and the next try needs an empty folder.
            clear(out, [])
            raise
    return joined


def _check_names(folders: Sequence[Path], out: Path) -> None:
    if len(folders) < 2:
        raise Refused("merge: expected two results folders or more")
    seen: dict[Path, Path] = {}
    for folder in folders:
        if (first := seen.setdefault(folder.resolve(), folder)) is not folder:
            raise Refused(f"merge: {first} and {folder} are the same folder")
    if out.resolve() in seen:
        raise Refused(f"-o {out}: one of the folders to join; expected another one, new or empty")
    if around := next((folder for real, folder in seen.items() if real in out.resolve().parents), None):
        raise Refused(f"-o {out}: lies inside {around}, one of the folders to join; expected one outside of them")


def read_source(folder: Path) -> Source:
    """The results in `folder`. ResultsError if it is no results folder or holds runs that its manifest does not plan;
    `Refused` if it is being written."""
    manifest = read_manifest(folder)
    writer = holder(folder)
    writers = shards(folder) if writer is None else [writer]
    if writers:
        raise Refused(f"{Held(folder, writers)}: wait for it")
    study = read_study(folder, manifest)
    finished, failed = finished_ids(folder), failed_ids(folder)
    strays = sorted(finished - {run["id"] for run in manifest["runs"]})
    if strays:
        raise ResultsError(f"{folder}: runs/{strays[0]} not in {NAME}: a run of another study?")
    return Source(folder, manifest, study, frozenset(finished), frozenset(failed))


def compared(sources: Sequence[Source]) -> Joined:
    """What the sources give together; `Refused` if their studies or the content of a run differ."""
    first = sources[0]
    for source in sources[1:]:
        _check_same(first, source)
    finished: dict[str, Path] = {}
    conflicts: list[str] = []
    for run in first.manifest["runs"]:
        places = [source.folder / "runs" / run["id"] for source in sources if run["id"] in source.finished]
        contents = [_content(place) for place in places]
        for place, content in zip(places[1:], contents[1:], strict=True):
            differing = [name for name in content if content[name] != contents[0][name]]
            if differing:
                a, b = places[0].parent.parent, place.parent.parent
                what = f"{' and '.join(differing)} differ{'s' if len(differing) == 1 else ''}"
                conflicts.append(f"run {run['id']} ({run['label']}): {what} in {a} and {b}")
        if places:
            finished[run["id"]] = places[0]
    if conflicts:
        more = [f"and {len(conflicts) - SHOWN} more"] if len(conflicts) > SHOWN else []
        lines = [f"  {line}" for line in [*conflicts[:SHOWN], *more]]
        head = f"{counted(len(conflicts), 'conflict')}; nothing was written:"
        raise Refused("\n".join([head, *lines]))
    failed = {}
    for run in first.manifest["runs"]:
        crashed = [source.folder for source in sources if run["id"] in source.failed]
        if crashed and run["id"] not in finished:
            failed[run["id"]] = crashed[0] / "failed" / run["id"]
    return Joined(sources, finished, failed, _sessions(sources), _warnings(sources))


def _check_same(one: Source, two: Source) -> None:
    """Refuse if two folders were made with different studies. A plugin may lie in another place, but not differ."""
    dumps = [source.study.model_dump(mode="json", exclude={"plugins"}) for source in (one, two)]
    lines = diff_studies(*dumps)
    lines += changed_plugins(one.manifest.get("plugins", {}), two.manifest.get("plugins", {}))
    for key in ("shortened", "curves"):
        sides = [source.manifest.get(key, "none") for source in (one, two)]
        lines += [f"{key}: {sides[0]} -> {sides[1]}"] if sides[0] != sides[1] else []
    if not lines and one.manifest["runs"] != two.manifest["runs"]:
        lines = [f"runs: planned by normlab {one.manifest.get('normlab')} -> {two.manifest.get('normlab')}"]
    if lines:
        head = f"{one.folder} and {two.folder} cannot be joined: in their studies these keys differ:"
        raise Refused("\n".join([head, *(f"  {line}" for line in lines)]))


def _content(run: Path) -> dict[str, bytes]:
    """What of a run must be the same wherever it was made."""
    read_object(run / "run.json")
    read_object(run / "timing.json")
    try:
        curve = run / "curve.csv"
        content = curve.read_bytes() if curve.exists() else curve_text(run).encode()
        return {"run.json": (run / "run.json").read_bytes(), "curve.csv": content}
    except (OSError, ValueError, EOFError) as error:
        raise ResultsError(f"{run}: the curve cannot be read: {error}") from error


def _sessions(sources: Sequence[Source]) -> list[Mapping[str, Any]]:
    """All sittings in the order of their beginning; one that two folders tell of (one is a copy of the other) once."""
    found: list[Mapping[str, Any]] = []
    for source in sources:
        found += [session for session in source.manifest.get("sessions", []) if session not in found]
    return sorted(found, key=lambda session: str(session.get("started")))


def _warnings(sources: Sequence[Source]) -> list[str]:
    first, warnings = sources[0], []
    for other in sources[1:]:
        if changed := differing(first.manifest, other.manifest):
            told = f"{first.folder} and {other.folder} were made under other circumstances"
            warnings.append(f"{told}: {', '.join(changed)}")
    return warnings


def _write(joined: Joined, out: Path) -> None:
    first = joined.sources[0]
    facts = {**first.manifest, **config_facts(first.study)}
    with writable(out):
        write_manifest(out, facts, {}, joined.sessions, {})
        write_file(out / "config.yaml", study_yaml(first.study))
    for run in joined.finished.values():
        publish_copy(out, run)
    for run_id, folder in joined.failed.items():
        publish_failure(out, run_id, (folder / "error.txt").read_text(encoding="utf-8", errors="replace"))
    write_manifest(out, facts, {}, joined.sessions, _hashes(joined))


def _hashes(joined: Joined) -> dict[str, str]:
    """The hashes that were recorded where each run was made: a file that was changed since is still found out."""
    recorded = {source.folder: source.manifest.get("files", {}) for source in joined.sources}
    hashes: dict[str, str] = {}
    for run_id, run in joined.finished.items():
        there = recorded[run.parent.parent]
        names = [f"runs/{run_id}/{file}" for file in RUN_FILES]
        hashes |= {name: there[name] for name in names if name in there}
    return hashes
