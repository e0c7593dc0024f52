"""Seeds: a list of whole numbers, or text such as `0-4` or `0,2,5-7`."""

from __future__ import annotations

import re
from typing import Any

from normlab.config.schema import MAX_RUNS
from normlab.config.source import describe

MAX_SEED = 2**63 - 1
_PART = re.compile(r"\s*([0-9]{1,20})\s*(?:-\s*([0-9]{1,20})\s*)?")


def read_seeds(value: Any) -> tuple[int, ...]:
    """The seeds that `value` names, in its order; ValueError if it is malformed, or names one twice or too many."""
    if isinstance(value, int) and not isinstance(value, bool):
        mend = f"write [{value}] or 0-{max(value - 1, 1)}"
        raise ValueError(f"expected a list or a range, got the number {value}: {mend}")
    if not isinstance(value, (list, str)):
        raise ValueError(f"expected a list such as [0, 1] or a range such as 0-4, got {describe(value)}")
    parts = value.split(",") if isinstance(value, str) else value
    if not parts:
        raise ValueError("expected at least one seed, got an empty list")
    ranges = [_read_part(part) for part in parts]
    count = sum(last - first + 1 for first, last in ranges)
    # Counted before they are listed: `0-999999999` would fill the memory.
    if count > MAX_RUNS:
        raise ValueError(f"{count:,} seeds, more than the {MAX_RUNS:,} runs that a study may have")
    seeds = [seed for first, last in ranges for seed in range(first, last + 1)]
    if len(set(seeds)) < len(seeds):
        twice = next(seed for seed in seeds if seeds.count(seed) > 1)
        raise ValueError(f"seed {twice} is given twice")
    return tuple(seeds)


def _read_part(part: Any) -> tuple[int, int]:
    if isinstance(part, int) and not isinstance(part, bool):
        first = last = part
    else:
        match = _PART.fullmatch(part) if isinstance(part, str) else None
        if not match:
            raise ValueError(f"expected whole numbers from 0 on or ranges such as 0-4, got {describe(part)}")
        first = int(match[1])
        last = int(match[2] or first)
    if first > last:
        raise ValueError(f"the range {first}-{last} runs backwards: write {last}-{first}")
    if not 0 <= first <= last <= MAX_SEED:
        raise ValueError(f"expected seeds from 0 to {MAX_SEED}, got {first if first < 0 else last}")
    return first, last
