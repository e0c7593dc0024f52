"""Readings on results made by hand: in how many each statement holds, the nearest one, and every NaN."""

import math
from types import SimpleNamespace

import pytest
import synthetic

from normlab.analysis import readings
from normlab.analysis.frames import load
from normlab.analysis.verdicts import CellVerdict
from normlab.config.schema import Axis, Point, RunSpec

CELLS = {
    "none 20, 1e-3": {"model.norm": "none"},
    "layernorm 20, 1e-3": {},
    "rmsnorm 20, 1e-3": {"model.norm": "rmsnorm"},
    "post 12, 1e-3": {"model.placement": "post"},
}


def axis(name, points):
    return Axis(name=name, points=tuple(Point(label=label, settings=s) for label, s in points.items()))


@pytest.fixture
def results(tmp_path):
    """In the reading `blows up` the net without norm is NaN at step 31, in `default` Post-LN is stuck."""
    ways = axis("reading", {"default": {}, "blows up": {"model.init": "torch"}})
    study = synthetic.study(ways, axis("cell", CELLS))

    def story(run):
        if run.cell == {"reading": "default", "cell": "post 12, 1e-3"}:
            return "stalled"
        return "nan@31" if run.cell == {"reading": "blows up", "cell": "none 20, 1e-3"} else "trained"

    return load(synthetic.make_results(tmp_path, study, story))


def test_tables(results):
    assert readings.is_readings(results.study)
    tables = {table.name: table for table in readings.readings_tables(results)}
    assert [row[0] for row in tables["readings"].rows] == ["default", "blows up"]
    assert tables["nan"].rows == [["blows up", "none 20, 1e-3", "0", "31", "loss", "forward", "blocks.1.ffn.out"]]
    counts = {row[0]: row[2:4] for row in tables["claims"].rows}
    assert counts["rms-no-norm-fails/worse"] == ["1 of 2", "blows up"]
    assert "lr-sensitivity/post 30 nan" not in counts  # such a net is not among the runs
    assert "lr-sensitivity/post 30 nan" not in tables["readings"].header


def test_a_study_without_readings_is_none(every_ending):
    assert not readings.is_readings(load(every_ending).study)
    assert not readings.is_readings(synthetic.study(axis("reading", {"default": {}})))


def told(id, verdict, *cells):
    """What was found of one claim in one reading, as far as the tables ask."""
    texts = {"reason": "…", "published": "…", "measured": "…"}
    return SimpleNamespace(entry=SimpleNamespace(id=id, claim="…"), verdict=verdict, cells=cells, **texts)


def test_the_three_nearest_by_outcomes_first():
    """A reading whose runs end otherwise than printed is not near, however close its numbers."""
    found = {"first": 2.0, "close": 0.1, "third": 4.0, "second": 3.0, "fourth": 5.0}
    judged = {
        name: [
            told("collapse-20", "", cell(1.0, 1.0 + gap), cell("nan", None, "reproduced" if gap > 1 else "undecided"))
        ]
        for name, gap in found.items()
    }
    rows = readings.nearest_table(judged).rows
    assert [row[1:3] for row in rows] == [["first", "2 nats"], ["second", "3 nats"], ["third", "4 nats"]]
    assert {row[4] for row in rows} == {"1 of 1"}


def test_each_verdict_has_its_column_and_its_mark(results, monkeypatch):
    ends = {"a": "direction only", "b": "contradicted", "c": "reproduced", "d": "undecided"}
    monkeypatch.setattr(
        readings, "judge_readings", lambda _: {k: [told("x", end), told("y", "reproduced")] for k, end in ends.items()}
    )
    tables = {table.name: table for table in readings.readings_tables(results)}
    assert tables["claims"].rows == [["x", "…", "1 of 4", "c", "a"], ["y", "…", "4 of 4", "all", "–"]]
    assert [row[:2] for row in tables["readings"].rows] == [["a", "direction"], ["b", "no"], ["c", "yes"], ["d", "?"]]


def full_length(root, cells, story):
    """Results of one reading whose runs have the article's 3000 steps."""
    base = synthetic.BASE.model_dump()
    base["train"]["steps"], base["train"]["eval_every"], base["model"]["depth"] = 3000, 1500, 20
    study = synthetic.study(axis("reading", {"default": {}}), axis("cell", cells))
    study = study.model_copy(update={"base": RunSpec.model_validate(base)})
    return load(synthetic.make_results(root, study, story))


