"""A run's record against its own curve: all that run.json says of how the run went must follow from curve.csv."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from normlab.config.schema import RunSpec, Thresholds
from normlab.outcome import count_spikes, judge

Curve = Mapping[str, Sequence[float | None]]
Problem = tuple[str, str, object, object]  # file (run.json or curve), where, expected, found


def kept_step(curves: str | None) -> int | None:
    """Every how many steps the curves of a committed copy hold a row, from the manifest's line `curves`; None if they
    are complete."""
    if "thinned" not in (curves or ""):
        return None
    found = re.search(r"every (\d+)th step", curves or "")
    return int(found[1]) if found else 10


def check_record(
    run: Mapping[str, Any], curve: Curve, spec: RunSpec, thresholds: Thresholds, kept: int | None
) -> Iterator[Problem]:
    """What in `run` does not follow from `curve`. `kept`: as `kept_step`; spikes are then not counted again.

    KeyError, TypeError or ValueError if `run` or `curve` are not of a run's shape."""
    yield from _columns(curve, spec)
    steps = [int(step) for step in _numbers(curve["step"])]
    if not steps:
        yield "curve", "", "a row a step", "no row"
        return
    last, onset = steps[-1], run["onset"]
    onset_step = onset["step"] if onset else None
    yield from _rows(steps, spec, kept, last)
    yield from _end(run, spec, last, onset_step)
    taken = {step: loss for step, loss in zip(steps, curve["val_loss"], strict=True) if loss is not None}
    yield from _evaluations(taken, spec, last, onset_step)
    yield from _onset(run, curve, steps)
    yield from _losses(run, taken, thresholds, onset_step)
    train = [loss for loss in curve["train_loss"] if loss is not None]
    # As they are read first, which nearly always settles it: turning each into what was counted then takes longer.
    if kept is None and run["spikes"] != count_spikes(train, thresholds.spike_margin):
        spikes = count_spikes(list(map(_single, train)), thresholds.spike_margin)
        if run["spikes"] != spikes:
            yield "run.json", "spikes", f"{spikes} by its curve", run["spikes"]


def _columns(curve: Curve, spec: RunSpec) -> Iterator[Problem]:
    activations = [f"act_rms_{layer}" for layer in range(spec.model.depth + 1)]
    expected = ["step", "train_loss", "grad_norm", "val_loss", *activations]
    if list(curve) != expected:
        yield "curve", "columns", ",".join(expected), ",".join(curve)


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _rows(steps: Sequence[int], spec: RunSpec, kept: int | None, last: int) -> Iterator[Problem]:
    """The steps that must be there are, once each and in order."""
    backwards = [b for a, b in zip(steps, steps[1:], strict=False) if b <= a]
    if backwards:
        yield "curve", "steps", "each once, in order", f"{backwards[0]} again or too late"
    every = range(last + 1)
    due = every if kept is None else [s for s in every if s % kept == 0 or s in _due(spec) or s == last]
    lacking = sorted(set(due) - set(steps))
    if lacking:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        yield "curve", "steps", f"a row for step {lacking[0]}{more}", "none"


def _due(spec: RunSpec) -> set[int]:
    return {*range(0, spec.train.steps, spec.train.eval_every), spec.train.steps}


def _end(run: Mapping[str, Any], spec: RunSpec, last: int, onset_step: int | None) -> Iterator[Problem]:
    if run["steps"] != last:
        yield "run.json", "steps", f"{last}, the curve's last", run["steps"]
    if onset_step is None and last != spec.train.steps:
        yield "curve", "last step", spec.train.steps, last
    if onset_step is not None and onset_step != last:
        yield "run.json", "onset.step", f"{last}, the curve's last", onset_step


def _evaluations(taken: Mapping[int, float], spec: RunSpec, last: int, onset_step: int | None) -> Iterator[Problem]:
    # Whether the evaluation at the onset was still taken depends on what became non-finite.
    due = {step for step in _due(spec) if step <= last}
    for step in sorted((due ^ taken.keys()) - {onset_step}):
        have, lack = f"an evaluation at step {step}", f"none at step {step}"
        yield "curve", "val_loss", have if step in due else lack, lack if step in due else have


def _onset(run: Mapping[str, Any], curve: Curve, steps: Sequence[int]) -> Iterator[Problem]:
    """No loss is other than finite before the onset, and the one at an onset in the loss is."""
    pairs = zip(steps, curve["train_loss"], curve["val_loss"], strict=True)
    bad = [step for step, train, val in pairs if not (_fine(train) and _fine(val))]
    first, onset = bad[0] if bad else None, run["onset"]
    if bad and (onset is None or onset["step"] > bad[0]):
        yield "run.json", "onset", f"at step {first}, where the curve's loss is not finite", onset and onset["step"]
    if onset is not None and onset["kind"] == "loss" and onset["step"] not in bad:
        yield "curve", f"loss at step {onset['step']}, the onset", "not finite", "finite"


def _fine(loss: float | None) -> bool:
    return loss is None or math.isfinite(loss)


def _losses(
    run: Mapping[str, Any], taken: Mapping[int, float], thresholds: Thresholds, onset_step: int | None
) -> Iterator[Problem]:
    if not taken:
        yield "curve", "val_loss", "at least one evaluation", "none"
        return
    outcome = judge(list(taken.values()), run["task"]["guess"], onset_step, thresholds)
    if run["outcome"] != outcome:
        yield "run.json", "outcome", f"{outcome} by its curve", run["outcome"]
    best = None if outcome == "nan" else min(taken, key=lambda step: taken[step])
    initial = taken.get(0)
    expected = {
        "initial": initial if initial is not None and math.isfinite(initial) else None,
        "final": None if best is None else taken[max(taken)],
        "best": None if best is None else taken[best],
        "best_step": best,
    }
    for key, value in expected.items():
        if run["loss"][key] != value:
            shown = "null" if value is None else value
            yield "run.json", f"loss.{key}", f"{shown} by its curve", run["loss"][key]


def _single(loss: float) -> float:
    """The number that was written: float32 values stand in the file with the fewest digits that read back."""
    with np.errstate(over="ignore"):
        single = np.float32(loss)
    return float(single) if float(str(single)) == loss else loss
