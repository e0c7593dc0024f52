"""Synthetic results as a sitting leaves them: with tables and with the hashes of their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from normlab.analysis import load
from normlab.analysis.outputs import table_texts
from normlab.analysis.tables import all_tables
from normlab.store import file_hash, run_hashes, strict_json


def edit(path: Path, **changes: Any) -> None:
    """Put values into a JSON file: `spec__optim__lr=1` sets content["spec"]["optim"]["lr"]."""
    content = json.loads(path.read_text())
    for name, value in changes.items():
        *outer, last = name.split("__")
        node = content
        for key in outer:
            node = node[int(key) if isinstance(node, list) else key]
        node[int(last) if isinstance(node, list) else last] = value
    path.write_text(strict_json(content))


def write_tables(root: Path) -> None:
    """The tables, without the figures that take longer."""
    results = load(root)
    (root / "tables").mkdir(exist_ok=True)
    for table in all_tables(results):
        for suffix, text in table_texts(table, results).items():
            (root / "tables" / f"{table.name}.{suffix}").write_bytes(text.encode())


def record_hashes(root: Path) -> None:
    """`files` in the manifest, as the end of a sitting writes it."""
    ids = [run["id"] for run in json.loads((root / "manifest.json").read_text())["runs"]]
    edit(root / "manifest.json", files={"config.yaml": file_hash(root / "config.yaml")} | run_hashes(root, ids, {}))