def test_runs_of_full_length_are_asked_the_claims_themselves(tmp_path):
    found = readings.judge_readings(full_length(tmp_path, CELLS, lambda run: "trained"))
    verdicts = {judged.entry.id: judged.verdict for judged in found["default"]}
    assert set(verdicts) <= set(readings.LONG)
    assert verdicts["rms-no-norm-fails"] == "contradicted"


def test_each_table_is_read_off_its_own_runs(tmp_path):
    """No run with a warm-up, another norm or another depth slips into a cell: those ended as `better`."""
    rates = ("1e-4", "3e-4", "1e-3", "3e-3", "1e-2")
    depths = {"post 12": ("post", 12), "pre 12": ("pre", 12), "post 30": ("post", 30), "pre 30": ("pre", 30)}
    cells = {
        f"{name}, {rate}": {"model.placement": placement, "model.depth": depth, "optim.lr": float(rate)}
        for name, (placement, depth) in depths.items()
        for rate in rates
    }
    for norm in ("none", "layernorm", "rmsnorm"):
        cells |= {f"{norm} {d}": {"model.norm": norm, "model.depth": d, "optim.lr": 1e-3} for d in (6, 12, 20)}
    del cells["layernorm 12"]  # it is among the rates
    warm = {"model.depth": 12, "optim.lr": 1e-3, "optim.warmup": 1000}
    cells |= {f"{place} 12, warm-up": {**warm, "model.placement": place} for place in ("post", "pre")}

    def story(run):
        name = run.cell["cell"]
        if name.startswith("post") and name.endswith(("e-3", "e-2")):
            return "stalled"
        return "better" if "warm-up" in name or name.startswith(("rmsnorm", "none")) else "trained"

    judged = readings.judge_readings(full_length(tmp_path, cells, story))
    measured = {(one.entry.id, cell.row, cell.column): cell.measured for one in judged["default"] for cell in one.cells}
    assert measured["collapse-depth", "12", "layernorm"] == measured["rms-no-norm-fails", "", "layernorm"] == "0.50"
    assert measured["collapse-depth", "6", "rmsnorm"] == measured["rms-no-norm-fails", "", "none"] == "0.40"
    assert measured["lr-sensitivity", "1e-3", "pre 12"] == "0.50"
    assert measured["lr-warmup", "", "warm-up 1000"] == measured["lr-window", "best loss", "post 12"] == "0.40"
    assert measured["lr-window", "best loss", "pre 12"] == measured["lr-window", "best loss", "post 30"] == "0.50"
    assert measured["preln-no-warmup", "", "difference"] == "0.1"
    assert measured["lr-window", "window", "post 12"] == "≥ 0.48"

    near = {row[0]: row[1:] for row in readings.nearest_table(judged).rows}
    assert set(near) == {"collapse-20", "collapse-depth", "lr-sensitivity", "lr-window, window",
                         "lr-window, best loss"}  # fmt: skip
    # At least 0.477 against 1, at least 2 against 3 twice: none is above what is printed. Post-LN at 30 layers trains.
    assert near["lr-window, window"] == ["default", "0 decades", "3", "0 of 1"]
    gaps = [0.4 - 2.44, 0.5 - 2.35, 0.5 - 2.49]
    distance = math.sqrt(sum(gap * gap for gap in gaps) / 3)
    assert near["lr-window, best loss"] == ["default", f"{distance:.3g} nats", "3", "0 of 1"]


def cell(published, mean, verdict="", at_least=False):
    return CellVerdict("", "", published, "", mean, None, None, 1, {}, verdict, "", at_least)


def test_a_lower_bound_is_away_only_from_what_is_below_it():
    assert readings.distance([cell(3.0, 2.0, at_least=True)])["rms"] == 0
    assert readings.distance([cell(1.0, 2.0, at_least=True)])["rms"] == 1


def test_distance():
    cells = [cell(1.0, 1.3), cell(2.0, 1.6), cell("nan", None, "reproduced"), cell("nan", 2.0, "contradicted")]
    assert readings.distance(cells) == {
        "rms": pytest.approx(math.sqrt((0.09 + 0.16) / 2)),
        "cells": 2,
        "agree": 1,
        "ends": 2,
    }
    assert math.isnan(readings.distance([cell("nan", 2.0, "contradicted")])["rms"])
