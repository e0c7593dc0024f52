"""`normlab compare`: equal, within the seeds' spread, different, other speed, on one side only."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import folders
import pytest
import synthetic

from normlab.analysis.compare import RULE, compare
from normlab.analysis.compare_cells import numbers_agree, outcomes_agree, samples_agree, seeds_agree, times_agree
from normlab.analysis.compare_measures import leaves
from normlab.cli import main
from normlab.config.schema import Axis, Point
from normlab.measures import Measure, write_measure
from normlab.store import strict_json

RATES = synthetic.axis("optim.lr", "1e-3", "1e-2")


def make(root: Path, story: Callable[..., str] = lambda run: "trained", seeds: tuple[int, ...] = (0, 1, 2)) -> Path:
    return synthetic.make_results(root, synthetic.study(RATES, seeds=seeds), story)


def shift(root: Path, rate: float, by: float) -> None:
    """Move the final losses of one condition, as another machine does."""
    for path in root.glob("runs/*/run.json"):
        run = json.loads(path.read_text())
        if run["spec"]["optim"]["lr"] == rate:
            folders.edit(path, loss__final=run["loss"]["final"] + by)


def verdicts(a: Path, b: Path) -> dict[str, str]:
    return {cell.cell: cell.verdict for cell in compare(a, b).cells}


def test_a_folder_with_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = make(tmp_path / "a"), make(tmp_path / "b")
    assert verdicts(a, b) == {"optim.lr=1e-3": "equal", "optim.lr=1e-2": "equal"}
    assert main(["compare", str(a), str(b)]) == 0
    out = capsys.readouterr().out
    assert "| toy   |     2 |     2 |" in out and "cells that are not equal" not in out and RULE in out


def test_within_the_spread_and_beyond_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = make(tmp_path / "a"), make(tmp_path / "b")
    # The seeds are 0.01 apart, so three of them have a standard deviation of 0.01: Welch allows 2.776 * 0.00816.
    shift(b, 1e-3, 0.022)
    shift(b, 1e-2, 0.024)
    assert verdicts(a, b) == {"optim.lr=1e-3": "within spread", "optim.lr=1e-2": "different"}
    assert main(["compare", str(a), str(b), "--json"]) == 3
    answer = json.loads(capsys.readouterr().out)
    assert answer["different"] and answer["counts"]["different"] == 1 == answer["counts"]["within spread"]
    assert "means 0.024 apart, 0.0227 allowed" in answer["cells"][1]["reason"] and answer["rule"] == RULE
    assert main(["compare", str(a), str(b), "-q"]) == 3
    out = capsys.readouterr().out
    assert "optim.lr=1e-2" in out and "optim.lr=1e-3" not in out


def test_what_the_legend_says_is_not_compared_is_not(tmp_path: Path) -> None:
    a, b = make(tmp_path / "a"), make(tmp_path / "b")
    for run in b.glob("runs/*"):
        folders.edit(run / "timing.json", seconds=1e6)
        text = (run / "curve.csv").read_text()
        assert "\n20," in text
        (run / "curve.csv").write_text(text.replace("\n20,", "\n20,9"))
    assert set(verdicts(a, b).values()) == {"equal"} and "not its curves" in RULE and "nor its time" in RULE


@pytest.mark.parametrize(
    ("change", "named"),
    [({"loss__initial": 9.0}, "initial_loss"), ({"loss__best": 0.5}, "best_loss"), ({"steps": 3}, "steps")]
    + [({"loss__best_step": 7}, "best_step"), ({"spikes": 8}, "spikes")],
)
def test_what_else_is_compared_is_named(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    a, b = make(tmp_path / "a"), make(tmp_path / "b")
    for path in list(b.glob("runs/*/run.json"))[:1]:
        folders.edit(path, **change)
    unlike = [cell for cell in compare(a, b).cells if cell.verdict != "equal"]
    assert [(cell.verdict, cell.reason) for cell in unlike] == [
        ("within spread", f"the same final values; other {named}")
    ]


def test_other_outcomes_are_different(tmp_path: Path) -> None:
    a = make(tmp_path / "a")
    b = make(tmp_path / "b", lambda run: "nan@37" if (run.spec.seed, run.spec.optim.lr) == (2, 1e-2) else "trained")
    assert verdicts(a, b) == {"optim.lr=1e-3": "equal", "optim.lr=1e-2": "different"}


def test_nan_runs_are_compared_by_their_onsets(tmp_path: Path) -> None:
    a = make(tmp_path / "a", lambda run: f"nan@{30 + run.spec.seed}")
    b = make(tmp_path / "b", lambda run: f"nan@{(31 if run.spec.optim.lr == 1e-3 else 50) + run.spec.seed}")
    assert verdicts(a, b) == {"optim.lr=1e-3": "within spread", "optim.lr=1e-2": "different"}


def test_one_seed_against_three_and_what_is_on_one_side(tmp_path: Path) -> None:
    a = make(tmp_path / "a", lambda run: "missing" if run.spec.optim.lr == 1e-2 else "trained")
    b = make(tmp_path / "b", seeds=(0,))
    assert verdicts(a, b) == {"optim.lr=1e-3": "within spread", "optim.lr=1e-2": "only in B"}
    assert verdicts(b, a)["optim.lr=1e-2"] == "only in A"
    shift(b, 1e-3, 0.1)
    assert verdicts(a, b)["optim.lr=1e-3"] == "different"


def test_conditions_are_joined_by_their_labels(tmp_path: Path) -> None:
    a = make(tmp_path / "a")
    points = tuple(Point(label=label, settings={"optim.lr": float(label)}) for label in ("0.01", "0.001", "1"))
    fixed = synthetic.axis("model.norm", "layernorm")
    of = synthetic.study(fixed, Axis(name="optim.lr", points=points), seeds=(0, 1, 2))
    b = synthetic.make_results(tmp_path / "b", of, lambda run: "trained")
    found = verdicts(a, b)
    assert found == {"optim.lr=1e-3": "equal", "optim.lr=1e-2": "equal", "optim.lr=1": "only in B"}


def test_other_questions_are_told(tmp_path: Path) -> None:
    of = synthetic.study(RATES, seeds=(0, 1, 2))
    task = of.base.task.model_copy(update={"a": 3})
    longer = of.model_copy(update={"base": of.base.model_copy(update={"task": task})})
    a = make(tmp_path / "a")
    b = synthetic.make_results(tmp_path / "b", longer, lambda run: "trained")
    assert "toy: the studies ask other questions: task.a: 5 -> 3" in compare(a, b).notes


VALUES: dict[str, Any] = {
    "exact": {"count": 5, "list": [1.0, 2.0], "text": "mean", "max_abs_error": 4e-7},
    "seeded": {"growth": {"by_seed": {"0": 1.0, "1": 1.1, "2": 1.2}}},
    "rows": {
        "rows": [
            {"norm": norm, "seed": seed, "layer": layer, "grad": 1.0 + seed}
            for norm in ("none", "dyt")
            for seed in (0, 1)
            for layer in (0, 1)
        ]
    },
    "time": {"cells": [{"shape": "2x3", "median_us": 5.0, "low_us": 4.0, "high_us": 6.0, "n": 9}], "copy_gbps": 3.0},
}


def measure(root: Path, name: str = "some", **changes: Any) -> Path:
    values = json.loads(json.dumps(VALUES))
    write_measure(root, Measure(name, "?", f"normlab {name}", False, {}, values, {"device": "cpu"}, "2026", 1.0))
    folders.edit(root / "measure.json", **{f"values__{key}": value for key, value in changes.items()})
    return root


def test_leaves_are_named_by_their_labels() -> None:
    found = dict(leaves(VALUES))
    assert found["exact.list[1]"] == 2.0
    assert found["rows.rows[norm=dyt, layer=1].grad"] == {"by_seed": {"0": 1.0, "1": 2.0}}
    assert found["time.cells[shape=2x3].us"] == {"median": 5.0, "low": 4.0, "high": 6.0}
    assert not any(path.endswith(".n") for path in found)


def test_rows_without_labels_are_told_apart_by_their_number() -> None:
    rows = [{"norm": "dyt", "scale": 0.1, "out": 1.0}, {"norm": "dyt", "scale": 0.2, "out": 2.0}]
    assert list(dict(leaves(rows, "x")).items()) == [
        ("x[norm=dyt].scale", 0.1),
        ("x[norm=dyt].out", 1.0),
        ("x[norm=dyt]#2.scale", 0.2),
        ("x[norm=dyt]#2.out", 2.0),
    ]


@pytest.mark.parametrize(
    ("change", "path", "verdict"),
    [
        ({"exact__count": 6}, "exact.count", "different"),
        ({"exact__list__1": 2.0001}, "exact.list[1]", "within spread"),
        ({"exact__list__1": 2.001}, "exact.list[1]", "different"),
        ({"exact__list": [1.0]}, "exact.list[1]", "only in A"),
        ({"exact__text": "sum"}, "exact.text", "different"),
        ({"exact__text": None}, "exact.text", "different"),
        ({"exact__max_abs_error": 9e-7}, "exact.max_abs_error", "within spread"),
        ({"seeded__growth__by_seed": {"0": 1.1, "1": 1.2, "2": 1.3}}, "seeded.growth", "within spread"),
        ({"seeded__growth__by_seed": {"0": 2.1, "1": 2.2, "2": 2.3}}, "seeded.growth", "different"),
        ({"seeded__growth__by_seed": {"0": None, "1": 1.1, "2": 1.2}}, "seeded.growth", "different"),
        ({"rows__rows__0__grad": 9.0}, "rows.rows[norm=none, layer=0].grad", "within spread"),
        ({"time__cells__0__high_us": 7.0}, "time.cells[shape=2x3].us", "within spread"),
        ({"time__cells__0__low_us": 8.0, "time__cells__0__high_us": 9.0}, "time.cells[shape=2x3].us", "other speed"),
        ({"time__copy_gbps": 30.0}, "time.copy_gbps", "other speed"),
    ],
)
def test_measures_value_by_value(tmp_path: Path, change: dict[str, Any], path: str, verdict: str) -> None:
    a, b = measure(tmp_path / "a"), measure(tmp_path / "b", **change)
    found = verdicts(a, b)
    assert found.pop(path) == verdict and set(found.values()) == {"equal"}
    assert main(["compare", str(a), str(b), "-q"]) == (3 if verdict == "different" else 0)


def test_a_measure_of_speed_is_never_different(tmp_path: Path) -> None:
    a, b = measure(tmp_path / "a", "speed"), measure(tmp_path / "b", "speed", exact__count=6)
    assert verdicts(a, b)["exact.count"] == "other speed"


def test_reproductions_study_by_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side, quick in (("a", False), ("b", True)):
        root = tmp_path / side
        make(root / "studies" / "toy")
        measure(root / "studies" / "some")
        names = [("toy", "training"), ("some", "measure"), ("later", "training")]
        studies = [{"name": name, "kind": kind, "folder": f"studies/{name}"} for name, kind in names]
        manifest = {"format": 1, "kind": "reproduction", "quick": quick, "shortened": ["300 of 3000 steps"] * quick}
        (root / "manifest.json").write_text(strict_json({**manifest, "studies": studies, "device": "cpu"}))
        claims = [{"id": "claim", "verdict": "undecided" if quick else "reproduced"}]
        (root / "verdicts.json").write_text(json.dumps({"claims": claims}))
    make(tmp_path / "b" / "studies" / "later")
    found = compare(tmp_path / "a", tmp_path / "b")
    assert [(c.study, c.verdict) for c in found.cells if c.verdict != "equal"] == [("later", "only in B")]
    assert {cell.study for cell in found.cells} == {"toy", "some", "later"}
    assert "B was shortened: 300 of 3000 steps" in found.notes
    assert "claim: reproduced in A, undecided in B" in found.notes
    # One study by itself against all of them.
    alone = compare(tmp_path / "a", tmp_path / "b" / "studies" / "toy")
    assert {(c.study, c.verdict) for c in alone.cells} == {("toy", "equal"), ("some", "only in A")}


def test_bad_folders_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = make(tmp_path / "a"), measure(tmp_path / "b")
    for other in (b, tmp_path / "nowhere", tmp_path):
        assert main(["compare", str(a), str(other)]) == 2
        out, err = capsys.readouterr()
        assert not out and err.count("\n") == 1
    assert main(["compare", str(b), str(measure(tmp_path / "c", "speed"))]) == 2
    assert "two measures of the same name" in capsys.readouterr().err


def test_the_spread_of_two_samples() -> None:
    a, b = [1.0, 2.0, 3.0], [2.0, 4.0, 6.0, 8.0]
    parts = statistics.variance(a) / 3, statistics.variance(b) / 4
    # Welch-Satterthwaite by hand: 4.07 degrees of freedom, of which the table has 4.
    assert math.floor(sum(parts) ** 2 / (parts[0] ** 2 / 2 + parts[1] ** 2 / 3)) == 4
    assert samples_agree(a, b) == (True, "means 3 apart, 3.93 allowed")
    assert not samples_agree(a, [value + 1 for value in b])[0]
    # One value against three: 4.303 * 1 * sqrt(4/3) = 4.97.
    assert samples_agree([6.9], a)[0] and samples_agree(a, [6.9])[0] and not samples_agree([7.0], a)[0]
    assert samples_agree([1.0], [1.0])[0] and not samples_agree([1.0], [1.001])[0]
    assert samples_agree([1.0, 1.0], [1.0, 1.0])[0] and not samples_agree([1.0, 1.0], [1.1, 1.1])[0]


def test_outcomes_seeds_numbers_times() -> None:
    assert outcomes_agree(["nan", "trained"], ["trained", "nan"]) and not outcomes_agree(["nan", "nan"], ["nan", "x"])
    assert outcomes_agree(["nan"], ["nan", "nan"]) and outcomes_agree(["nan"], ["nan", "trained"])
    assert not outcomes_agree(["stalled"], ["nan", "trained"]) and not outcomes_agree(["nan", "x"], ["nan"] * 3)
    assert seeds_agree({"0": None}, {"1": None})[0] == "within spread"
    assert numbers_agree("x", 0.0, 0.0)[0] == "equal" and numbers_agree("x", 0.0, 1e-9)[0] == "different"
    low = {"median": 1.0, "low": 0.5, "high": 2.0}
    assert times_agree(low, {"median": 3.0, "low": 2.0, "high": 4.0})[0] == "within spread"
    assert times_agree(low, {"median": 3.0, "low": 2.1, "high": 4.0})[0] == "other speed"
