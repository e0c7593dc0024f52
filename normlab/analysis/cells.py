"""One cell of a table: the runs of one condition, a seed each, as a short text and as full-precision columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from normlab.analysis.frames import FINITE_OUTCOMES, OUTCOMES, UNFINISHED
from normlab.analysis.metrics import first_step_at, spread

NOT_TAKEN = "–"  # nothing was evaluated there
_NONE = pd.Series(dtype=float)


def number(value: float) -> str:
    """Two decimals; scientific where a loss has run away or would round to zero."""
    if not math.isfinite(value):
        return NOT_TAKEN
    return f"{value:.2f}" if 0.005 <= abs(value) < 1e4 or value == 0 else f"{value:.1e}"


def mean_text(values: Sequence[float]) -> str:
    """`2.28` for one value, `2.28 ± 0.03` (sample standard deviation) for several.

    A deviation that two decimals would show as none keeps one digit: `1.60 ± 0.004`, `4.16 ± 2e-05`."""
    s = spread(values)
    mean = number(s.mean)
    if s.n < 2:
        return mean
    return f"{mean} ± {number(s.sd) if 'e' in mean else _small(s.sd)}"


def _small(sd: float) -> str:
    text = f"{sd:.2f}"
    return f"{sd:.1g}" if float(text) == 0 < sd else text


def joined(parts: Sequence[tuple[str, int]], n: int) -> str:
    """`nan@312` if all n seeds agree, `2.28 ± 0.03 (2/3), nan@312 (1/3)` if they do not; parts are (text, count)."""
    if len(parts) == 1:
        return parts[0][0]
    return ", ".join(f"{text} ({count}/{n})" for text, count in parts)


def outcome_text(runs: pd.DataFrame) -> str:
    """How the runs of one condition ended: `2.28 ± 0.03`, `nan@312–340`, `stalled 4.16`, ... with counts if they
    disagree. The number is the final validation loss in nats."""
    return _ended_text(_ended(runs), len(runs))


def _ended(runs: pd.DataFrame) -> dict[str, list[Any]]:
    """By outcome, in their order: the final losses of its runs, or the onset steps of those that became NaN."""
    found: dict[str, list[Any]] = {}
    columns = (runs[name].tolist() for name in ("outcome", "final_loss", "onset_step"))
    for outcome, loss, onset in zip(*columns, strict=True):
        found.setdefault(outcome, []).append(onset if outcome == "nan" else loss)
    return {outcome: found[outcome] for outcome in OUTCOMES if outcome in found}


def _ended_text(ended: dict[str, list[Any]], n: int) -> str:
    parts = []
    for outcome, values in ended.items():
        text = outcome
        if outcome in FINITE_OUTCOMES:
            losses = mean_text(values)
            text = losses if outcome == "trained" else f"{outcome} {losses}"
        elif outcome == "nan":
            text = "nan@" + _range(values)
        parts.append((text, len(values)))
    return joined(parts, n)


def _range(steps: Sequence[int]) -> str:
    first, last = int(min(steps)), int(max(steps))
    return str(first) if first == last else f"{first}–{last}"


def outcome_data(runs: pd.DataFrame) -> dict[str, Any]:
    """The same cell in columns: n, outcome (`mixed` if the seeds disagree), mean and sd where they agree on a finite
    one, and for each outcome its count with mean and sd of the final loss, or first and last onset step."""
    ended = _ended(runs)
    kinds = list(ended)
    data: dict[str, Any] = {"n": len(runs), "outcome": kinds[0] if len(kinds) == 1 else "mixed"}
    common = spread(ended[kinds[0]] if len(kinds) == 1 and kinds[0] in FINITE_OUTCOMES else [])
    data |= {"mean": common.mean, "sd": common.sd}
    for outcome in OUTCOMES:
        values = ended.get(outcome, [])
        data[outcome] = len(values)
        if outcome in FINITE_OUTCOMES:
            of_outcome = spread(values)
            data |= {f"{outcome}_mean": of_outcome.mean, f"{outcome}_sd": of_outcome.sd}
        elif outcome == "nan":
            data |= {"nan_first": min(values, default=None), "nan_last": max(values, default=None)}
    return data | {"text": _ended_text(ended, len(runs)), "run_ids": " ".join(runs["id"])}


def step_data(runs: pd.DataFrame, evaluations: dict[str, pd.Series], step: int) -> dict[str, Any]:
    """Validation loss of one condition at a step: n, mean and sd over the runs that have one, counts and text.

    From a run's onset on it is `nan`; where a run was not evaluated at that step (or has ended) it is `not_taken`.
    """
    losses, counts = [], dict.fromkeys(("nan", "not_taken", *UNFINISHED), 0)
    for run_id, outcome, onset in zip(runs["id"], runs["outcome"], runs["onset_step"], strict=True):
        if outcome in UNFINISHED:
            counts[outcome] += 1
        elif outcome == "nan" and step >= onset:
            counts["nan"] += 1
        elif step in (series := evaluations.get(run_id, _NONE)).index:
            losses.append(float(series[step]))
        else:
            counts["not_taken"] += 1
    s = spread(losses)
    parts = [(mean_text(losses), s.n)] if losses else []
    parts += [(NOT_TAKEN if kind == "not_taken" else kind, count) for kind, count in counts.items() if count]
    return {"n": len(runs), "finite": s.n, "mean": s.mean, "sd": s.sd, **counts, "text": joined(parts, len(runs))}


def reach_data(runs: pd.DataFrame, evaluations: dict[str, pd.Series], loss: float) -> dict[str, Any]:
    """First evaluation at or below `loss`: median, first and last step over the runs that reach it, counts and text."""
    gone = {kind: int((runs["outcome"] == kind).sum()) for kind in UNFINISHED}
    found = (first_step_at(evaluations.get(run_id), loss) for run_id in runs["id"])
    steps = pd.Series([step for step in found if step is not None], dtype="Int64")
    counts = {"not reached": len(runs) - len(steps) - sum(gone.values()), **gone}
    parts = [(_median_text(steps), len(steps))] if len(steps) else []
    parts += [(kind, count) for kind, count in counts.items() if count]
    numbers = {"median": float(steps.median()), "first": steps.min(), "last": steps.max()} if len(steps) else {}
    empty = dict.fromkeys(("median", "first", "last"))
    named = {"reached": len(steps), "not_reached": counts["not reached"], **gone}
    return {"n": len(runs), **named, **empty, **numbers, "text": joined(parts, len(runs))}


def _median_text(steps: pd.Series) -> str:
    median = f"{float(steps.median()):g}"
    return median if steps.min() == steps.max() else f"{median} ({_range(steps.tolist())})"
