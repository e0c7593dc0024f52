"""What an extractor reads off results whose endings are known."""

import math

import pytest
import synthetic

from normlab.analysis import extract
from normlab.analysis.evidence import Evidence
from normlab.measures import Measure, write_measure

ENDS = {
    ("post", "1e-4"): "trained",
    ("post", "1e-3"): "stalled",
    ("post", "1e-2"): "nan@37",
    ("pre", "1e-4"): "unsteady",
    ("pre", "1e-3"): "better",
    ("pre", "1e-2"): "trained",
}


def make(root, change=None):
    axes = synthetic.axis("model.placement", "post", "pre"), synthetic.axis("optim.lr", "1e-4", "1e-3", "1e-2")
    ends = {**ENDS, **(change or {})}
    study = synthetic.study(*axes, seeds=(0, 1, 2))
    story = synthetic.make_results(root, study, lambda run: ends[run.cell["model.placement"], run.cell["optim.lr"]])
    return Evidence.open(story)


@pytest.fixture
def evidence(tmp_path):
    return make(tmp_path)


def pick(placement, lr=None, **more):
    return {"study": "toy", "model.placement": placement, **({"optim.lr": lr} if lr else {}), **more}


def test_loss_at_a_step(evidence):
    sample = extract.loss_at(evidence, pick("post", 1e-4, step="20"))
    assert sample.values == pytest.approx({0: 1.5, 1: 1.51, 2: 1.52}) and len(sample.ids) == 3
    gone = extract.loss_at(evidence, pick("post", 1e-2, step="40"))
    assert gone.values == {} and set(gone.outcomes.values()) == {"nan"}
    before = extract.loss_at(evidence, pick("post", 1e-2, step="20"))
    assert len(before.values) == 3 and set(before.outcomes.values()) == {""}
    assert extract.loss_at(evidence, pick("post", 1e-4, step="30")) is None  # not evaluated


def test_final_loss_and_onset(evidence):
    assert extract.final_loss(evidence, pick("pre", 1e-3)).values == pytest.approx({0: 0.4, 1: 0.41, 2: 0.42})
    assert extract.final_loss(evidence, pick("post", 1e-2)).values == {}
    assert extract.onset(evidence, pick("post", 1e-2)).values == {0: 37, 1: 37, 2: 37}
    assert extract.final_loss(evidence, pick("post", 5e-2)) is None
    assert extract.final_loss(evidence, {"study": "elsewhere"}) is None


def test_paired(evidence):
    against = {"model.placement": "post", "optim.lr": 1e-4}
    assert extract.difference(evidence, pick("pre", 1e-3, against=against)).values == pytest.approx(
        dict.fromkeys(range(3), -0.1)
    )
    gap = extract.largest_gap(evidence, pick("pre", 1e-3, against=against, steps=[0, 20, 60]))
    assert gap.values == pytest.approx(dict.fromkeys(range(3), 0.3))
    gone = extract.difference(evidence, pick("post", 1e-2, against=against))
    assert gone.values == {} and set(gone.outcomes.values()) == {"nan against trained"}


def test_windows_and_best(evidence):
    post, pre = extract.window(evidence, pick("post")), extract.window(evidence, pick("pre"))
    assert set(post.values.values()) == {0.0} and post.at_least  # 1e-4 alone, the edge of the grid
    assert set(pre.values.values()) == {1.0} and pre.at_least
    assert extract.best_rate(evidence, pick("pre")).values == {0: 1e-3, 1: 1e-3, 2: 1e-3}
    assert extract.best_loss(evidence, pick("post")).values == pytest.approx({0: 0.5, 1: 0.51, 2: 0.52})
    shift = extract.rate_shift(evidence, pick("pre", against={"model.placement": "post"}))
    assert shift.values == pytest.approx({0: 1.0, 1: 1.0, 2: 1.0})


def test_no_rate_trains(tmp_path):
    evidence = make(tmp_path, {("post", "1e-4"): "diverged"})
    assert set(extract.window(evidence, pick("post")).outcomes.values()) == {"unusable"}
    assert extract.best_loss(evidence, pick("post")).values == {}


def test_a_grid_with_holes_is_not_read(tmp_path):
    """A window or a sensitivity on a part of the grid would be another thing."""
    evidence = make(tmp_path, {("post", "1e-3"): "missing", ("pre", "1e-2"): "failed"})
    for by in (extract.window, extract.best_loss, extract.best_rate, extract.sensitivity, extract.raggedness):
        assert by(evidence, pick("post")) is None and by(evidence, pick("pre")) is None
    assert extract.final_loss(evidence, pick("post", 1e-4)) is not None


def test_steps(evidence):
    """`better` reaches 0.5, the best loss of `trained` (at step 60), at step 60: seed by seed 0.4x <= 0.5x."""
    ratio = extract.step_ratio(evidence, pick("pre", 1e-3, against={"model.placement": "post", "optim.lr": 1e-4}))
    assert ratio.values == {0: 1.0, 1: 1.0, 2: 1.0}
    never = extract.step_ratio(evidence, pick("post", 1e-3, against={"optim.lr": 1e-4}))
    assert never.values == {} and set(never.outcomes.values()) == {"never"}


def test_raggedness_and_sensitivity(evidence):
    """unsteady rises by 0.7 (seeds move all but the first evaluation alike), the others only fall; mean of three."""
    ragged = extract.raggedness(evidence, pick("pre"))
    assert ragged.values == pytest.approx(dict.fromkeys(range(3), 0.7 / 3))
    touchy = extract.sensitivity(evidence, pick("post"))
    assert touchy.values[0] == pytest.approx((0.5 + 2.08 + 2.1) / 3 - 0.5)


def test_leaves(tmp_path):
    values = {"a": {"x": 1.5, "list": [1, 2], "seeds": {"by_seed": {"0": 1.0, "1": None}}},
              "t": {"median": 3.0, "low": 2.0, "high": 4.0, "n": 9}, "gone": None}  # fmt: skip
    write_measure(tmp_path, Measure("toy", "?", "normlab toy", False, {}, values, {}, "now", 1.0))
    evidence = Evidence.open(tmp_path)

    def read(path):
        return extract.leaf(evidence, {"study": "toy", "path": path})

    assert read("a.x").values == {0: 1.5} and read("a.list.1").values == {0: 2.0}
    by_seed = read("a.seeds")
    assert by_seed.values == {0: 1.0} and by_seed.size == 2 and by_seed.mean is None
    timed = read("t")
    assert timed.bounds(True) == (2.0, 4.0) and timed.size == 9 and math.isclose(timed.mean, 3.0)
    assert [read(path) for path in ("a.y", "a.list.7", "a.x.z", "gone", "a")] == [None] * 5
