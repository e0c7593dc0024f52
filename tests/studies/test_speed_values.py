"""What the speed study says of times follows from them."""

import pytest
from tiny_speed import TINY

from normlab.analysis.speed_text import interval_text, share_text, winner
from normlab.published import __file__ as published_file
from normlab.studies import speed, speed_values
from normlab.studies.speed_clock import saved, summary
from normlab.studies.speed_norms import LN, RMS
from normlab.studies.speed_shapes import AtShape, Shape, Timed


def test_a_summary_has_percentiles_and_n():
    assert summary(range(11)) == {"median": 5.0, "low": 2.0, "high": 8.0, "n": 11}


def test_savings_are_paired_by_round():
    # Drift doubles both in the second round: the share saved does not move.
    assert saved([8.0, 16.0, 8.0], [10.0, 20.0, 10.0]) == {
        "median": pytest.approx(0.2),
        "low": pytest.approx(0.2),
        "high": pytest.approx(0.2),
        "n": 3,
    }
    assert saved([15.0], [10.0])["median"] == -0.5


def timed(low, median, high, n=3):
    return {"low_us": low, "median_us": median, "high_us": high, "n": n}


def test_no_winner_where_intervals_overlap():
    assert winner({"a": timed(1, 2, 3), "b": timed(4, 5, 6)}) == "a"
    assert winner({"a": timed(4, 5, 6), "b": timed(1, 2, 3)}) == "b"
    assert winner({"a": timed(1, 2, 4), "b": timed(3, 5, 6)}) is None
    assert winner({"a": timed(1, 2, 3), "b": timed(3, 5, 6)}) is None  # they touch
    assert winner({"a": timed(1, 2, 3), "b": timed(4, 5, 6), "c": timed(2.5, 7, 8)}) is None
    assert winner({"a": timed(1, 2, 3)}) is None and winner({}) is None
    assert winner({"a": timed(2, 2, 2, n=1), "b": timed(4, 5, 6)}) is None  # one value is no interval


def test_texts_of_intervals():
    assert interval_text(timed(60.24, 63.1, 1820.4)) == "63.1 [60.2, 1,820], n 3"
    assert interval_text(timed(0.0412, 0.05, 1.234)) == "0.05 [0.04, 1.23], n 3"
    assert share_text({"median": -1.5, "low": -1.6, "high": 0.14}) == "−150 % [−160, 14]"
    assert share_text({"median": -0.004, "low": -0.02, "high": 0.001}) == "0 % [−2, 0]"
    assert share_text(None) == "–"


def at_shape(shape, **rounds):
    cells = {"ln": LN, "rms": RMS, "compiled": RMS._replace(implementation="compiled")}
    return AtShape(shape, {cells[name]: Timed([[t * 1e-6] for t in ts]) for name, ts in rounds.items()}, {}, COPY)


COPY = {"copy": Timed([[1e-6]])}


def test_values_of_hand_made_times():
    found = [at_shape(TINY, ln=[10, 20, 10], rms=[8, 16, 9]), at_shape(Shape(1, 1, 4, (9, 8)), ln=[10], rms=[5])]
    values = speed_values.shape_values(found, "1x1x4")
    assert values["norm-speed"]["ratio"].keys() == {"2x3x8"}
    ratio = values["norm-speed"]["ratio"]["2x3x8"]
    assert (ratio["median"], ratio["n"]) == (pytest.approx(0.2), 3)
    assert values["rms-speed-single"]["faster_by"]["median"] == pytest.approx(0.5)
    assert values["rms-speed-single"]["layernorm_us"]["median"] == pytest.approx(10)
    cell = values["norm-speed"]["cells"][0]
    assert (cell["median_us"], cell["n"], cell["rounds"]) == (pytest.approx(10), 3, 3)
    assert cell["gbps"] == pytest.approx(2 * 4 * 48 / 10e-6 / 1e9)
    assert values["norm-speed"]["copy_gbps"] == pytest.approx(2 * 4 * 48 / 1e-6 / 1e9)
    needed = values["norm-speed"]["needed_gbps"]["2x3x8"]
    assert needed == {
        "layernorm": pytest.approx(2 * 4 * 48 / 21e-6 / 1e9),
        "rmsnorm": pytest.approx(2 * 4 * 48 / 18e-6 / 1e9),
    }


def test_a_round_that_only_one_saw_makes_no_ratio():
    values = speed_values.shape_values([at_shape(TINY, ln=[10, 20, 10], rms=[8])], "none")
    assert values["norm-speed"]["ratio"]["2x3x8"]["n"] == 1
    assert values["rms-speed-single"] == {}


def test_the_largest_printed_time_needs_more_than_half_a_terabyte_a_second():
    assert speed_values.needed_gbps(speed.SHAPES[-1])["layernorm"] == pytest.approx(590, abs=1)


def test_the_printed_times_are_the_ledgers():
    from pathlib import Path

    import yaml

    ledger = yaml.safe_load((Path(published_file).parent / "article.yaml").read_text(encoding="utf-8"))
    entries = {entry["id"]: entry for entry in ledger["entries"]}
    shares = {shape.name: 100 * (1 - shape.printed[1] / shape.printed[0]) for shape in speed.SHAPES}
    assert shares == {name: pytest.approx(v, abs=0.6) for name, v in entries["norm-speed"]["published"].items()}
    single = entries["rms-speed-single"]["published"]["faster_by"]
    assert 100 * (1 - speed.SINGLE.printed[1] / speed.SINGLE.printed[0]) == pytest.approx(single)
