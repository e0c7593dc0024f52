"""Which runs make the cells of the article's trained tables: those of a column, and the row of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from normlab.analysis.article_heads import Layout
from normlab.analysis.evidence import Evidence
from normlab.analysis.frames import Results

RATE = 1e-3  # of 6.2, table 1
WARM = "post, warm-up 1000"  # the column of 2.3 with a warm-up


@dataclass(frozen=True)
class Group:
    """The runs of a column (`key`); `rows` has the key of the row of each, empty where the rows are steps."""

    key: str
    results: Results
    runs: pd.DataFrame
    rows: pd.Series


def groups(layout: Layout, evidence: Evidence) -> list[Group]:
    """One for each column of the table that has runs in the evidence."""
    found = []
    for key, study, settings, row in _columns(layout.id):
        results = evidence.results(study)
        if results is None:
            continue
        runs = results.runs
        for name, value in settings.items():
            runs = runs[(runs[name] > 0) == value if isinstance(value, bool) else runs[name] == value]
        rows = runs[row].map(lambda value: _key(layout, value)) if row else pd.Series("", index=runs.index)
        if len(runs):
            found.append(Group(key, results, runs, rows))
    return found


def _columns(table: str) -> Iterator[tuple[str, str, dict[str, Any], str]]:
    """Column, study, what its runs have (True: above 0), field of the rows."""
    if table == "collapse-20":
        for norm in ("none", "layernorm", "rmsnorm"):
            yield norm, "collapse", {"model.norm": norm, "optim.lr": RATE}, ""
    if table == "warmup-curve":
        for key, placement, warm in (("post", "post", False), ("pre", "pre", False), (WARM, "post", True)):
            yield key, "warmup", {"model.placement": placement, "optim.warmup": warm}, ""
    if table == "collapse-depth":
        for norm in ("none", "layernorm", "rmsnorm"):
            yield norm, "depth", {"model.norm": norm}, "model.depth"
    if table == "lr-sensitivity":
        for depth in (12, 30):
            for placement in ("post", "pre"):
                yield f"{placement} {depth}", f"{placement}ln", {"model.depth": depth}, "optim.lr"


def _key(layout: Layout, value: float) -> str:
    return next((row.key for row in layout.rows if float(row.key) == float(value)), "")
