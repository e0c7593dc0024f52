"""The metrics on frames made by hand, against values worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
import pytest

from normlab.analysis.metrics import first_step_at, lr_sensitivity, lr_window, spread

NAN = math.nan


def frame(*seeds: Sequence[tuple[float, str, float]], initial: float = 4.0) -> pd.DataFrame:
    """Rows of one condition; each seed is a list of (rate, outcome, final loss)."""
    return pd.DataFrame(
        [
            {"optim.lr": rate, "seed": seed, "outcome": outcome, "initial_loss": initial, "final_loss": final}
            for seed, runs in enumerate(seeds)
            for rate, outcome, final in runs
        ]
    )


def grid(outcomes: str) -> list[tuple[float, str, float]]:
    """One seed: a letter a grid point 1e-5, 1e-4, ...: t trained, n nan, s stalled, u unsteady, m missing."""
    names = {"t": "trained", "n": "nan", "s": "stalled", "u": "unsteady", "m": "missing"}
    return [(10.0 ** (i - 5), names[letter], 2.0 if letter in "tsu" else NAN) for i, letter in enumerate(outcomes)]


def test_spread_is_the_sample_standard_deviation() -> None:
    s = spread([1.0, 2.0, 6.0])
    assert (s.n, s.mean) == (3, 3.0)
    assert s.sd == pytest.approx(math.sqrt((4 + 1 + 9) / 2))


def test_spread_of_one_and_of_none() -> None:
    assert spread([2.0]).mean == 2.0 and math.isnan(spread([2.0]).sd)
    assert math.isnan(spread([]).mean)


def test_a_nan_is_never_averaged() -> None:
    with pytest.raises(AssertionError):
        spread([1.0, NAN])


@pytest.mark.parametrize(
    ("outcomes", "low", "high", "decades", "open_low", "open_high"),
    [
        ("nttts", 1e-4, 1e-2, 2, False, False),
        ("ttnnn", 1e-5, 1e-4, 1, True, False),
        ("nnntt", 1e-2, 1e-1, 1, False, True),
        ("ttttt", 1e-5, 1e-1, 4, True, True),
        ("nntnn", 1e-3, 1e-3, 0, False, False),
        ("tnnnt", 1e-5, 1e-5, 0, True, False),  # equally long: the lower one
        ("tnttn", 1e-3, 1e-2, 1, False, False),  # the longest, not the first
        ("nutun", 1e-3, 1e-3, 0, False, False),  # unsteady is not trained
        ("t", 1e-5, 1e-5, 0, True, True),
    ],
)
def test_window(outcomes: str, low: float, high: float, decades: float, open_low: bool, open_high: bool) -> None:
    window = lr_window(frame(grid(outcomes)))
    assert (window.low, window.high) == pytest.approx((low, high))
    assert window.decades == pytest.approx(decades, abs=1e-12)
    assert (window.open_low, window.open_high, window.pending) == (open_low, open_high, 0)


def test_no_window() -> None:
    window = lr_window(frame(grid("nsu")))
    assert math.isnan(window.decades) and math.isnan(window.low) and not window.open_low


def test_a_rate_trains_only_if_every_seed_does() -> None:
    window = lr_window(frame(grid("ttttn"), grid("ntttt")))
    assert (window.low, window.high) == pytest.approx((1e-4, 1e-2))


def test_a_missing_run_does_not_train_and_is_counted() -> None:
    window = lr_window(frame(grid("tttmt")))
    assert window.high == pytest.approx(1e-3) and window.pending == 1


def test_rows_need_no_order() -> None:
    runs = frame(grid("nttts"))
    assert lr_window(runs.iloc[::-1]) == lr_window(runs)


def test_of_windows_of_as_many_points_the_wider_one() -> None:
    runs = frame([(1e-4, "trained", 2.0), (2e-4, "trained", 2.0), (1e-3, "nan", NAN), (3e-3, "trained", 2.0),
                  (1e-2, "trained", 2.0)])  # fmt: skip
    assert lr_window(runs).low == 3e-3


def test_sensitivity_by_hand() -> None:
    # Clipped at the initial 4.0: 3.0, 2.0, 4.0 (nan), 4.0 (from 9.0). Mean 3.25, minimum 2.0.
    runs = frame([(1e-4, "trained", 3.0), (1e-3, "trained", 2.0), (1e-2, "nan", NAN), (1e-1, "diverged", 9.0)])
    s = lr_sensitivity(runs)
    assert s.by_seed == {0: 1.25}
    assert (s.best, s.largest, s.on_edge) == (1e-3, 1e-3, False)
    assert s.grid == (1e-4, 1e-3, 1e-2, 1e-1)


def test_sensitivity_of_each_seed_against_its_own_best() -> None:
    first = [(1e-3, "trained", 1.0), (1e-2, "trained", 3.0)]  # mean 2, minimum 1
    second = [(1e-3, "trained", 2.0), (1e-2, "nan", NAN)]  # mean 3, minimum 2
    s = lr_sensitivity(frame(first, second))
    assert s.by_seed == {0: 1.0, 1: 1.0}
    assert (s.best, s.on_edge, s.largest) == (1e-3, True, 1e-3)


def test_a_net_that_learns_nothing_scores_zero_and_has_no_best_rate() -> None:
    s = lr_sensitivity(frame([(1e-3, "nan", NAN), (1e-2, "diverged", 9.0)]))
    assert s.by_seed == {0: 0.0}
    assert math.isnan(s.best) and math.isnan(s.largest) and not s.on_edge


def test_a_seed_with_a_missing_run_has_no_sensitivity() -> None:
    full = [(1e-3, "trained", 1.0), (1e-2, "trained", 3.0)]
    s = lr_sensitivity(frame(full, [(1e-3, "trained", 1.0), (1e-2, "failed", NAN)]))
    assert s.by_seed == {0: 1.0, 1: None}


def test_a_run_that_is_nan_at_once_counts_as_its_neighbours_start() -> None:
    runs = frame([(1e-3, "trained", 2.0), (1e-2, "nan", NAN)])
    runs.loc[1, "initial_loss"] = NAN
    assert lr_sensitivity(runs).by_seed == {0: 1.0}


def test_first_step_at_or_below() -> None:
    losses = pd.Series([4.0, 3.0, 2.0, 2.5, 1.0], index=[0, 100, 200, 300, 400])
    assert first_step_at(losses, 3.0) == 100
    assert first_step_at(losses, 2.2) == 200
    assert first_step_at(losses, 4.0) == 0
    assert first_step_at(losses, 0.5) is None
    assert first_step_at(None, 3.0) is None
