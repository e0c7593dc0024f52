"""Readings on results made by hand: in how many each statement holds, the nearest one, and every NaN."""

import math

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
    """In the reading `blows up` the net without norm is NaN at step 31, in `default` nothing is."""
    ways = axis("reading", {"default": {}, "blows up": {"model.init": "torch"}})
    study = synthetic.study(ways, axis("cell", CELLS))

    def story(run):
        return "nan@31" if run.cell == {"reading": "blows up", "cell": "none 20, 1e-3"} else "trained"

    return load(synthetic.make_results(tmp_path, study, story))


def test_tables(results):
    assert readings.is_readings(results)
    tables = {table.name: table for table in readings.readings_tables(results)}
    assert [row[0] for row in tables["readings"].rows] == ["default", "blows up"]
    assert tables["nan"].rows == [["blows up", "none 20, 1e-3", "0", "31", "loss", "forward", "blocks.1.ffn.out"]]
    counts = {row[0]: row[2:4] for row in tables["claims"].rows}
    assert counts["rms-no-norm-fails/worse"] == ["1 of 2", "blows up"]
    assert "lr-sensitivity/post 30 nan" not in counts  # such a net is not among the runs
    assert "lr-sensitivity/post 30 nan" not in tables["readings"].header


def test_a_study_without_readings_is_none(every_ending):
    assert not readings.is_readings(load(every_ending))


def test_runs_of_full_length_are_asked_the_claims_themselves(tmp_path):
    base = synthetic.BASE.model_dump()
    base["train"]["steps"], base["model"]["depth"] = 3000, 20
    base["train"]["eval_every"] = 1500
    study = synthetic.study(axis("reading", {"default": {}}), axis("cell", CELLS))
    study = study.model_copy(update={"base": RunSpec.model_validate(base)})
    found = readings.judge_readings(load(synthetic.make_results(tmp_path, study, lambda run: "trained")))
    verdicts = {judged.entry.id: judged.verdict for judged in found["default"]}
    assert set(verdicts) <= set(readings.LONG)
    assert verdicts["rms-no-norm-fails"] == "contradicted"


def cell(published, mean, verdict=""):
    return CellVerdict("", "", published, "", mean, None, None, 1, {}, verdict, "")


def test_distance():
    cells = [cell(1.0, 1.3), cell(2.0, 1.6), cell("nan", None, "reproduced"), cell("nan", 2.0, "contradicted")]
    assert readings.distance(cells) == {
        "rms": pytest.approx(math.sqrt((0.09 + 0.16) / 2)),
        "cells": 2,
        "agree": 1,
        "ends": 2,
    }
    assert math.isnan(readings.distance([cell("nan", 2.0, "contradicted")])["rms"])
