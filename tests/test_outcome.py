"""The outcome rule at its edges, and the spike count."""

from __future__ import annotations

import math

import pytest

from normlab.config.schema import Thresholds
from normlab.outcome import count_spikes, judge

GUESS = 4.0


@pytest.mark.parametrize(
    ("losses", "onset", "expected"),
    [
        ([4.2, 3.0, 2.0], None, "trained"),
        ([4.2, 3.0, 2.0], 312, "nan"),
        ([4.2, math.inf], None, "nan"),
        ([4.2, math.nan, 2.0], None, "nan"),
        ([4.2, 5.0, 5.0, 5.0], None, "diverged"),  # mean 5.0 > 4.2 + 0.5
        ([4.2, 4.7, 4.7, 4.7], None, "stalled"),  # not above 4.7
        ([2.0, 4.6, 4.6, 4.6], None, "diverged"),  # the guess, 4.0, is the larger one: 4.6 > 4.5
        ([4.2, 9.0, 3.0, 3.0], None, "diverged"),  # mean 5.0, though the last is good
        ([4.2, 9.0, 3.0, 3.0, 3.0], None, "trained"),
        ([4.2, 3.96], None, "stalled"),
        ([4.2, 3.94], None, "trained"),
        ([4.2, 2.0, 3.96], None, "stalled"),  # learns first, falls back to guessing
        ([4.2, 2.0, 2.31], None, "unsteady"),
        ([4.2, 2.0, 2.29], None, "trained"),
    ],
)
def test_first_that_fits(losses: list[float], onset: int | None, expected: str) -> None:
    assert judge(losses, GUESS, onset, Thresholds()) == expected


def test_thresholds_are_read() -> None:
    assert judge([4.2, 5.0, 5.0, 5.0], GUESS, None, Thresholds(diverged_margin=1.0)) == "stalled"
    assert judge([4.2, 3.9], GUESS, None, Thresholds(stalled_margin=0.2)) == "stalled"
    assert judge([4.2, 2.0, 2.31], GUESS, None, Thresholds(unsteady_margin=0.5)) == "trained"


def test_spikes_are_stretches_above_the_median() -> None:
    calm = [2.0] * 100
    assert count_spikes([*calm, *calm], 0.5) == 0
    assert count_spikes([*calm, 3.0, 3.0, 3.0, 2.0, 2.4, 2.6, 2.0], 0.5) == 2
    assert count_spikes([9.0, *calm[:50]], 0.5) == 0  # too early to judge
    assert count_spikes([*calm, 3.0], 2.0) == 0
    assert count_spikes([*calm, math.nan, 9.0], 0.5) == 0
