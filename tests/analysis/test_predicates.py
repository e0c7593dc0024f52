"""Every predicate gives every verdict that it can, on samples made by hand."""

import math
from dataclasses import replace

import pytest

from normlab.analysis import predicates as rules
from normlab.analysis.cells import mean_text
from normlab.analysis.samples import Sample, printed, t_quantile

R, D, C, U = rules.REPRODUCED, rules.DIRECTION, rules.CONTRADICTED, rules.UNDECIDED


def seeds(*values, ends=None):
    ends = ends or ["trained"] * len(values)
    finite = {seed: value for seed, value in enumerate(values) if value is not None}
    return Sample(finite, dict(enumerate(ends)))


def lone(value):
    return Sample({0: value})


@pytest.mark.parametrize(
    ("sample", "verdict"),
    [
        (seeds(2.28, 2.30, 2.29), R),
        (seeds(1.78, 1.80, 1.79), C),
        (seeds(2.28, 2.48, 2.08), U),  # the interval is wider than the tolerance
        (seeds(2.37, 2.38, 2.39), U),  # across its edge
        (seeds(None, None, None, ends=["nan"] * 3), C),
        (seeds(2.28, None, 2.28, ends=["trained", "nan", "trained"]), U),
    ],
)
def test_value(sample, verdict):
    assert rules.value(sample, 2.28, 0.1, 0.1).verdict == verdict


def test_a_published_single_run_meets_a_prediction_interval():
    """sd 0.02, n = 3: half width 4.303 * 0.02 * sqrt(4/3) = 0.0994 of one run, 0.0497 of the mean."""
    sample = seeds(2.26, 2.28, 2.30)
    assert sample.bounds(single=True) == pytest.approx((2.28 - 0.09937, 2.28 + 0.09937), abs=1e-4)
    assert sample.bounds(single=False) == pytest.approx((2.28 - 0.04969, 2.28 + 0.04969), abs=1e-4)
    assert rules.value(sample, 2.28, 0.08, 0.08, single=True).verdict == U
    assert rules.value(sample, 2.28, 0.08, 0.08, single=False).verdict == R


def test_printed_digits_are_met_exactly():
    assert rules.value(lone(8.39244), 8.3924, 5e-5, 5e-5).verdict == R
    assert rules.value(lone(8.39246), 8.3924, 5e-5, 5e-5).verdict == C
    assert rules.value(lone(0.005), 0.0, 0.005, 0.005).verdict == R  # the edge belongs to the tolerance


def test_orders_of_magnitude():
    assert rules.value(lone(6.8e4), 1e4, 1, 1, log10=True).verdict == R
    assert rules.value(lone(2e5), 1e4, 1, 1, log10=True).verdict == C
    assert rules.value(lone(0.0), 1e4, 1, 1, log10=True).verdict == C
    # The interval is that of the logarithms: 2 +- 4.303 * 0.1 * sqrt(4/3), never below zero.
    low, high = seeds(10**1.9, 10**2, 10**2.1).bounds(single=True, log10=True)
    assert (math.log10(low), math.log10(high)) == pytest.approx((2 - 0.49687, 2 + 0.49687), abs=1e-4)


def test_a_window_at_the_edge_of_its_grid_is_a_lower_bound():
    wide = Sample({0: 4.0, 1: 4.0}, at_least=True)
    assert rules.value(wide, 3.0, 0.5, 0.5).verdict == C  # at least 4 is not about 3
    assert rules.value(wide, 4.0, 0.5, 0.5).verdict == U  # it may be wider
    narrow = Sample({0: 1.0, 1: 1.0})
    assert rules.order(narrow, wide).verdict == R
    assert rules.order(Sample({0: 1.0, 1: 1.0}, at_least=True), wide).verdict == U
    assert rules.order(wide, narrow).verdict == C
    assert rules.order(wide, Sample({0: 1.0, 1: 1.0}, at_least=True)).verdict == U


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [
        (["nan", "nan", "nan"], R),
        (["stalled", "diverged", "unsteady"], D),
        (["trained", "trained", "trained"], C),
        (["nan", "trained", "nan"], U),
        (["stalled", "trained", "trained"], U),
    ],
)
def test_outcome(ends, verdict):
    sample = seeds(*[None if end == "nan" else 4.0 for end in ends], ends=ends)
    assert rules.outcome(sample, "nan").verdict == verdict


