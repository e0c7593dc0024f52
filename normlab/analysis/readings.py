"""The study of readings: in which ways of filling in what the article leaves open do its claims hold?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from normlab.analysis.evidence import Evidence
from normlab.analysis.frames import Results, load
from normlab.analysis.ledger import load_ledger
from normlab.analysis.predicates import NOT_RUN
from normlab.analysis.provenance import command_text, seeds_text
from normlab.analysis.samples import short
from normlab.analysis.table import Table
from normlab.analysis.verdicts import CellVerdict, Judged, judge
from normlab.config.schema import RunSpec, Study
from normlab.manifests import read_manifest, read_study

READING, CELL = "reading", "cell"
# Printed tables that a reading can be near to: the claim, and which of its rows where they have different units.
TABLES = (("collapse-20", ""), ("collapse-depth", ""), ("warmup-curve", ""), ("lr-sensitivity", ""),
          ("lr-window", "window"), ("lr-window", "best loss"))  # fmt: skip
_UNITS = {"window": "decades"}
# The claims that are asked of runs in full length.
LONG = (*dict.fromkeys(claim for claim, _ in TABLES), "collapse-onset", "collapse-quality", "rms-no-norm-fails",
        "rms-quality", "depth-helps", "preln-no-warmup", "preln-faster", "lr-warmup", "best-rate-shift")  # fmt: skip
# The runs of a reading that stand in for each study of the ledger, by their settings.
_LAYERNORM = {"model.norm": "layernorm"}
_STANDING_IN: dict[str, dict[str, Any]] = {
    "collapse": {"model.depth": 20, "model.placement": "pre"},
    "depth": {"model.placement": "pre", "optim.lr": 1e-3, "optim.warmup": 0},
    "postln": {"model.placement": "post", "optim.warmup": 0},
    "preln": {"model.placement": "pre", "optim.warmup": 0} | _LAYERNORM,
    "lr_wide": {"model.depth": 12, "optim.warmup": 0} | _LAYERNORM,
    "warmup": {"model.depth": 12, "optim.lr": 1e-3} | _LAYERNORM,
}
_MARKS = {"reproduced": "yes", "direction only": "direction", "contradicted": "no", "undecided": "?", "not run": "–"}


def is_readings(study: Study) -> bool:
    """Whether a study asks the same cells of several readings."""
    return {READING, CELL} <= {axis.name for axis in study.axes}


def readings_tables(results: Results) -> list[Table]:
    """Which statements hold in which reading; in how many; the nearest reading of each printed table; every NaN."""
    judged = _asked(judge_readings(results))
    return [_grid_table(judged), _count_table(judged), nearest_table(judged), _nan_table(results)]


def folders_beside(root: Path) -> list[Path]:
    """The studies of readings that lie beside a results folder (`readings*`)."""
    found = [path for path in sorted(root.resolve().parent.glob("readings*")) if (path / "manifest.json").is_file()]
    return [path for path in found if is_readings(read_study(path, read_manifest(path)))]


def beside(root: Path) -> list[Table]:
    """The tables of the studies of readings that lie beside a results folder: of each, in how many readings a statement
    holds, the nearest readings, every NaN, and the whole grid."""
    tables = []
    for results in map(load, folders_beside(root)):
        steps, seeds = results.study.base.train.steps, seeds_text(results)
        of = f"{len(results.runs)} runs of {steps} steps, {seeds}; {command_text(results)}"
        by_name = {table.name: table for table in readings_tables(results)}
        for name in ("claims", "nearest", "nan", "readings"):
            table = by_name[name]
            title = f"{results.study.name}: {table.title} ({of})"
            tables.append(replace(table, name=f"{results.study.name}-{name}", title=title))
    return tables


def judge_readings(results: Results) -> dict[str, list[Judged]]:
    """Verdicts by reading, in the study's order: on the short ledger of readings, or, for runs of the article's own
    length, on its claims themselves."""
    labels = [point.label for axis in results.study.axes if axis.name == READING for point in axis.points]
    if results.study.base.train.steps >= RunSpec().train.steps:
        entries = [entry for entry in load_ledger().entries if entry.id in LONG]
        seeds = len(results.study.seeds)
        entries = [entry.model_copy(update={"seeds": min(entry.seeds, seeds)}) for entry in entries]
        return {label: [judge(entry, _standing_in(results, label)) for entry in entries] for label in labels}
    short_ledger = load_ledger("readings").entries
    return {
        label: [
            judge(entry, _evidence(results, {"readings": _only(results, {READING: label})})) for entry in short_ledger
        ]
        for label in labels
    }


def _standing_in(results: Results, reading: str) -> Evidence:
    studies = {name: _only(results, {READING: reading, **settings}) for name, settings in _STANDING_IN.items()}
    return _evidence(results, {name: study for name, study in studies.items() if len(study.runs)})


def _evidence(results: Results, studies: Mapping[str, Results]) -> Evidence:
    return Evidence(results.root, dict.fromkeys(studies, results.root), {}, dict(studies))


def _only(results: Results, settings: Mapping[str, Any]) -> Results:
    """The results with those runs alone that have all the settings (fields, or labels of named axes)."""
    keep = pd.Series(True, index=results.runs.index)
    for name, value in settings.items():
        keep &= results.runs[name] == value
    found = Results(results.root, results.manifest, results.study, results.runs[keep], results.labels[keep])
    # The curves are read once for all readings.
    found.__dict__["evaluations"] = results.evaluations
    return found


def _asked(judged: dict[str, list[Judged]]) -> dict[str, list[Judged]]:
    """Without the statements that no run of any reading speaks of."""
    asked = {j.entry.id for found in judged.values() for j in found if j.verdict != NOT_RUN}
    return {reading: [j for j in found if j.entry.id in asked] for reading, found in judged.items()}


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
        told = "; ".join(holds) if len(holds) < len(judged) else "all"
        rows.append(
            [one.entry.id, one.entry.claim, f"{len(holds)} of {len(judged)}", told or "none", "; ".join(part) or "–"]
        )
        data.append({"statement": one.entry.id, "claim": one.entry.claim, "holds": len(holds), "of": len(judged)}
                    | {"which": told, "direction": "; ".join(part)})  # fmt: skip
    header = ["statement", "claim", "holds in", "which", "direction only"]
    return Table("claims", "in how many readings each statement holds", header, rows, pd.DataFrame(data))


def nearest_table(judged: dict[str, list[Judged]]) -> Table:
    """Three rows a printed table: its nearest readings, by the root mean square distance over the cells in which a
    number is printed and measured, and by the share of the others that end as printed."""
    rows, data = [], []
    for claim, row in TABLES:
        scores = []
        for reading, found in judged.items():
            of_claim = (cell for j in found if j.entry.id.partition("/")[0] == claim for cell in j.cells)
            cells = [cell for cell in of_claim if row in ("", cell.row)]
            table = {"table": f"{claim}, {row}" if row else claim, "unit": _UNITS.get(row, "nats")}
            scores.append({**table, "reading": reading, **distance(cells)})
        data += scores
        if any(s["cells"] or s["ends"] for s in scores):
            # Outcomes first: a reading that does not end as printed is not near, however close its numbers.
            ordered = sorted(scores, key=_nearness)
            rows += [
                [s["table"], s["reading"], f"{short(s['rms'])} {s['unit']}" if s["cells"] else "–"]
                + [str(s["cells"]), f"{s['agree']} of {s['ends']}" if s["ends"] else "–"]
                for s in ordered[:3]
            ]
    header = ["table", "reading", "distance", "cells", "ends as printed"]
    note = (
        "The three nearest readings of each printed table: first by outcomes, then by distance. "
        "A lower bound is at a distance only where it is above the printed number."
    )
    return Table("nearest", "the nearest readings", header, rows, pd.DataFrame(data), note)


def _nearness(score: Mapping[str, Any]) -> tuple[float, float]:
    agreement = score["agree"] / score["ends"] if score["ends"] else 1.0
    return -agreement, score["rms"] if score["cells"] else math.inf


def distance(cells: Sequence[CellVerdict]) -> dict[str, Any]:
    """`rms` in the cells' unit over the `cells` with a printed and a measured number; `agree` of `ends` printed
    outcomes. A lower bound that is below the printed number may be that number: its gap is 0."""
    gaps = [
        max(0.0, cell.mean - cell.published) if cell.at_least else cell.mean - cell.published
        for cell in cells
        if not isinstance(cell.published, str) and cell.mean is not None
    ]
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
