"""Copy a results folder for committing: curves gzipped, everything that reading it needs, nothing else.

    python scripts/commit_results.py results/postln results/reference/postln [--thin]

`normlab tables` and `normlab.load` read the copy like the original, to the same tables. With --thin a curve keeps its
evaluations, every tenth step and its last row (a NaN run's onset); the manifest's line `curves` says so.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import shutil
import sys
from pathlib import Path

from normlab.store import curve_text, run_folders, strict_json

KEPT_STEPS = 10


def thin(text: str) -> str:
    """The curve's CSV text without the rows that are neither evaluated, a tenth step, nor the last."""
    header, *rows = csv.reader(io.StringIO(text))
    step, val_loss = header.index("step"), header.index("val_loss")
    lines = text.splitlines(keepends=True)
    last = len(rows) - 1
    kept = [i for i, row in enumerate(rows) if row[val_loss] or int(row[step]) % KEPT_STEPS == 0 or i == last]
    return "".join([lines[0], *(lines[i + 1] for i in kept)])


def copy_results(source: Path, target: Path, thinned: bool = False) -> None:
    """Copy `source` to `target`, which must not exist. Raises ValueError if `source` is no results folder."""
    if not (source / "manifest.json").is_file():
        raise ValueError(f"{source}: expected a results folder with a manifest.json")
    if target.exists():
        raise ValueError(f"{target} exists: remove it first")
    for name in ("runs", "failed"):
        (target / name).mkdir(parents=True)
    manifest = json.loads((source / "manifest.json").read_text(encoding="utf-8"))
    kept = f"thinned to evaluations, every {KEPT_STEPS}th step and the last" if thinned else "complete"
    manifest = {**manifest, "curves": f"gzipped, {kept}"}
    (target / "manifest.json").write_text(strict_json(manifest), encoding="utf-8")
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
    for name in ("failed", "tables", "figures"):
        if (source / name).is_dir():
            ignored = shutil.ignore_patterns(".tmp-*")
            shutil.copytree(source / name, target / name, dirs_exist_ok=True, ignore=ignored)
    if not any((target / "failed").iterdir()):
        (target / "failed").rmdir()


def main() -> int:
    """Command line; exit code 2 for a wrong folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="results folder")
    parser.add_argument("target", type=Path, help="folder to make")
    parser.add_argument("--thin", action="store_true", help="keep evaluations, every tenth step and the last row")
    given = parser.parse_args()
    try:
        copy_results(given.source, given.target, given.thin)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    size = sum(file.stat().st_size for file in given.target.rglob("*") if file.is_file())
    curves = sum(file.stat().st_size for file in given.target.glob("runs/*/curve.csv.gz"))
    print(f"{given.target}: {size / 1e6:.2f} MB, of which curves {curves / 1e6:.2f} MB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