def test_outcome_of_what_was_not_trained():
    assert rules.outcome(lone(1.0), "nan").verdict == C


@pytest.mark.parametrize(
    ("ends", "verdict"), [(["stalled", "nan"], R), (["stalled", "trained"], U), (["trained", "trained"], C)]
)
def test_fails(ends, verdict):
    assert rules.fails(seeds(*[4.0] * len(ends), ends=ends)).verdict == verdict


def test_bound():
    gap = seeds(0.01, 0.012, 0.011)
    assert rules.bound(gap, None, 0.03).verdict == R
    assert rules.bound(seeds(0.3, 0.31, 0.32), None, 0.03).verdict == C
    assert rules.bound(seeds(0.01, 0.3, 0.02), None, 0.03).verdict == U
    assert rules.bound(gap, 0.0, None).verdict == R
    assert rules.bound(seeds(1.0, 1.1, 1.05), 0.5, 2.0).verdict == R
    assert rules.bound(seeds(None, None, ends=["never", "never"]), None, 1.0).verdict == C
    assert rules.bound(Sample({0: 0.1}, {}, (-0.02, 0.2), 9), 0.0, None).verdict == U  # its own interval counts


def test_order_is_paired_by_seed():
    """Seeds far apart, differences small and steady: only pairing can see it."""
    low, high = seeds(1.0, 2.0, 3.0), seeds(1.1, 2.11, 3.09)
    assert rules.order(low, high).verdict == R
    assert rules.order(high, low).verdict == C
    assert rules.order(low, seeds(1.1, 1.9, 3.0)).verdict == U
    assert rules.order(high, low, margin=0.3).verdict == R  # not worse by more than 0.3
    assert rules.order(low, high, margin=-0.3).verdict == C  # lower by at least 0.3


def test_order_with_nan():
    finite, gone = seeds(1.0, 1.1), seeds(None, None, ends=["nan", "nan"])
    assert rules.order(finite, gone).verdict == R
    assert rules.order(gone, finite).verdict == C
    assert rules.order(gone, gone).verdict == U
    assert rules.order(finite, seeds(None, 1.2, ends=["nan", "trained"])).verdict == U


def test_order_of_intervals():
    fast, slow = Sample({0: 1.0}, {}, (0.9, 1.1), 7), Sample({0: 2.0}, {}, (1.9, 2.1), 7)
    assert rules.order(fast, slow).verdict == R
    assert rules.order(slow, fast).verdict == C
    assert rules.order(fast, Sample({0: 1.1}, {}, (1.0, 1.2), 7)).verdict == U


def test_monotone():
    a, b, c = seeds(3.0, 3.1), seeds(2.0, 2.1), seeds(1.0, 1.1)
    assert rules.monotone([a, b, c]).verdict == R
    assert rules.monotone([a, c, b]).verdict == C
    assert rules.monotone([a, b, seeds(2.0, 2.0)]).verdict == U


def test_rank():
    published = {"a": 1.0, "b": 2.0, "c": 3.0, "d": math.inf}
    right = {"a": seeds(0.1, 0.2), "b": seeds(0.3, 0.4), "c": seeds(0.5, 0.6), "d": seeds(None, None, ends=["nan"] * 2)}
    assert rules.rank(published, right, 0.5).verdict == R
    turned = dict(zip("abcd", reversed(right.values()), strict=True))
    assert rules.rank(published, turned, 0.5).verdict == C
    mixed = {**right, "a": seeds(0.55, 0.1), "b": seeds(0.1, 0.9)}
    assert rules.rank(published, mixed, 0.9).verdict == U
    assert rules.rank(published, dict.fromkeys("abcd", seeds(1.0, 1.0)), 0.5).verdict == U


