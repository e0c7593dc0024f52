"""The article's tables, filled: measured values in its own layout, the printed ones and the verdicts beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from normlab.analysis.article_cells import MEASURED, NOT_MEASURABLE, NOT_RUN, Measured, measured_cells, plain_data
from normlab.analysis.article_heads import LAYOUTS, Head, Layout
from normlab.analysis.article_notes import Origin, notes, origin
from normlab.analysis.article_printed import ledger_place, printed
from normlab.analysis.article_words import MARKS, cell_words
from normlab.analysis.evidence import Evidence
from normlab.analysis.terminal import plain_row
from normlab.analysis.verdicts import Judged


@dataclass(frozen=True)
class Cell:
    """One cell: what we measured, what the article prints (empty: nothing) and the verdict on it (empty: none).

    status  `measured`, or why there is no value
    needs   the study that judges the cell, where it is not there although something was measured
    """

    text: str
    published: str = ""
    verdict: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    status: str = MEASURED
    needs: str = ""

    @property
    def mark(self) -> str:
        """The verdict as a sign; empty where the text already says it."""
        said = self.verdict in ("", "not run", "not testable here") and not self.needs
        return "" if said else MARKS[self.verdict][0]

    def shown(self, compare: bool) -> str:
        """`2.22 ± 0.01`, or with `compare` `2.22 ± 0.01 (2.28) ✓`."""
        if not compare:
            return self.text
        printed = f"({self.published})" if self.published else ""
        return " ".join(part for part in (self.text, printed, self.mark) if part)


@dataclass(frozen=True)
class ArticleTable:
    """A table of the article in one language. `notes` are sentences, `origin` says where the numbers were made."""

    layout: Layout
    lang: str
    cells: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...]
    comparing: tuple[str, ...]
    origin: Origin

    @property
    def title(self) -> str:
        """Our title, in the table's language."""
        return self.layout.title.text(self.lang)

    @property
    def header(self) -> list[str]:
        """The heads of the columns, that of the rows first."""
        return [head.text(self.lang) for head in (self.layout.corner, *self.layout.columns)]

    def rows(self, compare: bool) -> list[list[str]]:
        """Rows of text; with `compare` the printed value and the verdict's mark stand in the cells too."""
        heads = [head.text(self.lang) for head in self.layout.rows]
        return [[head, *(cell.shown(compare) for cell in row)] for head, row in zip(heads, self.cells, strict=True)]

    def caption(self, compare: bool) -> tuple[str, ...]:
        """The sentences below the table."""
        return (*(self.comparing if compare else ()), *self.notes)

    def data(self) -> pd.DataFrame:
        """A row a cell, at full precision, with the printed value, the verdict and the origin. `status` says why a cell
        has no measured value; all its values are then empty. Counts are whole numbers also where others are empty."""
        rows = []
        for head, cells in zip(self.layout.rows, self.cells, strict=True):
            for column, cell in zip(self.layout.columns, cells, strict=True):
                place = {"table": self.layout.id, "row": head.text(self.lang), "column": column.text(self.lang)}
                measured = cell.text if cell.status == MEASURED else ""
                shown = {"status": cell.status, "measured": measured, "published": cell.published}
                verdict = {"verdict": cell.verdict} | ({"needs": cell.needs} if cell.needs else {})
                rows.append(place | shown | verdict | plain_data(cell.data))
        # Of type object: a column of whole numbers would become one of floats where a cell has none.
        data = pd.DataFrame(rows, dtype=object)
        return data.assign(origin="; ".join(self.origin.lines), command="; ".join(self.origin.commands))


def article_tables(evidence: Evidence, judged: Sequence[Judged], lang: str = "en") -> list[ArticleTable]:
    """Every table of the article, in its order; for a single study those that it feeds."""
    fed = [layout for layout in LAYOUTS if evidence.whole or set(layout.studies) & set(evidence.names)]
    by_id = {one.entry.id: one for one in judged}
    return [_table(layout, evidence, by_id, lang) for layout in fed]


def _table(layout: Layout, evidence: Evidence, judged: Mapping[str, Judged], lang: str) -> ArticleTable:
    measured = measured_cells(layout, evidence)
    cells = tuple(
        tuple(_cell(layout, row, column, measured, judged, lang) for column in layout.columns) for row in layout.rows
    )
    whole = judged.get(layout.id)
    used = [(cell.verdict, cell.needs) for row in cells for cell in row]
    below, comparing = notes(layout, evidence, lang, used, whole.verdict if whole else "")
    return ArticleTable(layout, lang, cells, below, comparing, origin(layout, evidence, lang))


def _cell(
    layout: Layout,
    row: Head,
    column: Head,
    measured: Mapping[tuple[str, str], Measured],
    judged: Mapping[str, Judged],
    lang: str,
) -> Cell:
    found = measured.get((row.key, column.key))
    entry, place = ledger_place(layout.id, row.key, column.key)
    one = judged.get(entry)
    shown = printed(layout, row.key, column.key, one.entry if one else None, lang)
    if found is None:
        status = NOT_RUN if layout.studies else NOT_MEASURABLE
        return Cell(cell_words(status, lang), shown, status=status)
    text, status = cell_words(found.text, lang), found.status
    if one is None:
        return Cell(text, shown, status=status)
    verdict = next((cell.verdict for cell in one.cells if (cell.row, cell.column) == place), "")
    needs = one.entry.study_of(place) if verdict == NOT_RUN else ""
    return Cell(text, shown, verdict, found.data, status, needs)


def tables_json(tables: Sequence[ArticleTable]) -> list[dict[str, Any]]:
    """Tables as plain values: place, title, and a row a cell at full precision."""
    return [
        {
            "id": table.layout.id,
            "section": table.layout.place(table.lang),
            "title": table.title,
            "cells": [plain_row(row) for row in table.data().to_dict("records")],
        }
        for table in tables
    ]
