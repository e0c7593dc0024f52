"""Expansion in Python, structures and costs, and the difference between two studies."""

import pytest

from normlab.config.dump import diff_studies
from normlab.config.errors import ConfigError
from normlab.config.plan import cost_of, expand, structure_of
from normlab.config.schema import LANE_FIELDS, MAX_RUNS, Axis, ModelSpec, OptimSpec, Point, RunSpec, Study, TrainSpec


def axis(name, *values):
    return Axis(name=name, points=tuple(Point(label=str(value), settings={name: value}) for value in values))


def test_expand_refuses_what_load_would():
    many = Study(name="s", question="q", axes=(axis("task.a", *range(1_000)),), seeds=tuple(range(101)))
    with pytest.raises(ConfigError, match="1000 x 101 = 101,000 runs, more than 100,000"):
        expand(many)
    assert MAX_RUNS == 100_000
    same = Study(name="s", question="q", axes=(axis("task.a", 5, 5),))
    with pytest.raises(ConfigError, match="are the same run"):
        expand(same)
    illegal = Study(name="s", question="q", axes=(axis("optim.warmup", 0, 9_999),))
    with pytest.raises(ConfigError, match="optim.warmup=9999"):
        expand(illegal)


def test_structure_ignores_what_lanes_may_differ_in_and_nothing_else():
    one = RunSpec()
    other = RunSpec(seed=3, optim=OptimSpec(lr=1e-2, warmup=5, weight_decay=0.1, clip=1.0))
    assert structure_of(one) == structure_of(other)
    assert len(LANE_FIELDS) == 5
    for changed in (
        RunSpec(model=ModelSpec(norm="rmsnorm")),
        RunSpec(train=TrainSpec(steps=10)),
        RunSpec(optim=OptimSpec(beta1=0.8)),
    ):
        assert structure_of(one) != structure_of(changed)


def test_cost_grows_with_depth_steps_and_evaluations():
    base = cost_of(RunSpec())
    assert cost_of(RunSpec(model=ModelSpec(depth=40))) > 1.8 * base
    assert cost_of(RunSpec(train=TrainSpec(steps=6_000))) == pytest.approx(2 * base, rel=0.01)
    assert cost_of(RunSpec(train=TrainSpec(eval_every=1))) > 2 * base


def test_an_id_depends_on_the_spec_alone(load):
    text = "question: {}\naxes: {{optim.lr: [{}]}}\n"
    first = {run.id for run in expand(load(text.format("a", "1e-3, 1e-2")))}
    second = {run.id for run in expand(load(text.format("b", "0.01, 0.1")))}
    assert len(first & second) == 1


def test_the_default_run_keeps_its_id():
    """Results on disk are found by it: a new field must not change the ids of old runs unnoticed."""
    assert RunSpec().id == "c2a8105acd21"


def test_diff_is_key_by_key(load):
    text = "question: q\naxes:\n  optim.lr: [{}]\n  v: {{a: {{task.a: {}}}, b: {{}}}}\nseeds: [0]\n"
    old = load(text.format("1e-3", 4)).model_dump(mode="json")
    new = load(text.format("1e-3, 1e-2", 6), "train.steps=10", "seeds=0-1", "model.depth=2,3").model_dump(mode="json")
    assert diff_studies(old, new) == [
        "train.steps: 3000 -> 10",
        "axes.optim.lr: [1e-3] -> [1e-3, 1e-2]",
        "axes.v.a.task.a: 4 -> 6",
        "seeds: [0] -> [0, 1]",
        "axes.model.depth: (absent) -> [2, 3]",
    ]
    assert diff_studies(old, old) == []
