"""From results to the measured side of a cell: one function a way of reading, by name in `EXTRACTORS`.

Each takes the evidence and a selector, a dict with `study`, the settings that pick its runs (`model.norm: none`) and
what the function itself needs, and returns a `Sample`; None where the study or the runs are not there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas as pd

from normlab.analysis.evidence import Evidence
from normlab.analysis.frames import Results, finished
from normlab.analysis.metrics import first_step_at, lr_sensitivity, lr_window
from normlab.analysis.samples import Sample

Selector = Mapping[str, Any]


def chosen(evidence: Evidence, selector: Selector, whole: bool = False) -> tuple[Results, pd.DataFrame] | None:
    """The results and the rows of its finished runs that have every dotted setting, and every label of an axis of
    named variants, that the selector gives. `whole`: None if any of these runs is missing or failed, since what is
    read off a grid would be another thing on a part of it."""
    results = evidence.results(str(selector["study"]))
    if results is None:
        return None
    runs = results.runs
    for name, value in selector.items():
        if "." in name or name in results.labels:
            runs = runs[runs[name] == value]
    done = finished(runs)
    return (results, done) if len(done) and not (whole and len(done) < len(runs)) else None


def by_seed(runs: pd.DataFrame) -> Iterator[tuple[int, list[Mapping[Any, Any]]]]:
    """The rows of each seed, as dicts."""
    rows: dict[int, list[Mapping[Any, Any]]] = {}
    for row in runs.to_dict("records"):
        rows.setdefault(int(row["seed"]), []).append(row)
    yield from sorted(rows.items())


def _sample(
    runs: pd.DataFrame, values: Mapping[int, float], outcomes: Mapping[int, str] | None = None, loss: bool = False
) -> Sample:
    ended = outcomes if outcomes is not None else dict(zip(runs["seed"], runs["outcome"], strict=True))
    finite = {int(seed): float(value) for seed, value in values.items() if value is not None and math.isfinite(value)}
    return Sample(finite, {int(seed): text for seed, text in ended.items()}, ids=tuple(runs["id"]), loss=loss)


def loss_at(evidence: Evidence, selector: Selector) -> Sample | None:
    """Validation loss (nats) at `step`; a run that is NaN by then has none."""
    found = chosen(evidence, selector)
    if found is None:
        return None
    results, runs = found
    step, values, outcomes = int(selector["step"]), {}, {}
    for run in runs.to_dict("records"):
        taken = results.evaluations.get(run["id"], pd.Series(dtype=float))
        gone = run["outcome"] == "nan" and run["onset_step"] <= step
        if not gone and step not in taken:
            return None  # not evaluated there: another question than the claim's
        # Before its onset a run that ends as NaN is one that still trains.
        outcomes[run["seed"]] = "nan" if gone else "" if run["outcome"] == "nan" else run["outcome"]
        values[run["seed"]] = math.nan if gone else float(taken[step])
    return _sample(runs, values, outcomes, loss=True)


def final_loss(evidence: Evidence, selector: Selector) -> Sample | None:
    """Validation loss (nats) after the last step."""
    found = chosen(evidence, selector)
    if found is None:
        return None
    _, runs = found
    return _sample(runs, dict(zip(runs["seed"], runs["final_loss"], strict=True)), loss=True)


def onset(evidence: Evidence, selector: Selector) -> Sample | None:
    """Step of the first non-finite value."""
    found = chosen(evidence, selector)
    if found is None:
        return None
    _, runs = found
    steps = runs["onset_step"].astype("Float64").astype(float)
    return _sample(runs, dict(zip(runs["seed"], steps, strict=True)))


def leaf(evidence: Evidence, selector: Selector) -> Sample | None:
    """A value of a measure at `path` (dotted; a number stands for a place in a list)."""
    measure = evidence.measure(str(selector["study"]))
    if measure is None:
        return None
    node: Any = measure.values
    for part in str(selector["path"]).split("."):
        try:
            node = node[int(part)] if isinstance(node, list) else node[part]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    if isinstance(node, Mapping) and "by_seed" in node:
        values = {int(seed): float(x) for seed, x in node["by_seed"].items() if x is not None}
        return Sample(values, dict.fromkeys((int(seed) for seed in node["by_seed"]), ""))
    if isinstance(node, Mapping) and {"median", "low", "high"} <= node.keys():
        if node["median"] is None:
            return None
        return Sample({0: float(node["median"])}, {}, (float(node["low"]), float(node["high"])), int(node.get("n", 1)))
    return Sample({0: float(node)}) if isinstance(node, (int, float)) and not isinstance(node, bool) else None


def difference(evidence: Evidence, selector: Selector) -> Sample | None:
    """Final loss minus that of the runs `against`, paired by seed (nats)."""
    first = final_loss(evidence, selector)
    second = final_loss(evidence, _other(selector))
    return _paired(first, second, lambda a, b: a - b)


def largest_gap(evidence: Evidence, selector: Selector) -> Sample | None:
    """Largest |loss - loss of the runs `against`| over the evaluations at `steps`, paired by seed (nats)."""
    gaps: list[Sample] = []
    for step in selector["steps"]:
        one = loss_at(evidence, {**selector, "step": step})
        other = loss_at(evidence, {**_other(selector), "step": step})
        gap = _paired(one, other, lambda a, b: abs(a - b))
        if gap is None:
            return None
        gaps.append(gap)
    seeds = set.intersection(*(set(gap.values) for gap in gaps))
    return Sample({seed: max(gap.values[seed] for gap in gaps) for seed in seeds}, gaps[0].outcomes, ids=gaps[0].ids)


def _other(selector: Selector) -> dict[str, Any]:
    return {**{k: v for k, v in selector.items() if k != "against"}, **selector["against"]}


def _paired(first: Sample | None, second: Sample | None, how: Callable[[float, float], float]) -> Sample | None:
    if first is None or second is None:
        return None
    both = sorted(first.values.keys() & second.values.keys())
    seeds = first.outcomes.keys() | second.outcomes.keys()
    ended = {seed: _joint(first.outcomes.get(seed, "missing"), second.outcomes.get(seed, "missing")) for seed in seeds}
    values = {seed: how(first.values[seed], second.values[seed]) for seed in both}
    return Sample(values, ended, ids=tuple(dict.fromkeys((*first.ids, *second.ids))))


def _joint(one: str, other: str) -> str:
    return one if one == other else f"{one} against {other}"


def window(evidence: Evidence, selector: Selector) -> Sample | None:
    """Width of the learning-rate window in decades, over all seeds at once; a lower bound where it touches the grid's
    edge. No rate that trains: outcome `unusable`."""
    found = chosen(evidence, selector, whole=True)
    if found is None:
        return None
    _, runs = found
    width = lr_window(runs)
    if math.isnan(width.decades):
        return Sample({}, dict.fromkeys(map(int, set(runs["seed"])), "unusable"), ids=tuple(runs["id"]))
    seeds = {int(seed): width.decades for seed in set(runs["seed"])}
    return Sample(seeds, {}, ids=tuple(runs["id"]), at_least=width.open_low or width.open_high)


def best_loss(evidence: Evidence, selector: Selector) -> Sample | None:
    """Lowest final loss over the grid's rates, by seed (nats), among the runs that train."""
    return _best(evidence, selector, lambda row: row["final_loss"], loss=True)


