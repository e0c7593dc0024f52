"""What was measured for one cell of a claim: a value a seed, how the runs ended, and the interval that follows."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from normlab.analysis.cells import mean_text, number
from normlab.analysis.metrics import spread

# Two-sided 95 % quantiles of Student's t by degrees of freedom, as any table gives them; beyond, the next lower entry.
_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 12: 2.179,
      15: 2.131, 20: 2.086, 30: 2.042, 60: 2.000, 120: 1.980}  # fmt: skip

_MOST_LISTED = 12  # values in a cell where not every seed has one


def t_quantile(freedom: float) -> float:
    """97.5 % quantile of Student's t for at least one degree of freedom; the next lower tabulated one, so an interval
    is never too narrow."""
    return _T[max(df for df in _T if df <= freedom)]


@dataclass(frozen=True)
class Sample:
    """The measured side of a cell.

    values    finite values by seed (seed 0 alone for what has no seed)
    outcomes  how the run of each seed ended; empty for what was not trained
    interval  low and high where the study gives its own (20th and 80th percentile of times); otherwise None
    n         number of repeats behind `interval`
    ids       run ids that were read
    at_least  the value is a lower bound (a window that touches the edge of its grid)
    loss      the values are losses (nats), which the tables show too: rounded as there
    unit      `%`, told behind a value; empty for what has none
    """

    values: Mapping[int, float] = field(default_factory=dict)
    outcomes: Mapping[int, str] = field(default_factory=dict)
    interval: tuple[float, float] | None = None
    n: int = 0
    ids: tuple[str, ...] = ()
    at_least: bool = False
    loss: bool = False
    unit: str = ""

    def in_percent(self) -> Sample:
        """Shares as percentages."""
        interval = self.interval and (100 * self.interval[0], 100 * self.interval[1])
        values = {seed: 100 * value for seed, value in self.values.items()}
        return replace(self, values=values, interval=interval, unit="%")

    @property
    def size(self) -> int:
        """Number of seeds (or of repeats)."""
        return self.n or len(self.outcomes) or len(self.values)

    @property
    def mean(self) -> float | None:
        """Mean over the seeds; None unless every seed has a finite value: a NaN is never averaged away."""
        return statistics.fmean(self.values.values()) if self.values and self.complete else None

    @property
    def complete(self) -> bool:
        """Whether every seed has a finite value."""
        return len(self.values) >= len(self.outcomes)

    def bounds(self, single: bool, log10: bool = False) -> tuple[float, float] | None:
        """Interval of 95 %: of one further run (`single`: the published value is one seed's), or of the mean.

        mean +- t sd sqrt(1 + 1/n), or mean +- t sd / sqrt(n); a lone value is its own interval, whether that is enough
        is for the claim's number of seeds to say. None where there is no mean. `log10`: the same
        of the logarithms, taken back (for what spans decades and is above 0)."""
        mean = self.mean
        if log10 and mean is not None and self.interval is None and min(self.values.values()) > 0:
            logs = replace(self, values={seed: math.log10(value) for seed, value in self.values.items()})
            low, high = logs.bounds(single) or (mean, mean)
            return 10**low, 10**high
        if self.interval is not None:
            return self.interval
        if mean is None:
            return None
        n = len(self.values)
        if self.at_least:
            return mean, math.inf
        if n == 1:
            return mean, mean
        half = t_quantile(n - 1) * spread(list(self.values.values())).sd * math.sqrt(1 / n + (1 if single else 0))
        return mean - half, mean + half

    def ends(self, without: str = "") -> str:
        """How many seeds ended how, `trained 2/3, nan 1/3`; the outcome `without` is left out."""
        counts = Counter(self.outcomes.values())
        told = {name or "going on": count for name, count in counts.items() if not without or name not in ("", without)}
        return ", ".join(f"{name} {count}/{len(self.outcomes)}" for name, count in told.items())

    def text(self) -> str:
        """`2.28 ± 0.03`, `nan 3/3`, `1.20 (1/3), nan 2/3`, `4.16 ± 0.001 (stalled 3/3)`, `12 [10, 15]`."""
        unusual = self.ends(without="trained")
        if self.mean is None:
            values = self._listed()
            valued = f"{self.told(values)} ({len(self.values)}/{len(self.outcomes)}), " if values else ""
            return valued + (unusual or self.ends()) or "–"
        if self.interval is not None:
            return f"{self.told(short(self.mean))} [{short(self.interval[0])}, {short(self.interval[1])}]"
        value = f"≥ {number(self.mean)}" if self.at_least else self._value_text(self.mean)
        return f"{self.told(value)} ({unusual})" if unusual else self.told(value)

    def told(self, number: str) -> str:
        """A number, or an interval, with the unit behind it."""
        return with_unit(number, self.unit)

    def _listed(self) -> str:
        """Every value; of very many their median and ends. A mean over a part of the seeds is never told."""
        values = list(self.values.values())
        if len(values) <= _MOST_LISTED:
            return ", ".join(map(self._one, values))
        low, median, high = map(self._one, (min(values), statistics.median(values), max(values)))
        return f"{low} to {high}, median {median}"

    def _one(self, value: float) -> str:
        return mean_text([value]) if self.loss else short(value)

    def _value_text(self, mean: float) -> str:
        values = list(self.values.values())
        if self.loss:
            return mean_text(values)
        # A lone value is shown with the digits that a printed one may have; with a spread they would mean nothing.
        return f"{short(mean)} ± {short(spread(values).sd)}" if len(values) > 1 else f"{mean:.6g}"


def short(value: float) -> str:
    """A number for a reader: integers in full, three significant digits below one, two decimals above."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e7:
        return str(int(value))
    if abs(value) < 1 or abs(value) >= 1e4:
        return f"{value:.3g}"
    return number(value)


def with_unit(number: str, unit: str) -> str:
    """`14 %`; the number alone where it has no unit."""
    return f"{number} {unit}" if unit else number


def printed(value: float | str, unit: str = "") -> str:
    """A published value as it is printed: all its digits, and no more."""
    return value if isinstance(value, str) else with_unit(f"{value:.10g}", unit)
