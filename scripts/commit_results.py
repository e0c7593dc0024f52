"""Copy a results folder for committing: curves gzipped, everything that reading it needs, nothing else.

    python scripts/commit_results.py results/postln results/reference/postln [--thin]
    python scripts/commit_results.py results/article-full results/article --thin

A study, a measure or a whole reproduction. `normlab tables`, `normlab verify` and `normlab.load` read the copy like the
original, to the same tables. With --thin a curve keeps its evaluations, every tenth step and its last row (a NaN run's
onset); the manifest's line `curves` says so. A file that is no longer what the manifest's hashes say is not copied.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from normlab import measures
from normlab.manifests import NAME, REPRODUCTION, ResultsError, read_manifest, read_object
from normlab.store import curve_text, file_hash, file_hashes, run_folders, run_hashes, strict_json

KEPT_STEPS = 10
# What a reproduction holds beside its studies.
WHOLE = ("verdicts.json", "REPORT.md", "report.html")


def thin(text: str) -> str:
    """The curve's CSV text without the rows that are neither evaluated, a tenth step, nor the last."""
    header, *rows = csv.reader(io.StringIO(text))
    step, val_loss = header.index("step"), header.index("val_loss")
    lines = text.splitlines(keepends=True)
    last = len(rows) - 1
    kept = [i for i, row in enumerate(rows) if row[val_loss] or int(row[step]) % KEPT_STEPS == 0 or i == last]
    return "".join([lines[0], *(lines[i + 1] for i in kept)])


def copy_results(source: Path, target: Path, thinned: bool = False) -> None:
    """Copy `source` to `target`, which must not exist. Raises ValueError if `source` is no results folder, or holds a
    file whose hash is not the recorded one."""
    if target.exists():
        raise ValueError(f"{target} exists: remove it first")
    try:
        _copy(source, target, thinned)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)  # Half a copy helps nobody.
        raise


def _copy(source: Path, target: Path, thinned: bool) -> None:
    if (source / measures.NAME).is_file():
        _copy_measure(source, target)
    elif (source / NAME).is_file() and read_object(source / NAME).get("kind") == REPRODUCTION:
        _copy_reproduction(source, target, thinned)
    else:
        _copy_study(source, target, thinned)


def _copy_study(source: Path, target: Path, thinned: bool) -> None:
    manifest = read_manifest(source)
    _check_hashes(source, manifest)
    for name in ("runs", "failed"):
        (target / name).mkdir(parents=True)
    shutil.copyfile(source / "config.yaml", target / "config.yaml")
    for folder in run_folders(source):
        copy = target / "runs" / folder.name
        copy.mkdir()
        for name in ("run.json", "timing.json"):
            shutil.copyfile(folder / name, copy / name)
        text = curve_text(folder)
        # No time stamp and no name in the header: the same curve gives the same bytes.
        packed = gzip.compress((thin(text) if thinned else text).encode(), compresslevel=9, mtime=0)
        (copy / "curve.csv.gz").write_bytes(packed)
    if (source / "failed").is_dir():
        shutil.copytree(source / "failed", target / "failed", dirs_exist_ok=True)
    if not any((target / "failed").iterdir()):
        (target / "failed").rmdir()
    _copy_derived(source, target)
    kept = f"thinned to evaluations, every {KEPT_STEPS}th step and the last" if thinned else "complete"
    if "thinned" in manifest.get("curves", ""):
        kept = manifest["curves"].removeprefix("gzipped, ")
    ids = [run["id"] for run in manifest["runs"]]
    files = {"config.yaml": file_hash(target / "config.yaml")} | run_hashes(target, ids, {})
    rest = {key: value for key, value in manifest.items() if key != "files"}
    _write_manifest(target, {**rest, "curves": f"gzipped, {kept}", "files": files})


def _copy_measure(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    shutil.copyfile(source / measures.NAME, target / measures.NAME)
    _copy_derived(source, target)


def _copy_reproduction(source: Path, target: Path, thinned: bool) -> None:
    manifest = read_object(source / NAME)
    _check_hashes(source, manifest)
    for study in manifest["studies"]:
        if (source / study["folder"]).is_dir():
            _copy(source / study["folder"], target / study["folder"], thinned)
    for name in WHOLE:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    _copy_derived(source, target)
    patterns = [f"{study['folder']}/{name}" for study in manifest["studies"] for name in (NAME, measures.NAME)]
    rest = {key: value for key, value in manifest.items() if key != "files"}
    _write_manifest(target, {**rest, "files": file_hashes(target, patterns)})


def _copy_derived(source: Path, target: Path) -> None:
    for name in ("tables", "figures"):
        if (source / name).is_dir():
            ignored = shutil.ignore_patterns(".tmp-*")
            shutil.copytree(source / name, target / name, dirs_exist_ok=True, ignore=ignored)


def _check_hashes(source: Path, manifest: Mapping[str, Any]) -> None:
    """The copy gets hashes of its own, so a file that was changed must be found before."""
    for name, digest in manifest.get("files", {}).items():
        if not (source / name).is_file() or file_hash(source / name) != digest:
            raise ValueError(f"{source / name}: not the file that was recorded: see `normlab verify {source}`")


def _write_manifest(target: Path, manifest: Mapping[str, Any]) -> None:
    (target / NAME).write_text(strict_json(manifest), encoding="utf-8")


def main() -> int:
    """Command line; exit code 2 for a wrong folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="results folder")
    parser.add_argument("target", type=Path, help="folder to make")
    parser.add_argument("--thin", action="store_true", help="keep evaluations, every tenth step and the last row")
    given = parser.parse_args()
    try:
        copy_results(given.source, given.target, given.thin)
    except (ValueError, ResultsError) as error:
        print(error, file=sys.stderr)
        return 2
    size = sum(file.stat().st_size for file in given.target.rglob("*") if file.is_file())
    curves = sum(file.stat().st_size for file in given.target.rglob("curve.csv.gz"))
    print(f"{given.target}: {size / 1e6:.2f} MB, of which curves {curves / 1e6:.2f} MB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