def best_rate(evidence: Evidence, selector: Selector) -> Sample | None:
    """Learning rate of the lowest final loss, by seed."""
    return _best(evidence, selector, lambda row: row["optim.lr"])


def rate_shift(evidence: Evidence, selector: Selector) -> Sample | None:
    """Decades between the best learning rate and that of the runs `against`, paired by seed."""
    first, second = best_rate(evidence, selector), best_rate(evidence, _other(selector))
    return _paired(first, second, lambda a, b: math.log10(a / b))


def _best(evidence: Evidence, selector: Selector, read: Callable[[Any], float], loss: bool = False) -> Sample | None:
    found = chosen(evidence, selector, whole=True)
    if found is None:
        return None
    _, runs = found
    values, outcomes = {}, {}
    for seed, rows in by_seed(runs):
        trained = [row for row in rows if row["outcome"] == "trained"]
        outcomes[seed] = "trained" if trained else "unusable"
        if trained:
            values[seed] = float(read(min(trained, key=lambda row: row["final_loss"])))
    return _sample(runs, values, outcomes, loss)


def step_ratio(evidence: Evidence, selector: Selector) -> Sample | None:
    """Steps after which the runs reach the best loss of the runs `against`, over the steps that those took, paired by
    seed; below 1 is faster. A seed that never reaches it counts as infinite: it has no value, and outcome `never`."""
    one, other = chosen(evidence, selector), chosen(evidence, _other(selector))
    if one is None or other is None:
        return None
    values, outcomes = {}, {}
    ahead = {run["seed"]: run["id"] for run in one[1].to_dict("records")}
    for run in other[1].to_dict("records"):
        seed = run["seed"]
        if seed not in ahead or pd.isna(run["best_loss"]):
            continue
        reached = first_step_at(one[0].evaluations.get(ahead[seed]), run["best_loss"])
        outcomes[seed] = "" if reached is not None else "never"
        if reached is not None:
            values[seed] = reached / max(1, run["best_step"])
    ids = (*one[1]["id"], *other[1]["id"])
    return Sample(values, outcomes, ids=ids) if outcomes else None


def sensitivity(evidence: Evidence, selector: Selector) -> Sample | None:
    """Learning-rate sensitivity by seed (nats; Wortsman et al. 2023)."""
    found = chosen(evidence, selector, whole=True)
    if found is None:
        return None
    _, runs = found
    each = lr_sensitivity(runs).by_seed
    values = {seed: value for seed, value in each.items() if value is not None}
    return Sample(values, dict.fromkeys(each, ""), ids=tuple(runs["id"]))


def raggedness(evidence: Evidence, selector: Selector) -> Sample | None:
    """Sum of all rises of the validation loss between neighbouring evaluations, mean over the rates, by seed (nats):
    0 for a curve that only falls."""
    found = chosen(evidence, selector, whole=True)
    if found is None:
        return None
    results, runs = found
    values: dict[int, float] = {}
    for seed, rows in by_seed(runs):
        curves = [results.evaluations[row["id"]] for row in rows if row["id"] in results.evaluations]
        rises = [float(curve.diff().clip(lower=0).sum()) for curve in curves]
        if rises:
            values[seed] = sum(rises) / len(rises)
    return Sample(values, dict.fromkeys(values, ""), ids=tuple(runs["id"]))


EXTRACTORS: dict[str, Callable[[Evidence, Selector], Sample | None]] = {
    function.__name__: function
    for function in (loss_at, final_loss, onset, leaf, difference, largest_gap, window, best_loss, best_rate,
                     rate_shift, step_ratio, sensitivity, raggedness)
}  # fmt: skip
