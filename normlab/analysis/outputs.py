"""Writes what is derived from a results folder: tables and figures. They can be deleted at any time."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from normlab.analysis import latex, markdown
from normlab.analysis.frames import Results, load
from normlab.analysis.provenance import command_text, commit_text, device_text, provenance, shortened_text
from normlab.analysis.table import Table
from normlab.analysis.tables import all_tables

TABLES = ("outcome", "loss_by_step", "lr_window", "lr_sensitivity", "steps_to_loss", "runs", "readings", "claims",
          "nearest", "nan")  # fmt: skip
FIGURES = ("loss_curves", "loss_vs_lr", "activations")


def write_outputs(path: str | Path | Results) -> list[Path]:
    """Write `tables/*.{csv,md,tex}` and `figures/*.{svg,png}` of a results folder (or of results that were read from
    one); the same inputs give the same bytes.

    Returns the files written; older ones that no longer apply are removed. ResultsError as `load`.
    """
    from normlab.analysis.figures import all_figures

    results = path if isinstance(path, Results) else load(path)
    files: dict[Path, bytes] = {}
    for table in all_tables(results):
        for suffix, text in table_texts(table, results).items():
            files[results.root / "tables" / f"{table.name}.{suffix}"] = text.encode()
    for name, images in all_figures(results):
        for suffix, content in images.items():
            files[results.root / "figures" / f"{name}.{suffix}"] = content
    for old in set(output_files(results.root)) - files.keys():
        old.unlink(missing_ok=True)  # Another shard may end at this moment and write the same.
    for target, content in files.items():
        write_bytes(target, content)
    return list(files)


def table_texts(table: Table, results: Results) -> dict[str, str]:
    """The table by suffix: csv, md, tex. In the CSV, origin stands in columns, the same in every row; the others show
    a table of very many rows in part, and say so."""
    origin = {"commit": commit_text(results), "device": device_text(results), "command": command_text(results)}
    if told := shortened_text(results):
        origin["shortened"] = told[0]
    data = table.data.assign(**{key: text for key, text in origin.items() if key not in table.data})
    page = table.page()
    return {
        "csv": data.to_csv(index=False, lineterminator="\n"),
        "md": markdown.document(page, provenance(results)),
        "tex": latex.document(page, provenance(results)),
    }


def output_files(root: Path) -> list[Path]:
    """Files of `write_outputs` that are there."""
    tables = [root / "tables" / f"{name}.{suffix}" for name in TABLES for suffix in ("csv", "md", "tex")]
    figures = [root / "figures" / f"{name}.{suffix}" for name in FIGURES for suffix in ("svg", "png")]
    return [file for file in (*tables, *figures) if file.exists()]


def report_files(root: Path) -> list[Path]:
    """Files of a write-up that are there: verdicts, report, figures with printed points, the article's tables."""
    names = [root / name for name in ("verdicts.json", "REPORT.md", "report.html")]
    inner = [path for folder in ("figures", "tables") for path in sorted((root / folder).glob("article-*.*"))]
    return [file for file in (*names, *inner) if file.is_file()]


def write_bytes(target: Path, content: bytes) -> None:
    """Write `target` under a temporary name in its folder, then rename it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".tmp-{target.name}-{secrets.token_hex(4)}")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
