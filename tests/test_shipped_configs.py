"""Every config that ships loads and expands to the grid that it promises."""

import re

import pytest

from normlab.catalogue import NORMS, PLACEMENTS
from normlab.config.load import load_study as load
from normlab.config.load import shipped_configs
from normlab.config.plan import expand

RUNS = {"collapse": 6, "depth": 9, "dyt": 2, "finalnorm": 10, "lr_wide": 18, "postln": 10, "preln": 10}
RUNS |= {"readings": 216, "readings_long": 60, "readings_tables": 93, "smoke": 4, "warmup": 4}
RUNS |= {"norms": 77, "placements": 84, "deep": 70, "dyt_alpha": 35}
CONFIGS = shipped_configs()


def test_all_are_known_here():
    assert {path.stem: len(expand(load(path))) for path in CONFIGS} == RUNS


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_lab_notebook(path):
    """A question, one seed unless more are asked for, the printed rows among the evaluations, numbers with reasons."""
    study = load(path)
    assert study.question.endswith("?")
    assert study.seeds == ((0, 1, 2) if path.stem == "readings_long" else (0,))
    train = study.base.train
    assert all(step % train.eval_every == 0 and step <= train.steps for step in study.outputs.steps)
    for line in path.read_text(encoding="utf-8").splitlines():
        if re.match(r" +(steps|depth|lr|vocab|width): ", line):
            assert "#" in line or path.stem == "smoke", line


def settings(name, axis):
    (path,) = [path for path in CONFIGS if path.stem == name]
    return [point.settings for found in load(path).axes if found.name == axis for point in found.points]


def test_the_grids_are_those_of_the_article():
    rates = [1e-4, 3e-4, 1e-3, 3e-3, 1e-2]
    for name in ("postln", "preln"):
        assert [point["optim.lr"] for point in settings(name, "optim.lr")] == rates
        assert [point["model.depth"] for point in settings(name, "model.depth")] == [12, 30]
    assert [point["optim.lr"] for point in settings("lr_wide", "optim.lr")] == [1e-5, 3e-5, *rates, 3e-2, 1e-1]
    norms = ["none", "layernorm", "rmsnorm"]
    for name in ("collapse", "depth"):
        assert [point["model.norm"] for point in settings(name, "model.norm")] == norms
    assert [point.get("optim.warmup", 0) for point in settings("warmup", "variant")] == [0, 0, 1000, 1000]


def test_the_two_sweeps_differ_in_the_placement_alone():
    post, pre = (load(path) for path in CONFIGS if path.stem in ("postln", "preln"))
    assert post.base.model.placement == "post" and pre.base.model.placement == "pre"
    assert post.base.model_copy(update={"model": pre.base.model}) == pre.base
    assert post.base.model.model_copy(update={"placement": "pre"}) == pre.base.model
    assert post.axes == pre.axes


def test_every_norm_and_every_placement_has_its_row():
    assert [point["model.norm"] for point in settings("norms", "model.norm")] == list(NORMS)
    assert [point["model.placement"] for point in settings("placements", "placement")] == list(PLACEMENTS)
