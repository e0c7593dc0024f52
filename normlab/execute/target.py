"""The results folder: when a command may write into it, and what of it `--overwrite` may delete."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from normlab.config.dump import diff_studies
from normlab.config.plan import PlannedRun
from normlab.config.plugins import plugin_digests
from normlab.config.schema import Study
from normlab.execute.lease import LOCK
from normlab.manifests import NAME, find_manifest, looks_ours, read_object, read_study
from normlab.store import RUN_FILES, finished_ids

RUN_ID = re.compile(r"[0-9a-f]{12}")
# What normlab writes, by folder; `*` in a folder's place is a run's id.
WRITTEN = {
    "": ("config.yaml", NAME),
    "runs/*": RUN_FILES,
    "failed/*": ("error.txt",),
}


class Refused(ValueError):
    """The command may not write into this folder; the lines say why and what would help."""


def is_empty(folder: Path) -> bool:
    """Whether nothing but a lock or leftovers of a start that was killed lies in `folder`."""
    return all(path.name == LOCK or path.name.startswith((f"{LOCK}-", ".tmp-")) for path in folder.iterdir())


def check_folder(
    folder: Path,
    resume: bool,
    overwrite: bool,
    ours: Callable[[Path], bool] = looks_ours,
    what: str = "normlab results",
) -> None:
    """Refuse before anything is written: a file, a folder of someone else's, results without a flag.

    `ours` says whether a folder holds what belongs there, which is called `what`."""
    if resume and overwrite:
        raise Refused("--resume and --overwrite contradict each other: give one of them")
    if not folder.exists():
        return
    if not folder.is_dir():
        raise Refused(f"{folder} is not a folder")
    if is_empty(folder):
        return
    if not ours(folder):
        raise Refused(f"{folder} holds files but no {what}: choose another folder with -o")
    if not resume and not overwrite:
        raise Refused(f"{folder} already holds results: continue them with --resume or replace them with --overwrite")


def remaining(
    folder: Path,
    study: Study,
    plan: Sequence[PlannedRun],
    mine: Sequence[PlannedRun] | None = None,
    who: str = "--resume",
) -> list[PlannedRun]:
    """The runs of `plan`, or of the part `mine` of it, that `who` has to do: missing or failed. Refuse if the plan asks
    other questions; ResultsError if the manifest or the record of a run cannot be read."""
    manifest = find_manifest(folder)
    if manifest is not None:
        read_study(folder, manifest)
        old, new = manifest["study"], study.model_dump(mode="json")
        kept = {run["id"] for run in manifest["runs"]} <= {run.id for run in plan}
        changed = changed_plugins(manifest.get("plugins", {}), plugin_digests(study.plugins))
        if not kept or changed or old.get("thresholds") != new["thresholds"]:
            free = ("outputs", "question", "name", "plugins")
            drop = [{key: value for key, value in side.items() if key not in free} for side in (old, new)]
            lines = [f"  {line}" for line in [*diff_studies(*drop), *changed]]
            head = f"{folder}: {who} needs the study that the folder was made with, but these keys differ:"
            tail = "  (an axis or the seeds may grow, not shrink); choose another folder with -o"
            raise Refused("\n".join([head, *lines, tail]))
    done = finished_ids(folder)
    wanted = plan if mine is None else mine
    for run in wanted:
        if run.id in done:  # A truncated record is told now, not after the hours that the rest takes.
            read_object(folder / "runs" / run.id / "run.json")
    return [run for run in wanted if run.id not in done]


def changed_plugins(old: dict[str, str], new: dict[str, str]) -> list[str]:
    """A line for each plugin whose source differs, by SHA-256; a plugin may move, but not change."""
    lines = []
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            sides = [digest[:12] if digest else "none" for digest in (old.get(name), new.get(name))]
            lines.append(f"plugins: {name}: sha256 {sides[0]} -> {sides[1]}")
    return lines


def clear(folder: Path, derived: Sequence[Path]) -> None:
    """Delete what normlab wrote in `folder`, the `derived` files (tables and figures) too, the manifest last.

    Refuse before anything is deleted if the folder of a run holds something else."""
    doomed: list[Path] = list(derived)
    foreign: list[Path] = []
    for path in _inside_runs(folder):
        names = WRITTEN[f"{path.parent.parent.name}/*"]
        (doomed if path.name in names else foreign).append(path)
    if foreign:
        raise Refused(f"{foreign[0]} was not written by normlab: move it away before --overwrite")
    for path in doomed:
        path.unlink(missing_ok=True)
    for run in [*(folder / "runs").glob("*"), *(folder / "failed").glob("*")]:
        if RUN_ID.fullmatch(run.name):
            run.rmdir()
    for name in WRITTEN[""]:
        (folder / name).unlink(missing_ok=True)
    for inner in {folder / "runs", folder / "failed", *(path.parent for path in derived)}:
        remove_if_empty(inner)


def _inside_runs(folder: Path) -> Iterator[Path]:
    for kind in ("runs", "failed"):
        for run in sorted((folder / kind).glob("*")):
            if RUN_ID.fullmatch(run.name) and run.is_dir():
                yield from sorted(run.iterdir())


def remove_if_empty(folder: Path) -> None:
    """Remove `folder` if it is an empty one."""
    if folder.is_dir() and not any(folder.iterdir()):
        with suppress(OSError):  # Another shard begins in it at this moment.
            folder.rmdir()
