"""One folder a run, published by one rename: it exists whole or not at all (no torch, no pandas).

results/<study>/runs/<id>/run.json     what was asked and how it ended (strict JSON, null for what is not finite)
                          curve.csv    one row a step: losses, gradient norm, largest activation by layer
                          timing.json  circumstances: seconds, memory, device, versions; never compared
results/<study>/failed/<id>/error.txt  traceback of a run that crashed (a diverged run did not crash)
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import math
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normlab.curves import Columns, parse_curve, parse_evaluations

FORMAT = 1
RUN_FILES = ("run.json", "curve.csv", "curve.csv.gz", "timing.json")


@dataclass(frozen=True)
class RunRecord:
    """A finished run in memory.

    `run` and `timing` hold JSON values (non-finite numbers are turned into null on writing). `curve` maps a column to
    its values, one a row from step 0 on, None where there is none; numpy float32 scalars are written with the fewest
    digits that read back as the same float32.
    """

    id: str
    run: Mapping[str, Any]
    curve: Mapping[str, Sequence[Any]]
    timing: Mapping[str, Any]


def strict_json(value: Any) -> str:
    """Indented strict JSON with a final newline; NaN and infinities become null."""
    return json.dumps(_finite(value), indent=1, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def curve_csv(curve: Mapping[str, Sequence[Any]]) -> str:
    """The curve as CSV text: empty cells for None, `nan`, `inf` and `-inf` as such."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(curve)
    writer.writerows(["" if cell is None else str(cell) for cell in row] for row in zip(*curve.values(), strict=True))
    return out.getvalue()


def write_file(path: Path, text: str) -> None:
    """Write `text` durably under a temporary name in the same folder, then rename it to `path`."""
    temporary = path.with_name(f".tmp-{path.name}-{secrets.token_hex(4)}")
    try:
        _write_synced(temporary, text)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _write_synced(path: Path, text: str) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def publish(root: Path, record: RunRecord) -> bool:
    """Write `record` under `root/runs/<id>` by one rename; False if that run was there already (it is kept)."""
    files = {
        "run.json": strict_json(record.run),
        "curve.csv": curve_csv(record.curve),
        "timing.json": strict_json(record.timing),
    }
    published = _publish_folder(root / "runs" / record.id, files)
    shutil.rmtree(root / "failed" / record.id, ignore_errors=True)
    return published


def publish_copy(root: Path, run: Path) -> bool:
    """Publish a copy of the run in the folder `run` under `root`, file by file as it is there."""
    files = {name: (run / name).read_text(encoding="utf-8") for name in ("run.json", "timing.json")}
    files["curve.csv"] = curve_text(run)
    return _publish_folder(root / "runs" / run.name, files)


def publish_failure(root: Path, run_id: str, error: str) -> None:
    """Keep the traceback of a run that crashed; an older one of the same run is replaced."""
    folder = root / "failed" / run_id
    shutil.rmtree(folder, ignore_errors=True)
    _publish_folder(folder, {"error.txt": error})


def _publish_folder(folder: Path, files: Mapping[str, str]) -> bool:
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".tmp-{folder.name}-{secrets.token_hex(4)}")
    temporary.mkdir()
    try:
        for name, text in files.items():
            _write_synced(temporary / name, text)
        try:
            os.rename(temporary, folder)
        except OSError:
            # Whoever was there first stays; a folder that holds something else must not pass for a finished run.
            if all((folder / name).is_file() for name in files):
                return False
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _sync_folder(folder.parent)
    return True


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def finished_ids(root: Path) -> set[str]:
    """Ids of the runs published under `root`."""
    return set(_folders_with(root / "runs", "run.json"))


def failed_ids(root: Path) -> set[str]:
    """Ids of the runs whose last attempt crashed."""
    return set(_folders_with(root / "failed", "error.txt"))


def _folders_with(folder: Path, file: str) -> list[str]:
    """Names of the folders in `folder` that hold `file`; hidden ones are half-written."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if not entry.name.startswith(".")]
    except OSError:  # not there, or no folder
        return []
    return [name for name in names if os.path.exists(f"{folder}/{name}/{file}")]


def read_run(folder: Path) -> dict[str, Any]:
    """The content of `run.json` in a run's folder."""
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))


def curve_text(folder: Path) -> str:
    """The CSV text of a run's curve, from `curve.csv` or the gzipped `curve.csv.gz` that is committed."""
    plain = folder / "curve.csv"
    if plain.exists():
        return plain.read_text(encoding="utf-8")
    return gzip.decompress((folder / "curve.csv.gz").read_bytes()).decode("utf-8")


def read_curve(folder: Path) -> Columns:
    """The curve of a run, column by column; None for an empty cell."""
    return parse_curve(curve_text(folder))


def read_evaluations(folder: Path) -> Columns:
    """The rows of a run's curve at which more than training loss and gradient norm was taken, as `read_curve`."""
    return parse_evaluations(curve_text(folder))


def run_folders(root: Path) -> Iterator[Path]:
    """Folders of the published runs, in the order of their ids."""
    return iter([root / "runs" / name for name in sorted(finished_ids(root))])


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_hashes(root: Path, patterns: Iterable[str]) -> dict[str, str]:
    """SHA-256 of every file below `root` that fits one of the glob patterns, by path from `root` with slashes, in the
    order of the paths: `file_hashes(root, ["studies/*/manifest.json"])`. Hidden and half-written files stay out."""
    found = {path.relative_to(root) for pattern in patterns for path in root.glob(pattern) if path.is_file()}
    seen = sorted(path.as_posix() for path in found if not any(part.startswith(".") for part in path.parts))
    return {name: file_hash(root / name) for name in seen}


def run_hashes(root: Path, ids: Iterable[str], known: Mapping[str, str]) -> dict[str, str]:
    """SHA-256 of the files of the published runs `ids`, by path from `root`. A hash in `known` is kept as it is, so
    that a file that was changed since is still found out; one whose file is gone is dropped."""
    hashes = {}
    for run_id in ids:
        for file in RUN_FILES:
            name = f"runs/{run_id}/{file}"
            if (root / name).is_file():
                hashes[name] = known.get(name) or file_hash(root / name)
    return hashes
