"""How a measure's values by seed are read and written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd


def by_seed(leaf: Mapping[str, Any]) -> list[float]:
    """The values of a `by_seed` leaf, NaN for a null."""
    return [math.nan if value is None else float(value) for value in leaf["by_seed"].values()]


def seeds_text(values: Sequence[float], factor: float = 1.0) -> str:
    """Mean with three digits and sample standard deviation with one over the seeds whose value is finite, times
    `factor`; how many are not finite, if any: `2 ± 1 (2/3), not finite (1/3)`."""
    finite = pd.Series([value * factor for value in values if math.isfinite(value)], dtype=float)
    gone = len(values) - len(finite)
    parts = []
    if len(finite):
        spread = f" ± {finite.std():.1g}" if len(finite) > 1 else ""
        parts.append(f"{finite.mean():.3g}{spread}" + (f" ({len(finite)}/{len(values)})" if gone else ""))
    if gone:
        parts.append("not finite" + (f" ({gone}/{len(values)})" if len(finite) else ""))
    return ", ".join(parts)
