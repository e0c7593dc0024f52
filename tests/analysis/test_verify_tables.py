"""`normlab verify` of tables that were edited or deleted."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from six_runs import found


def test_an_edited_cell_of_a_table(results: Path) -> None:
    path = results / "tables" / "outcome.csv"
    rows = list(csv.reader(path.read_text().splitlines()))
    column = rows[0].index("text")
    old, rows[1][column] = rows[1][column], "0.1"
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    (line,) = found(results)
    assert line == f"tables/outcome.csv: row 1 (optim.lr=1e-3), column text: expected {old}, found 0.1"


@pytest.mark.parametrize("suffix", ["md", "tex"])
def test_an_edited_table_in_text(results: Path, suffix: str) -> None:
    path = results / "tables" / f"runs.{suffix}"
    path.write_text(path.read_text().replace("unsteady", "unstaedy", 1))
    (line,) = found(results)
    assert line.startswith(f"tables/runs.{suffix}: line ") and "unstaedy" in line


def test_a_deleted_table(results: Path) -> None:
    (results / "tables" / "runs.md").unlink()
    assert found(results) == ["tables/runs.md: expected the file, found no such file"]
