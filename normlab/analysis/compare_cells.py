"""One cell of two results, and the rule by which they agree."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from normlab.analysis.samples import short, t_quantile

EQUAL, WITHIN, DIFFERENT, SPEED = "equal", "within spread", "different", "other speed"
ONLY_A, ONLY_B = "only in A", "only in B"
VERDICTS = (EQUAL, WITHIN, DIFFERENT, SPEED, ONLY_A, ONLY_B)

# float32 keeps seven digits; three of them may go in the sums and products of another machine.
ROUNDING = 1e-4
# What is itself an error of rounding is of this size at most.
TINY = 1e-5

RULE = (
    "Of a run are compared its outcome, the step of its first non-finite value, how many steps it took, its initial,"
    " final and best loss, the step of the best, and its spikes; not its curves, its activations, what made a NaN, nor"
    " its time. Of a measure every value, by its path. Tables and figures are not compared; verdicts that differ are"
    " noted.\n"
    "equal: the same runs, or the same path, and all of this to the last bit.\n"
    "within spread: the seeds end in the same outcomes as often (fewer seeds in outcomes that the other side has too),"
    " and the means (of final losses, of the onset steps of nan runs; initial and best losses, steps and spikes may be"
    " others) differ by no more than their spread allows: the 95 % interval of the difference (Welch's t) contains 0,"
    " or, where one side has one seed, it lies in the 95 % prediction interval of the other; one seed on both sides has"
    " no spread, so what is not equal is different. A measure's value by seed is finite as often, with such a mean; a"
    f" number without seeds may differ by {ROUNDING:g} of itself (float32 summed in another order), an error of"
    f" rounding by {TINY:g}, a count not at all; of times the 20th to 80th percentiles overlap.\n"
    "different: neither.\n"
    "other speed: times, or speeds, that would be different; another machine is no difference."
)


@dataclass(frozen=True)
class Compared:
    """One cell: where it is, the verdict, both sides as short text, and why."""

    study: str
    cell: str
    verdict: str
    a: str
    b: str
    reason: str = ""


def samples_agree(a: Sequence[float], b: Sequence[float]) -> tuple[bool, str]:
    """Whether two samples of finite values, a value a seed, have the same mean as far as their spread tells; and why.

    Welch's t interval of the difference at 95 %, or the prediction interval of the side that has several values."""
    if len(a) == 1 and len(b) == 1:
        return a[0] == b[0], f"{short(abs(a[0] - b[0]))} apart, and one seed on each side has no spread"
    gap = abs(statistics.fmean(a) - statistics.fmean(b))
    if 1 in (len(a), len(b)):
        many = a if len(a) > 1 else b
        allowed = t_quantile(len(many) - 1) * statistics.stdev(many) * math.sqrt(1 + 1 / len(many))
    else:
        parts = [statistics.variance(side) / len(side) for side in (a, b)]
        allowed = t_quantile(_freedom(parts, (len(a), len(b)))) * math.sqrt(sum(parts))
    return gap <= allowed, f"means {short(gap)} apart, {short(allowed)} allowed"


def _freedom(parts: Sequence[float], sizes: tuple[int, int]) -> float:
    """Degrees of freedom of Welch and Satterthwaite; `parts` are the variances of the two means."""
    if not any(parts):
        return sum(sizes) - 2
    return sum(parts) ** 2 / sum(part**2 / (n - 1) for part, n in zip(parts, sizes, strict=True))


def outcomes_agree(a: Sequence[str], b: Sequence[str]) -> bool:
    """Whether seeds end alike: each outcome as often; fewer seeds in outcomes that the other side has too."""
    few, many = sorted((a, b), key=len)
    return Counter(a) == Counter(b) if len(a) == len(b) else set(few) <= set(many)


def seeds_agree(a: Mapping[str, float | None], b: Mapping[str, float | None]) -> tuple[str, str]:
    """Verdict and reason for two values by seed; None stands for one that is not finite."""
    if a == b:
        return EQUAL, ""
    finite = [[value for value in side.values() if value is not None] for side in (a, b)]
    lost = ["finite" if value is not None else "not finite" for value in a.values()]
    if not outcomes_agree(lost, ["finite" if value is not None else "not finite" for value in b.values()]):
        return DIFFERENT, "other seeds are finite"
    if not all(finite):
        return WITHIN, "no seed is finite"
    fine, why = samples_agree(*finite)
    return (WITHIN if fine else DIFFERENT), why


def numbers_agree(name: str, a: float, b: float) -> tuple[str, str]:
    """Verdict and reason for two numbers without seeds, `name` being the last part of their path."""
    if a == b:
        return EQUAL, ""
    if isinstance(a, int) and isinstance(b, int):
        return DIFFERENT, "a count"
    if "error" in name and max(abs(a), abs(b)) <= TINY:
        return WITHIN, "errors of rounding"
    gap = abs(a - b) / max(abs(a), abs(b))
    return (WITHIN if gap <= ROUNDING else DIFFERENT), f"{gap:.1g} of it apart, {ROUNDING:g} allowed"


def times_agree(a: Mapping[str, float], b: Mapping[str, float]) -> tuple[str, str]:
    """Verdict and reason for two times with percentiles."""
    if a == b:
        return EQUAL, ""
    if a["low"] <= b["high"] and b["low"] <= a["high"]:
        return WITHIN, "the intervals overlap"
    return SPEED, "the intervals do not overlap"
