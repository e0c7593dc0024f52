"""The verdict on every claim of the ledger: each cell by its predicates, then the claim as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from normlab.analysis import predicates as rules
from normlab.analysis.evidence import Evidence
from normlab.analysis.extract import EXTRACTORS
from normlab.analysis.ledger import Bound, Cell, Entry, Fails, Monotone, Order, Predicate, Rank, ValueIs, load_ledger
from normlab.analysis.predicates import (
    DIRECTION,
    NOT_RUN,
    NOT_TESTABLE,
    REPRODUCED,
    UNDECIDED,
    VERDICTS,
    Found,
)
from normlab.analysis.samples import Sample, printed, short

__all__ = ["VERDICTS", "CellVerdict", "Judged", "judge", "judge_all", "verdicts_json"]


@dataclass(frozen=True)
class CellVerdict:
    """One cell: labels as in the published table, the published value, what was measured (`low`, `high`: the interval
    that the verdict was taken from; `at_least`: it is a lower bound), how many seeds ended in which outcome, the
    verdict and why."""

    row: str
    column: str
    published: float | str
    measured: str
    mean: float | None
    low: float | None
    high: float | None
    n: int
    outcomes: dict[str, int]
    verdict: str
    reason: str
    at_least: bool = False


@dataclass(frozen=True)
class Judged:
    """The verdict on one claim, with everything a reader needs to check it."""

    entry: Entry
    verdict: str
    reason: str
    published: str
    measured: str
    cells: tuple[CellVerdict, ...]
    command: str
    run_ids: tuple[str, ...]


def judge_all(evidence: Evidence) -> list[Judged]:
    """A verdict for each entry of the ledger, in its order."""
    return [judge(entry, evidence) for entry in load_ledger().entries]


def judge(entry: Entry, evidence: Evidence) -> Judged:
    """The verdict on one claim."""
    if entry.not_testable:
        return _without(entry, NOT_TESTABLE, entry.not_testable)
    if entry.not_run:
        return _without(entry, NOT_RUN, entry.not_run)
    published = entry.cells()
    samples = {cell: sample for cell in published if (sample := _measure(entry, cell, evidence)) is not None}
    if not samples:
        missing = ", ".join(entry.studies)
        return _without(entry, NOT_RUN, f"needs the study {missing}, which is not among these results")
    found = {cell: _judge_cell(entry, cell, published[cell], samples) for cell in published}
    verdict, reason = _whole(entry, published, samples, list(found.values()))
    if evidence.quick and any(sample.outcomes for sample in samples.values()):
        verdict, reason = UNDECIDED, f"shortened runs decide nothing (they say: {verdict})"
    if verdict != REPRODUCED:
        reason += _nearest(entry, evidence)
    cells = tuple(_cell(cell, published[cell], samples.get(cell), found[cell], entry) for cell in published)
    ids = tuple(dict.fromkeys(id for sample in samples.values() for id in sample.ids))
    commands = dict.fromkeys(command for name in entry.studies if (command := evidence.command(name)))
    return Judged(
        entry, verdict, reason, _published_text(entry), _measured_text(cells), cells, "\n".join(commands), ids
    )


def _nearest(entry: Entry, evidence: Evidence) -> str:
    """Where a study looked for another setting that gives the printed number: which came nearest, and how near."""
    measures = [measure for name in entry.studies if (measure := evidence.measure(name))]
    found = [values["nearest"] for m in measures if "nearest" in (values := m.values.get(entry.id, {}))]
    told = [f"{f['setting']} (distance {short(f['distance'])}, the best of {f['tried']} tried)" for f in found]
    return "".join(f"; the nearest setting found: {text}" for text in told)


def _without(entry: Entry, verdict: str, reason: str) -> Judged:
    return Judged(entry, verdict, reason, _published_text(entry), "–", (), "", ())


def _measure(entry: Entry, cell: Cell, evidence: Evidence) -> Sample | None:
    way = entry.way_of(cell)
    sample = EXTRACTORS[way.by](evidence, way.selector(cell)) if way else None
    return sample.in_percent() if sample and entry.unit else sample


def _judge_cell(entry: Entry, cell: Cell, published: Any, samples: dict[Cell, Sample]) -> Found | None:
    """The verdict on a cell by the predicates that look at one cell; None where only the whole is judged."""
    sample = samples.get(cell)
    fitting = [p for p in entry.predicates if isinstance(p, (ValueIs, Bound, Fails)) and p.takes(cell)]
    if not fitting:
        return None
    if sample is None:
        return Found(NOT_RUN, "not among these results")
    if few := rules.too_few(sample, entry.seeds):
        return few
    return _by_cell(fitting[0], published, sample)


def _by_cell(predicate: ValueIs | Bound | Fails, published: Any, sample: Sample) -> Found:
    if isinstance(predicate, Fails):
        return rules.fails(sample)
    if isinstance(predicate, Bound):
        rule = rules.each if predicate.each else rules.bound
        return rule(sample, predicate.at_least, predicate.at_most, predicate.single)
    if isinstance(published, str):
        return rules.outcome(sample, published)
    below = predicate.tolerance * (abs(published) if predicate.relative else 1)
    above = below if predicate.above is None else predicate.above
    return rules.value(sample, published, below, above, predicate.log10, predicate.single)


def _whole(
    entry: Entry, published: dict[Cell, Any], samples: dict[Cell, Sample], found: Sequence[Found | None]
) -> Found:
    cells = [f for f in found if f is not None]
    joint = [_joint(p, published, samples) for p in entry.predicates if isinstance(p, (Order, Monotone, Rank))]
    if len(samples) < len(published) and joint:
        joint.append(Found(UNDECIDED, "some cells are not among these results"))
    if joint and (few := _too_few(entry, samples)):
        joint = [few]
    every = [*cells, *joint]
    verdict = rules.worst([UNDECIDED if f.verdict == NOT_RUN else f.verdict for f in every])
    reason = _counted(cells, joint)
    if verdict in (REPRODUCED, DIRECTION) or not entry.direction:
        return Found(verdict, reason)
    ways = [_direction(p, published, samples) for p in entry.direction]
    if all(way.verdict == REPRODUCED for way in ways) and not _too_few(entry, samples):
        return Found(DIRECTION, f"{reason}; the direction holds: {'; '.join(way.reason for way in ways)}")
    return Found(verdict, f"{reason}; nor is the direction shown: {'; '.join(way.reason for way in ways)}")


def _too_few(entry: Entry, samples: dict[Cell, Sample]) -> Found | None:
    return next((few for sample in samples.values() if (few := rules.too_few(sample, entry.seeds))), None)


def _counted(cells: Sequence[Found], joint: Sequence[Found]) -> str:
    parts = [found.reason for found in joint]
    if len(cells) == 1:
        parts.insert(0, cells[0].reason)
    elif cells:
        counts = {verdict: sum(f.verdict == verdict for f in cells) for verdict in VERDICTS}
        told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
        parts.insert(0, f"of {len(cells)} cells {told}")
    return "; ".join(parts)


def _joint(predicate: Order | Monotone | Rank, published: dict[Cell, Any], samples: dict[Cell, Sample]) -> Found:
    """The verdict of a predicate that looks at several cells together."""
    if isinstance(predicate, Rank):
        told = {cell: _rank_value(value) for cell, value in published.items() if predicate.takes(cell)}
        shared = {cell: value for cell, value in told.items() if cell in samples}
        return rules.rank(shared, {cell: samples[cell] for cell in shared}, predicate.at_least)
    rows = predicate.falling if isinstance(predicate, Monotone) else tuple((b, a) for a, b in predicate.pairs)
    found = []
    for row in rows:
        chain = [samples.get(_cell_of(name)) for name in row]
        if any(sample is None for sample in chain):
            found.append(Found(UNDECIDED, f"{' or '.join(row)} is not among these results"))
            continue
        result = rules.monotone([sample for sample in chain if sample is not None], predicate.margin)
        found.append(Found(result.verdict, f"{' > '.join(name.strip('|') for name in row)}: {result.reason}"))
    return Found(rules.worst([f.verdict for f in found]), "; ".join(f.reason for f in found))


def _direction(predicate: Predicate, published: dict[Cell, Any], samples: dict[Cell, Sample]) -> Found:
    if isinstance(predicate, (Order, Monotone, Rank)):
        return _joint(predicate, published, samples)
    found = [_by_cell(predicate, published[c], s) for c, s in samples.items() if predicate.takes(c)]
    return Found(rules.worst([f.verdict for f in found]), "; ".join(f.reason for f in found))


def _rank_value(published: Any) -> float:
    return float("inf") if isinstance(published, str) else float(published)


def _cell_of(name: str) -> Cell:
    row, _, column = name.rpartition("|")
    return row, column


def _cell(cell: Cell, published: Any, sample: Sample | None, found: Found | None, entry: Entry) -> CellVerdict:
    verdict, reason = found or ("", "judged with the others")
    if sample is None:
        return CellVerdict(*cell, published, "–", None, None, None, 0, {}, verdict or NOT_RUN, reason)
    single = all(getattr(p, "single", True) for p in entry.predicates if p.takes(cell))
    log10 = any(isinstance(p, ValueIs) and p.log10 and p.takes(cell) for p in entry.predicates)
    each = any(isinstance(p, Bound) and p.each and p.takes(cell) for p in entry.predicates)
    low, high = (not each and sample.bounds(single, log10)) or (None, None)
    ended = list(sample.outcomes.values())
    outcomes = {name: ended.count(name) for name in dict.fromkeys(ended) if name}
    text, mean, n, bound = sample.text(), sample.mean, sample.size, sample.at_least
    return CellVerdict(*cell, published, text, mean, low, high, n, outcomes, verdict, reason, bound)


def _published_text(entry: Entry) -> str:
    return _joined([(cell, printed(value, entry.unit)) for cell, value in entry.cells().items()])


def _measured_text(cells: Sequence[CellVerdict]) -> str:
    sizes = sorted({cell.n for cell in cells if cell.n})
    n = f" (n = {' to '.join(map(str, dict.fromkeys((sizes[0], sizes[-1]))))})" if sizes else ""
    return _joined([((cell.row, cell.column), cell.measured) for cell in cells]) + n


def _joined(pairs: Sequence[tuple[Cell, str]]) -> str:
    """`post: 8; pre: 8.3924`; a table is only counted."""
    if len(pairs) > 6:
        return f"table of {len(pairs)} cells"
    names = [" ".join(part for part in cell if part) for cell, _ in pairs]
    return "; ".join(f"{name}: {text}" if name else text for name, (_, text) in zip(names, pairs, strict=True)) or "–"


def verdicts_json(judged: Sequence[Judged]) -> dict[str, Any]:
    """What `verdicts.json` holds: counts, then every claim with its cells."""
    return {
        "counts": {verdict: sum(j.verdict == verdict for j in judged) for verdict in VERDICTS},
        "claims": [
            {
                "id": j.entry.id,
                "verdict": j.verdict,
                "reason": j.reason,
                "published": j.published,
                "measured": j.measured,
                **({"unit": j.entry.unit} if j.entry.unit else {}),
            }
            | {"cells": [vars(cell) for cell in j.cells], "command": j.command, "run_ids": list(j.run_ids)}
            for j in judged
        ],
    }