@pytest.mark.parametrize(
    ("first", "second", "tau"),
    [
        ([1, 2, 3, 4], [1, 2, 3, 4], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        ([1, 2, 3, 4, 5], [3, 1, 2, 5, 4], 0.4),  # 7 concordant, 3 discordant of 10 pairs
        ([12, 2, 1, 12, 2], [1, 4, 7, 1, 0], -0.47140452079103173),  # the example of scipy.stats.kendalltau
        ([1, 2, math.inf, math.inf], [1, 2, 3, math.inf], 5 / math.sqrt(5 * 6)),
    ],
)
def test_kendall(first, second, tau):
    assert rules.kendall(first, second) == pytest.approx(tau)


def test_too_few_seeds():
    assert rules.too_few(seeds(1.0), 3).verdict == U
    assert rules.too_few(seeds(1.0, 1.1, 1.2), 3) is None


def test_a_nan_is_never_averaged_away():
    some = seeds(1.0, None, 1.2, ends=["trained", "nan", "trained"])
    assert some.mean is None and some.bounds(True) is None
    assert some.text() == "1, 1.20 (2/3), nan 1/3"
    assert seeds(None, None, ends=["nan", "nan"]).text() == "nan 2/2"
    assert seeds(4.16, 4.16, ends=["stalled", "stalled"]).text() == "4.16 ± 0 (stalled 2/2)"


def test_losses_are_rounded_as_in_the_tables():
    losses, one = seeds(1.6041, 1.6085, 1.5997), seeds(0.5238, None, ends=["trained", "nan"])
    assert replace(losses, loss=True).text() == mean_text(list(losses.values.values())) == "1.60 ± 0.004"
    assert losses.text() == "1.60 ± 0.0044"
    assert replace(one, loss=True).text() == "0.52 (1/2), nan 1/2" and one.text() == "0.524 (1/2), nan 1/2"
    assert replace(seeds(2.31234), loss=True).text() == "2.31" and seeds(2.31234).text() == "2.31234"
    assert replace(seeds(1.0), outcomes={}, at_least=True).text() == "≥ 1.00"


def test_quantiles_are_never_too_small():
    assert t_quantile(2) == 4.303 and t_quantile(11) == t_quantile(10) and t_quantile(1000) == 1.980


def test_published_values_keep_their_digits():
    assert [printed(x) for x in (4.004, 8.3924, 1e-6, 524288, "nan", 2.30)] == [
        "4.004", "8.3924", "1e-06", "524288", "nan", "2.3"]  # fmt: skip


def test_said_of_any_run():
    """No interval: with three seeds it would reach below zero for a gap that none of them can have."""
    assert rules.each(seeds(0.2, 0.25, 0.49), None, 0.03).verdict == C
    assert rules.each(seeds(0.01, 0.02, 0.03), None, 0.03).verdict == R
    assert rules.each(seeds(0.01, 0.2, 0.03), None, 0.03).verdict == U
    assert rules.each(seeds(1.0, 2.0), 0.5, 1.5).verdict == U
    assert rules.each(seeds(None, None, ends=["nan", "nan"]), None, 0.03).verdict == C


@pytest.mark.parametrize(
    ("ends", "verdict"), [(["trained"] * 3, R), (["trained", "stalled", "trained"], U), (["stalled"] * 3, C)]
)
def test_a_control_that_must_train(ends, verdict):
    assert rules.outcome(seeds(*[1.0] * 3, ends=ends), "trained").verdict == verdict


def test_no_value_at_all():
    """An onset is printed, and no seed has one, however each of them ends."""
    none = seeds(None, None, None, ends=["trained", "trained", "unsteady"])
    assert rules.value(none, 300, 100, 100).verdict == C
    assert rules.value(Sample(), 300, 100, 100).verdict == U
    assert rules.rank({}, {}, 0.5).verdict == U


def test_seeds_without_a_partner_are_not_dropped():
    assert rules.order(seeds(1.0, 1.1, 1.2), seeds(2.0)).verdict == U
