"""How times stand in a table of `normlab speed`. A winner is named only where intervals do not overlap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NO_WINNER = "no winner"
ABSENT = "–"
FEWEST = 3  # values that make an interval


def winner(timed: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The name whose whole interval (`low_us` to `high_us`) lies below all others'; None where there is none, where
    only one was timed, or where one of them has too few values for an interval."""
    if len(timed) < 2 or min(row["n"] for row in timed.values()) < FEWEST:
        return None
    best = min(timed, key=lambda name: timed[name]["median_us"])
    others = min(row["low_us"] for name, row in timed.items() if name != best)
    return best if timed[best]["high_us"] < others else None


def digits(value: float) -> str:
    """Three significant digits, plain: 0.0712, 21.3, 1,820."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    places = 2 if abs(value) < 1 else 1 if abs(value) >= 10 else 2
    return f"{value:.{places}f}"


def interval_text(row: Mapping[str, Any]) -> str:
    """`63.1 [60.2, 66.0], n 9` in microseconds."""
    return f"{digits(row['median_us'])} [{digits(row['low_us'])}, {digits(row['high_us'])}], n {row['n']}"


def share_text(share: Mapping[str, Any] | None) -> str:
    """`14 % [13, 15]`; negative where it is slower, – where it was not measured."""
    if not share:
        return ABSENT
    median, low, high = (round(100 * share[key]) for key in ("median", "low", "high"))
    return f"{median} % [{low}, {high}]".replace("-", "−")


def faster_text(timed: Mapping[str, Mapping[str, Any]]) -> str:
    """The winner, `no winner`, or – where there is nothing to compare."""
    return ABSENT if len(timed) < 2 else winner(timed) or NO_WINNER
