"""A table, apart from where its numbers come from and how it is written."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

MOST_ROWS, MOST_COLUMNS = 300, 40  # what a reader can still use on a page; the CSV holds everything


@dataclass(frozen=True)
class Table:
    """`header` and `rows` are what a reader sees; `data` holds the same at full precision, one row a cell."""

    name: str
    title: str
    header: list[str]
    rows: list[list[str]]
    data: pd.DataFrame
    notes: str = ""

    @property
    def cut(self) -> str:
        """A sentence that says what of the table a page leaves out; empty for one that is shown whole."""
        parts = []
        if len(self.rows) > MOST_ROWS:
            parts.append(f"the first {MOST_ROWS} of {len(self.rows)} rows")
        if len(self.header) > MOST_COLUMNS:
            parts.append(f"the first {MOST_COLUMNS} of {len(self.header)} columns")
        return f"Shown: {' and '.join(parts)}; {self.name}.csv holds all of them." if parts else ""

    def page(self) -> Table:
        """The table as a page shows it: of very many rows or columns the first, and a note that says so."""
        if not self.cut:
            return self
        rows = [row[:MOST_COLUMNS] for row in self.rows[:MOST_ROWS]]
        return replace(self, header=self.header[:MOST_COLUMNS], rows=rows, notes=f"{self.cut} {self.notes}")
