"""The study of readings: in which ways of filling in what the article leaves open do its claims hold?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from normlab.analysis.evidence import Evidence
from normlab.analysis.frames import Results
from normlab.analysis.ledger import Entry, Ledger, load_ledger
from normlab.analysis.samples import short
from normlab.analysis.table import Table
from normlab.analysis.verdicts import CellVerdict, Judged, judge

READING, CELL = "reading", "cell"
_MARKS = {"reproduced": "yes", "direction only": "direction", "contradicted": "no", "undecided": "?", "not run": "–"}


def is_readings(results: Results) -> bool:
    """Whether a study asks the same cells of several readings."""
    return {READING, CELL} <= {axis.name for axis in results.study.axes}


def readings_tables(results: Results) -> list[Table]:
    """Which statements hold in which reading; in how many; the nearest reading of each printed table; every NaN."""
    judged = judge_readings(results)
    return [_grid_table(judged), _count_table(judged), nearest_table(judged), _nan_table(results)]


def judge_readings(results: Results) -> dict[str, list[Judged]]:
    """The verdicts on the ledger of readings, by reading, in the study's order."""
    evidence = Evidence(
        results.root, {results.study.name: results.root}, results.manifest, {results.study.name: results}
    )
    labels = next(axis for axis in results.study.axes if axis.name == READING).points
    ledger = load_ledger("readings")
    return {point.label: _judged(ledger, evidence, results.study.name, point.label) for point in labels}


def _judged(ledger: Ledger, evidence: Evidence, study: str, reading: str) -> list[Judged]:
    return [judge(_within(entry, study, reading), evidence) for entry in ledger.entries]


def _within(entry: Entry, study: str, reading: str) -> Entry:
    """The entry with its selectors narrowed to one reading."""
    narrowed = [m.model_copy(update={"base": {**m.base, "study": study, READING: reading}}) for m in entry.measured]
    return entry.model_copy(update={"measured": tuple(narrowed)})


def _grid_table(judged: dict[str, list[Judged]]) -> Table:
    """A row a reading, a column a statement."""
    first = next(iter(judged.values()))
    rows = [[reading, *(_MARKS[j.verdict] for j in found)] for reading, found in judged.items()]
    data = [
        {"reading": reading, "statement": j.entry.id, "claim": j.entry.claim, "verdict": j.verdict, "reason": j.reason}
        | {"published": j.published, "measured": j.measured}
        for reading, found in judged.items()
        for j in found
    ]
    note = " ".join(f"{j.entry.id}: {j.entry.claim}" for j in first)
    header = ["reading", *(j.entry.id for j in first)]
    return Table("readings", "which statements hold in which reading", header, rows, pd.DataFrame(data), note)


def _count_table(judged: dict[str, list[Judged]]) -> Table:
    """A row a statement: in how many readings it holds, and in which."""
    rows, data = [], []
    for position, one in enumerate(next(iter(judged.values()))):
        holds = [reading for reading, found in judged.items() if found[position].verdict == "reproduced"]
        part = [reading for reading, found in judged.items() if found[position].verdict == "direction only"]
        told = ", ".join(holds) if len(holds) < len(judged) else "all"
        rows.append(
            [one.entry.id, one.entry.claim, f"{len(holds)} of {len(judged)}", told or "none", ", ".join(part) or "–"]
        )
        data.append({"statement": one.entry.id, "claim": one.entry.claim, "holds": len(holds), "of": len(judged)}
                    | {"which": told, "direction": ", ".join(part)})  # fmt: skip
    header = ["statement", "claim", "holds in", "which", "direction only"]
    return Table("claims", "in how many readings each statement holds", header, rows, pd.DataFrame(data))


def nearest_table(judged: dict[str, list[Judged]]) -> Table:
    """A row a printed table: its nearest reading, by the root mean square distance over the cells in which a number is
    printed and measured, and by the share of the others that end as printed."""
    rows, data = [], []
    for claim in dict.fromkeys(j.entry.id.partition("/")[0] for j in next(iter(judged.values()))):
        scores = []
        for reading, found in judged.items():
            cells = [cell for j in found if j.entry.id.partition("/")[0] == claim for cell in j.cells]
            scores.append({"table": claim, "reading": reading, **distance(cells)})
        data += scores
        finite = [s for s in scores if not math.isnan(s["rms"])]
        if finite:
            # Outcomes first: a reading that does not end as printed is not near, however close its numbers.
            ordered = sorted(finite, key=lambda s: (-(s["agree"] / s["ends"] if s["ends"] else 1.0), s["rms"]))
            rows += [[claim, s["reading"], short(s["rms"]), str(s["cells"]), f"{s['agree']} of {s['ends']}"]
                     for s in ordered[:3]]  # fmt: skip
    header = ["table", "reading", "distance (nats)", "cells", "ends as printed"]
    note = "The three nearest readings of each printed table: first by outcomes, then by distance."
    return Table("nearest", "the nearest readings", header, rows, pd.DataFrame(data), note)


def distance(cells: Sequence[CellVerdict]) -> dict[str, Any]:
    """`rms` in nats over the `cells` with a printed and a measured number; `agree` of `ends` printed outcomes."""
    gaps = [cell.mean - cell.published for cell in cells if isinstance(cell.published, float) and cell.mean is not None]
    ends = [cell for cell in cells if isinstance(cell.published, str) and cell.verdict]
    rms = math.sqrt(sum(gap * gap for gap in gaps) / len(gaps)) if gaps else math.nan
    return {"rms": rms, "cells": len(gaps), "agree": sum(c.verdict == "reproduced" for c in ends), "ends": len(ends)}


def _nan_table(results: Results) -> Table:
    """Every run that became non-finite."""
    gone = results.runs[results.runs["outcome"] == "nan"]
    columns = {READING: READING, CELL: CELL, "seed": "seed", "onset_step": "step", "onset_kind": "first in",
               "onset_phase": "phase", "onset_producer": "made by"}  # fmt: skip
    rows = [[str(run[name]) for name in columns] for run in gone.to_dict("records")]
    note = "" if rows else "No run of any reading became non-finite."
    data = gone[list(columns)].rename(columns=columns)
    return Table("nan", "every run that became non-finite", list(columns.values()), rows, data, note)
