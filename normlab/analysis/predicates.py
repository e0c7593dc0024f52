"""The closed set of predicates: does what was measured agree with what is claimed?

A predicate sees the published cells and the measured ones (`Sample`), and nothing else of the article. Each returns a
verdict with a reason of one sentence. The published value is read to compare with, never to set a tolerance.

    value     mean within a tolerance of the published number: interval inside it = reproduced, outside = contradicted,
              across its edge = undecided. On a logarithmic scale the tolerance is in decades.
    outcome   the runs end as published (nan, unsteady, unusable): all seeds do = reproduced; all fail, but in another
              way = direction only; all train = contradicted; seeds disagree = undecided
    bound     a number lies above or below a bound: the whole interval does = reproduced, none of it = contradicted;
              said of any run (`each`): every seed does = reproduced, none does = contradicted
    order     one cell lies below another by more than a margin, paired by seed; NaN counts as above everything
    monotone  a row of cells only falls (every neighbouring pair as `order`)
    rank      the measured cells of each seed stand in the published order: Kendall's tau-b, NaN above everything
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from normlab.analysis.samples import Sample, printed, short

REPRODUCED, DIRECTION, CONTRADICTED = "reproduced", "direction only", "contradicted"
UNDECIDED, NOT_TESTABLE, NOT_RUN = "undecided", "not testable here", "not run"
VERDICTS = (REPRODUCED, DIRECTION, CONTRADICTED, UNDECIDED, NOT_TESTABLE, NOT_RUN)
FAILED = ("nan", "diverged", "stalled", "unsteady", "unusable", "never")


class Found(NamedTuple):
    """A verdict and why."""

    verdict: str
    reason: str


def too_few(sample: Sample, seeds: int) -> Found | None:
    """Undecided where there are fewer seeds than the claim needs."""
    if sample.size >= seeds:
        return None
    return Found(UNDECIDED, f"{sample.size} of the {seeds} seeds that the claim needs")


def value(
    sample: Sample, published: float, below: float, above: float, log10: bool = False, single: bool = True
) -> Found:
    """Whether the interval lies within published - below .. published + above (decades if `log10`)."""
    bounds = sample.bounds(single, log10)
    if bounds is None:
        return _no_value(sample)
    low, high = (_scaled(x, log10) for x in bounds)
    centre = _scaled(published, log10)
    of = f"of {printed(published, sample.unit)}"
    return _inside(low, high, centre - below, centre + above, of, "(decades)" if log10 else sample.unit)


def _scaled(x: float, log10: bool) -> float:
    if not log10 or math.isinf(x):
        return x
    return math.log10(x) if x > 0 else -math.inf


def _no_value(sample: Sample) -> Found:
    if not sample.outcomes:
        return Found(UNDECIDED, "nothing was measured")
    if not sample.values:
        return Found(CONTRADICTED, f"a number is printed, no seed has one: {sample.ends()}")
    return Found(UNDECIDED, "the seeds end differently, so there is no mean")


def _inside(low: float, high: float, bottom: float, top: float, of: str, unit: str) -> Found:
    # Printed decimals are not binary ones: the edge itself must not be lost to the last bit.
    slack = 1e-9 * max(1.0, abs(bottom) if math.isfinite(bottom) else 0, abs(top) if math.isfinite(top) else 0)
    interval = f"[{short(low)}, {short(high)}]" if high - low > slack else short(low)
    unit = f" {unit}" if unit else ""
    if low >= bottom - slack and high <= top + slack:
        return Found(REPRODUCED, f"{interval}{unit} lies within the tolerance {of}")
    if high < bottom - slack or low > top + slack:
        return Found(CONTRADICTED, f"{interval}{unit} lies outside the tolerance {of}")
    return Found(UNDECIDED, f"{interval}{unit} reaches across the edge of the tolerance {of}")


def outcome(sample: Sample, published: str) -> Found:
    """Whether every seed ends as published."""
    ended, counts = list(sample.outcomes.values()), sample.ends()
    if not ended:
        return Found(CONTRADICTED, f"'{published}' is printed, a value of {sample.text()} was measured")
    if all(end == published for end in ended):
        return Found(REPRODUCED, f"every seed ends as {published}")
    if any(end == published for end in ended):
        return Found(UNDECIDED, f"the seeds disagree: {counts}")
    # Another failure is the direction of a failure; of a net that is said to train it is the opposite.
    failed = [published in FAILED and end in FAILED for end in ended]
    if all(failed):
        return Found(DIRECTION, f"every seed fails, but not as {published}: {counts}")
    if any(failed):
        return Found(UNDECIDED, f"no seed ends as {published}, some fail in another way: {counts}")
    return Found(CONTRADICTED, f"no seed ends as {published}: {counts}")


def fails(sample: Sample) -> Found:
    """Whether every seed fails to train, in whatever way."""
    ended = list(sample.outcomes.values())
    failed = [end in FAILED for end in ended]
    verdict = REPRODUCED if ended and all(failed) else UNDECIDED if any(failed) else CONTRADICTED
    return Found(verdict, sample.ends())


def bound(sample: Sample, at_least: float | None, at_most: float | None, single: bool = False) -> Found:
    """Whether the interval lies at or above `at_least` and at or below `at_most`."""
    bounds = sample.bounds(single)
    if bounds is None:
        return _no_value(sample)
    bottom = -math.inf if at_least is None else at_least
    top = math.inf if at_most is None else at_most
    ends = [f"at least {sample.told(short(bottom))}"] * (at_least is not None)
    ends += [f"at most {sample.told(short(top))}"] * (at_most is not None)
    return _inside(*bounds, bottom, top, f"({' and '.join(ends)})", sample.unit)


def each(sample: Sample, at_least: float | None, at_most: float | None, single: bool = False) -> Found:
    """Whether every seed lies at or above `at_least` and at or below `at_most`: for what is said of any run.

    `single` is not read: there is no interval."""
    if sample.mean is None:
        return _no_value(sample)
    holds = [(at_least is None or x >= at_least) and (at_most is None or x <= at_most) for x in sample.values.values()]
    verdict = REPRODUCED if all(holds) else UNDECIDED if any(holds) else CONTRADICTED
    values = ", ".join(map(short, sample.values.values()))
    return Found(verdict, f"{sum(holds)} of {len(holds)} seeds hold ({values})")


def order(low: Sample, high: Sample, margin: float = 0.0) -> Found:
    """Whether low < high + margin, from the differences high - low paired by seed and the interval of their mean.

    A positive margin makes it `not worse by more than`, a negative one `lower by at least`. A seed whose `high` has no
    value while `low` has one speaks for it, and the other way round: NaN counts as above everything. Where `low` is a
    lower bound only, nothing can be shown for it."""
    if low.interval is not None and high.interval is not None:
        (a, b), (c, d) = low.interval, high.interval
        verdict = REPRODUCED if b < c + margin else CONTRADICTED if a > d + margin else UNDECIDED
        one, other = low.told(f"[{short(a)}, {short(b)}]"), high.told(f"[{short(c)}, {short(d)}]")
        return Found(verdict, f"{one} against {other}")
    seeds = sorted((low.values.keys() | low.outcomes.keys()) & (high.values.keys() | high.outcomes.keys()))
    differences = [_difference(low.values.get(seed), high.values.get(seed)) for seed in seeds]
    if len(seeds) < max(low.size, high.size):
        return Found(UNDECIDED, "some seeds are on one side only, so they cannot be paired")
    if not differences or any(math.isnan(d) for d in differences):
        return Found(UNDECIDED, "a seed without a value on either side")
    if any(math.isinf(d) for d in differences):
        if all(d == math.inf for d in differences):
            return Found(REPRODUCED, "every seed has a value on the lower side and none on the upper")
        if all(d == -math.inf for d in differences):
            return Found(CONTRADICTED, "every seed has a value on the upper side and none on the lower")
        return Found(UNDECIDED, "some seeds have a value on one side only")
    bounds = Sample(dict(enumerate(differences))).bounds(single=False)
    assert bounds is not None
    several = bounds[1] > bounds[0]
    by = low.told(f"[{short(bounds[0])}, {short(bounds[1])}]" if several else short(bounds[0]))
    text = f"mean paired difference {by}" if several else f"by {by}"
    verdict = REPRODUCED if bounds[0] > -margin else CONTRADICTED if bounds[1] < -margin else UNDECIDED
    if low.at_least and verdict == REPRODUCED:
        return Found(UNDECIDED, f"{text}, but the lower side is a lower bound only")
    if high.at_least and verdict == CONTRADICTED:
        return Found(UNDECIDED, f"{text}, but the upper side is a lower bound only")
    return Found(verdict, text + (f", margin {short(margin)}" if margin else ""))


def _difference(low: float | None, high: float | None) -> float:
    if low is None and high is None:
        return math.nan
    return -math.inf if low is None else math.inf if high is None else high - low


def monotone(falling: Sequence[Sample], margin: float = 0.0) -> Found:
    """Whether every sample lies below the one before it."""
    found = [order(later, earlier, margin) for earlier, later in zip(falling, falling[1:], strict=False)]
    return Found(worst([f.verdict for f in found]), "; ".join(f.reason for f in found))


def worst(verdicts: Sequence[str]) -> str:
    """Contradicted if any is, else undecided if any is, else direction only if any is, else reproduced."""
    for verdict in (CONTRADICTED, UNDECIDED, DIRECTION):
        if verdict in verdicts:
            return verdict
    return REPRODUCED


def rank(published: Mapping[Any, float], measured: Mapping[Any, Sample], at_least: float) -> Found:
    """Whether the cells of every seed stand in the published order: the interval of the mean tau-b over the seeds lies
    at or above `at_least` (contradicted: wholly below 0). NaN counts as above everything, equal to other NaN."""
    seeds = sorted(set.intersection(*(set(s.outcomes or s.values) for s in measured.values()))) if measured else []
    if not seeds:
        return Found(UNDECIDED, "no seed has all cells")
    keys = list(published)
    first = [published[key] for key in keys]
    taus = {seed: kendall(first, [measured[key].values.get(seed, math.inf) for key in keys]) for seed in seeds}
    if any(math.isnan(tau) for tau in taus.values()):
        return Found(UNDECIDED, "all cells are equal, so they have no order")
    bounds = Sample(taus).bounds(single=False)
    assert bounds is not None
    text = f"Kendall's tau {short(sum(taus.values()) / len(taus))} [{short(bounds[0])}, {short(min(1.0, bounds[1]))}]"
    verdict = REPRODUCED if bounds[0] >= at_least else CONTRADICTED if bounds[1] < 0 else UNDECIDED
    return Found(verdict, f"{text}, asked for {short(at_least)}")


def kendall(first: Sequence[float], second: Sequence[float]) -> float:
    """Kendall's tau-b of two rows of numbers, infinities allowed; NaN where one of them is constant."""
    concordant, ties_first, ties_second, pairs = 0, 0, 0, 0
    for i in range(len(first)):
        for j in range(i):
            a, b = _sign(first[i], first[j]), _sign(second[i], second[j])
            pairs += 1
            ties_first += a == 0
            ties_second += b == 0
            concordant += a * b
    scale = math.sqrt((pairs - ties_first) * (pairs - ties_second))
    return concordant / scale if scale else math.nan


def _sign(a: float, b: float) -> int:
    return (a > b) - (a < b)
