"""How a run ended: the one rule, shared by the half that trains and the half that reads (no torch, no pandas)."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence

from normlab.config.schema import Thresholds

OUTCOMES = ("nan", "diverged", "stalled", "unsteady", "trained")


def judge(evaluations: Sequence[float], guess: float, onset_step: int | None, thresholds: Thresholds) -> str:
    """Name the outcome, the first that fits.

    `evaluations` are the validation losses in nats, the one at step 0 first; `guess` is the loss of the best constant
    guess; `onset_step` is the step at which loss, gradient or a parameter became non-finite, None if never.

    nan       something became non-finite
    diverged  mean of the last three evaluations > max(initial, guess) + diverged_margin
    stalled   last evaluation >= guess - stalled_margin
    unsteady  last evaluation > best evaluation + unsteady_margin
    trained   none of these
    """
    if onset_step is not None or not all(math.isfinite(loss) for loss in evaluations):
        return "nan"
    last = evaluations[-1]
    # The evaluation at step 0 is the initial loss, not part of the end of a very short run.
    tail = evaluations[1:][-3:]
    if tail and statistics.fmean(tail) > max(evaluations[0], guess) + thresholds.diverged_margin:
        return "diverged"
    if last >= guess - thresholds.stalled_margin:
        return "stalled"
    if last > min(evaluations) + thresholds.unsteady_margin:
        return "unsteady"
    return "trained"


def count_spikes(train_losses: Sequence[float], margin: float, window: int = 100) -> int:
    """Count the spikes: stretches of steps whose loss lies more than `margin` nats above the median of the `window`
    steps before the stretch. The first `window` steps have no full past and are not judged."""
    past: deque[float] = deque()
    ordered: list[float] = []  # the same losses by size: sorting them anew at every step took most of a check's time
    spikes, inside, level = 0, False, math.inf
    for loss in train_losses:
        if not math.isfinite(loss):
            break
        if not inside and len(past) == window:
            level = (ordered[(window - 1) // 2] + ordered[window // 2]) / 2 + margin
        if len(past) == window and loss > level:
            spikes += not inside
            inside = True
            continue
        inside = False
        if len(past) == window:
            del ordered[bisect_left(ordered, past.popleft())]
        past.append(loss)
        insort(ordered, loss)
    return spikes
