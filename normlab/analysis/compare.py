"""`normlab compare`: two results cell by cell, as a reader's own against the committed ones.

Studies that train are joined by the labels of their axes, measures by the path of a value, reproductions study by
study. The rule, which is also printed, is `compare_cells.RULE`. Times are never different: where their percentiles do
not overlap they are of `other speed`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from normlab.analysis.cells import outcome_text
from normlab.analysis.compare_cells import (
    DIFFERENT,
    EQUAL,
    ONLY_A,
    ONLY_B,
    RULE,
    VERDICTS,
    WITHIN,
    Compared,
    outcomes_agree,
    samples_agree,
)
from normlab.analysis.compare_measures import compare_measures
from normlab.analysis.evidence import Evidence
from normlab.analysis.frames import Results
from normlab.analysis.measured import measure_provenance
from normlab.analysis.provenance import commit_text, device_text, machine_text
from normlab.analysis.table import Table
from normlab.config.dump import diff_studies
from normlab.manifests import ResultsError, read_object
from normlab.measures import Measure

_VALUES = ("outcome", "onset_step", "steps", "initial_loss", "final_loss", "best_loss", "best_step", "spikes")
# What does not change the runs of a study.
_FREE = ("name", "question", "outputs", "plugins", "axes", "seeds")


@dataclass(frozen=True)
class Comparison:
    """Two results: their cells in the order of A, what else is to be said of them, and where each was made."""

    a: Path
    b: Path
    cells: tuple[Compared, ...]
    notes: tuple[str, ...]

    @property
    def different(self) -> bool:
        """Whether a cell is different, as `normlab compare` reports by its exit code."""
        return any(cell.verdict == DIFFERENT for cell in self.cells)

    def tables(self, all_cells: bool = True) -> list[Table]:
        """Counts by study, then the cells that are not equal (or those alone that are different)."""
        studies = list(dict.fromkeys(cell.study for cell in self.cells))
        counted = [(name, [cell for cell in self.cells if cell.study == name]) for name in studies]
        if len(studies) > 1:
            counted.append(("all", list(self.cells)))
        rows = [[name, str(len(cells)), *_counts(cells)] for name, cells in counted]
        counts = _table("counts", "cells by verdict", ["study", "cells", *VERDICTS], rows)
        shown = [c for c in self.cells if c.verdict == DIFFERENT or (all_cells and c.verdict != EQUAL)]
        if not shown:
            return [counts]
        head = ["study", "cell", "verdict", "A", "B", "why"]
        cells = [[c.study, c.cell, c.verdict, c.a, c.b, c.reason] for c in shown]
        title = "cells that are not equal" if all_cells else "cells that are different"
        return [counts, _table("cells", title, head, cells)]

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        counts = Counter(cell.verdict for cell in self.cells)
        return {
            "a": str(self.a),
            "b": str(self.b),
            "different": self.different,
            "counts": {verdict: counts[verdict] for verdict in VERDICTS},
            "rule": RULE,
            "notes": list(self.notes),
            "cells": [vars(cell) for cell in self.cells],
        }


def _counts(cells: list[Compared]) -> list[str]:
    counts = Counter(cell.verdict for cell in cells)
    return [str(counts[verdict]) for verdict in VERDICTS]


def _table(name: str, title: str, header: list[str], rows: list[list[str]]) -> Table:
    return Table(name, title, header, rows, pd.DataFrame(rows, columns=header))


def compare(a: str | Path, b: str | Path) -> Comparison:
    """Compare two studies, measures or reproductions; ResultsError if one cannot be read, or if a study that trains is
    to be compared with a measure."""
    one, two = Evidence.open(a), Evidence.open(b)
    cells: list[Compared] = []
    notes = [f"{side}: {root} ({_origin(evidence)})" for side, root, evidence in (("A", a, one), ("B", b, two))]
    for side, evidence in (("A", one), ("B", two)):
        if evidence.quick:
            notes.append(f"{side} was shortened: {'; '.join(evidence.shortened) or 'by --quick'}")
    for name, other in _pairs(one, two):
        if name is None or other is None:
            verdict, text = (ONLY_B, ("", "a study")) if name is None else (ONLY_A, ("a study", ""))
            cells.append(Compared(name or other or "", "", verdict, text[0], text[1]))
            continue
        cells += _study(name, _read(one, name), _read(two, other), notes)
    if not any(cell.a and cell.b for cell in cells):
        notes.append("no cell is in both")
    notes += _verdicts(one, two)
    return Comparison(Path(a), Path(b), tuple(cells), tuple(notes))


def _verdicts(a: Evidence, b: Evidence) -> Iterator[str]:
    """Claims that two reproductions judge otherwise, as far as their verdicts lie there."""
    files = [side.root / "verdicts.json" for side in (a, b)]
    if not all(file.is_file() for file in files):
        return
    try:
        one, two = ({c["id"]: c["verdict"] for c in read_object(file)["claims"]} for file in files)
    except (KeyError, TypeError) as error:
        raise ResultsError(f"verdicts.json: expected claims with id and verdict: {error}") from error
    for claim in one:
        if claim in two and one[claim] != two[claim]:
            yield f"{claim}: {one[claim]} in A, {two[claim]} in B"


def _pairs(a: Evidence, b: Evidence) -> Iterator[tuple[str | None, str | None]]:
    if not a.whole and not b.whole:  # Whatever the two are called.
        yield a.names[0], b.names[0]
        return
    for name in [*a.names, *(name for name in b.names if name not in a.names)]:
        yield name if name in a.names else None, name if name in b.names else None


def _read(evidence: Evidence, name: str) -> Results | Measure:
    found = evidence.results(name) or evidence.measure(name)
    assert found is not None
    return found


def _origin(evidence: Evidence) -> str:
    if evidence.whole:
        manifest = evidence.manifest
        modified = " (modified)" if manifest.get("dirty") else ""
        return f"commit {manifest.get('commit') or 'unknown'}{modified}; {machine_text(manifest)}"
    found = _read(evidence, evidence.names[0])
    if isinstance(found, Measure):
        return measure_provenance(found).origin
    return f"{commit_text(found)}; {device_text(found)}"


def _study(name: str, a: Results | Measure, b: Results | Measure, notes: list[str]) -> list[Compared]:
    if isinstance(a, Measure) and isinstance(b, Measure):
        if a.name != b.name:
            raise ResultsError(f"expected two measures of the same name, got {a.name} and {b.name}")
        changed = [key for key in {**a.settings, **b.settings} if a.settings.get(key) != b.settings.get(key)]
        if changed:
            notes.append(f"{name}: other settings: {', '.join(changed)}")
        return list(compare_measures(name, a, b))
    if isinstance(a, Measure) or isinstance(b, Measure):
        kinds = ["a measure" if isinstance(side, Measure) else "a study that trains" for side in (a, b)]
        raise ResultsError(f"{name}: expected two of a kind, got {kinds[0]} and {kinds[1]}")
    lines = diff_studies(*(_asked(side) for side in (a, b)))
    if lines:
        notes.append(f"{name}: the studies ask other questions: {'; '.join(lines)}")
    return list(_cells(name, a, b))


def _asked(results: Results) -> Mapping[str, Any]:
    study = results.study.model_dump(mode="json")
    return {key: value for key, value in study.items() if key not in _FREE}


def _cells(name: str, a: Results, b: Results) -> Iterator[Compared]:
    """Cells of two studies, joined by the labels of every axis that both have or that has several points."""
    shared = {axis.name for axis in a.study.axes} & {axis.name for axis in b.study.axes}
    one, two = (_groups(side, shared | set(side.varied)) for side in (a, b))
    nothing = ("", a.runs.iloc[:0])
    for key in [*one, *(key for key in two if key not in one)]:
        named = [side.get(key, nothing) for side in (one, two)]
        there = [runs[runs["outcome"] != "missing"] for _, runs in named]
        label = named[0][0] or named[1][0] or "final loss"
        texts = [outcome_text(runs) if len(runs) else "" for runs in there]
        if not all(texts):
            if any(texts):
                yield Compared(name, label, ONLY_A if texts[0] else ONLY_B, texts[0], texts[1])
            continue
        verdict, reason = _judge(there[0], there[1])
        yield Compared(name, label, verdict, texts[0], texts[1], reason)


def _groups(results: Results, axes: set[str]) -> dict[frozenset[tuple[str, str]], tuple[str, pd.DataFrame]]:
    """Name and runs of every condition, by what joins it to the other side: axes and labels in any order."""
    names = [axis.name for axis in results.study.axes if axis.name in axes]
    return {
        frozenset(zip(names, map(_spelled, labels), strict=True)): (_named(names, labels), runs)
        for labels, runs in results.by(names).items()
    }


def _named(names: Sequence[str], labels: Sequence[str]) -> str:
    return ", ".join(f"{name}={label}" for name, label in zip(names, labels, strict=True))


def _spelled(label: str) -> str:
    """`1e-3` and `0.001` are the same label."""
    try:
        return f"{float(label):g}"
    except ValueError:
        return label


def _judge(a: pd.DataFrame, b: pd.DataFrame) -> tuple[str, str]:
    """Verdict and reason for the runs of one condition, a seed each."""
    one, two = _same(a), _same(b)
    if one == two:
        return EQUAL, ""
    if not outcomes_agree(list(a["outcome"]), list(b["outcome"])):
        return DIFFERENT, "other outcomes"
    reasons, fine = [], True
    for what, column in (("final loss", "final_loss"), ("onset step", "onset_step")):
        values = [[float(value) for value in side[column].dropna()] for side in (a, b)]
        if all(values) and values[0] != values[1]:
            agree, why = samples_agree(*values)
            fine &= agree
            reasons.append(f"{what}: {why}")
    return (WITHIN if fine else DIFFERENT), "; ".join(reasons) or f"the same final values; {_others(one, two)}"


def _others(a: Mapping[str, tuple[str, ...]], b: Mapping[str, tuple[str, ...]]) -> str:
    """What is not the same, where the final values are."""
    if a.keys() != b.keys():
        return "other runs"
    unlike = [_VALUES[i] for i in range(len(_VALUES)) if any(a[id][i] != b[id][i] for id in a)]
    return f"other {', '.join(unlike)}"


def _same(runs: pd.DataFrame) -> dict[str, tuple[str, ...]]:
    """What must be equal bit for bit, by run id; as text, since NaN differs from itself."""
    rows = runs[["id", *_VALUES]].itertuples(index=False, name=None)
    return {row[0]: tuple(repr(value) for value in row[1:]) for row in rows}
