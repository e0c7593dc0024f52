"""A table, apart from where its numbers come from and how it is written."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True)
class Table:
    """`header` and `rows` are what a reader sees; `data` holds the same at full precision, one row a cell."""

    name: str
    title: str
    header: list[str]
    rows: list[list[str]]
    data: pd.DataFrame
    notes: str = ""
