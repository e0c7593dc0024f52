"""Derived files against what is computed again: CSV cell by cell, other text line by line."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

from normlab.analysis.verify_findings import Report

_TABLES = (".csv", ".md", ".tex", ".html")


def check_tables(report: Report, expected: Mapping[str, str], folder: str = "tables") -> None:
    """Compare the tables in `folder` with `expected`, their texts by file name; one that nothing calls for is told."""
    root = report.root / folder
    for name, text in expected.items():
        check_text(report, f"{folder}/{name}", text)
        report.checked["tables"] += 1
    there = sorted(path.name for path in root.iterdir()) if root.is_dir() else []
    for name in there:
        if name not in expected:
            what = "no such table" if name.endswith(_TABLES) else "only tables here"
            report.add(f"{folder}/{name}", "", what, "a file that these results do not give")


def check_text(report: Report, file: str, expected: str) -> None:
    """Compare one file with the text that it should hold."""
    path = report.root / file
    if not path.is_file():
        report.add(file, "", "the file", "no such file")
        return
    try:
        found = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        report.add(file, "", "text in UTF-8", f"{error}")
        return
    if found == expected:
        return
    before = len(report.findings)
    if path.suffix == ".csv":
        _cells(report, file, expected, found)
    if len(report.findings) == before:  # No cell differs, or it is no CSV.
        _lines(report, file, expected, found)


def _cells(report: Report, file: str, expected: str, found: str) -> None:
    try:
        (head, *rows), (head_there, *rows_there) = (
            list(csv.reader(io.StringIO(t), strict=True)) for t in (expected, found)
        )
    except (csv.Error, ValueError) as error:
        report.add(file, "", "a CSV table with a header", f"{error}")
        return
    if head != head_there:
        report.add(file, "header", ",".join(head), ",".join(head_there))
        return
    if len(rows) != len(rows_there):
        report.add(file, "", f"{len(rows)} rows", f"{len(rows_there)} rows")
    for number, (row, there) in enumerate(zip(rows, rows_there, strict=False), 1):
        labels = [f"{key}={value}" for key, value in zip(head[:2], row[:2], strict=True) if key != "n"]
        name = f"row {number} ({', '.join(labels)})"
        if len(row) != len(there):
            report.add(file, name, f"{len(row)} cells", f"{len(there)} cells")
            continue
        for column, old, new in zip(head, row, there, strict=True):
            if old != new:
                report.add(file, f"{name}, column {column}", old or "an empty cell", new or "an empty cell")


def _lines(report: Report, file: str, expected: str, found: str) -> None:
    """The first line that differs, and how many do."""
    old, new = expected.split("\n"), found.split("\n")
    length = max(len(old), len(new))
    old, new = ([*lines, *["(no such line)"] * (length - len(lines))] for lines in (old, new))
    changed = [number for number in range(length) if old[number] != new[number]]
    more = f" (and {len(changed) - 1} more lines)" if len(changed) > 1 else ""
    first = changed[0]
    report.add(file, f"line {first + 1}{more}", *_around(old[first], new[first]))


def _around(old: str, new: str, width: int = 60) -> tuple[str, str]:
    """Both lines from a little before the first character that differs."""
    same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(0, same - 20)
    lead = "..." if start else ""
    return tuple(f"`{lead}{line[start : start + width]}`" for line in (old, new))  # type: ignore[return-value]
