"""Axes and seeds: every value checked, every point of the grid checked, sizes refused with the number."""

import pytest

from normlab.config.plan import expand
from normlab.config.seeds import read_seeds


def axes(text):
    return f"question: q\naxes:\n  {text}\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            axes("optim.lr: 1e-3"),
            "study.yaml:3:13: optim.lr: expected a list of values, got the number 1e-3: write [1e-3]",
        ),
        (axes("optim.lr: []"), "study.yaml:3:13: optim.lr: expected at least one value, got none: remove the axis"),
        (axes("optim.lr: [1e-3, 0.001]"), "study.yaml:3:20: optim.lr: 1e-3 is given twice"),
        (axes("optim.lr: [1, 1.0]"), "study.yaml:3:17: optim.lr: 1 is given twice"),
        (axes("optim.lr: [1e-3, abc]"), "study.yaml:3:20: optim.lr: expected a number, got text 'abc'"),
        (
            axes("model.norm: [rmsnorm, lay]"),
            "study.yaml:3:25: model.norm: expected one of none, layernorm, rmsnorm",
        ),
        (axes("optim.lrr: [1]"), "study.yaml:3:3: optim.lrr: no field of a run; did you mean 'optim.lr'?"),
        (
            axes("lr: [1]"),
            "study.yaml:3:3: lr: expected a dotted field, or a name over named variants; did you mean 'optim.lr'?",
        ),
        (
            axes("model: {depth: [1, 2]}"),
            "study.yaml:3:3: model: expected a dotted field, or a name over named variants; write",
        ),
        (axes("seed: [0, 1]"), "study.yaml:3:3: seed: seeds are no axis: set 'seeds: 0-4' at the top"),
        (
            axes("optim.lr: {a: 1}"),
            "study.yaml:3:13: optim.lr: expected a list of values, got a mapping; named variants",
        ),
        (axes("variant: {a: 3}"), "study.yaml:3:16: variant 'a': expected fields to set"),
        (axes("variant: {}"), "study.yaml:3:12: variant: expected at least one value"),
        (
            axes("variant: {a: {opt.lr: 3}}"),
            "study.yaml:3:17: variant 'a': opt.lr: no field of a run; did you mean 'optim.lr'?",
        ),
        (axes("variant: {a: {seed: 3}}"), "study.yaml:3:17: variant 'a': seed: seeds are set at the top of the study"),
        (
            axes("variant: {a: {optim.lr: x}}"),
            "study.yaml:3:27: variant 'a': optim.lr: expected a number, got text 'x'",
        ),
        (
            axes("variant: {a: {}, b: {optim.warmup: 0}}"),
            "study.yaml:2:1: axes: 'a' and 'b' are the same run: drop one",
        ),
        (
            axes("optim.lr: [1]\n  v: {a: {optim.lr: 2}}"),
            "study.yaml:4:3: v: optim.lr: set by axis 'optim.lr' too: drop one",
        ),
        (
            "question: q\nseeds: 3\n",
            "study.yaml:2:8: seeds: expected a list or a range, got the number 3: write [3] or 0-2",
        ),
        ("question: q\nseeds:\n", "study.yaml:2:7: seeds: expected a list such as [0, 1] or a range such as 0-4"),
        ("question: q\nseeds: []\n", "study.yaml:2:8: seeds: expected at least one seed"),
        ("question: q\nseeds: [0, 0]\n", "study.yaml:2:8: seeds: seed 0 is given twice"),
        ("question: q\nseeds: [-1]\n", "study.yaml:2:8: seeds: expected seeds from 0 to"),
        ("question: q\nseeds: [true]\n", "study.yaml:2:8: seeds: expected whole numbers from 0 on or ranges"),
        ("question: q\nseeds: 0-999999999\n", "study.yaml:2:8: seeds: 1,000,000,000 seeds, more than the 100,000 runs"),
    ],
)
def test_one_line_with_the_place(problems, text, line):
    (problem,) = problems(text)
    assert problem.startswith(line)


def test_a_grid_of_a_billion_runs_is_refused_by_its_number_before_it_is_expanded(problems, load):
    ten = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
    names = [
        "task.a",
        "task.b",
        "task.c",
        "task.seed",
        "optim.lr",
        "optim.eps",
        "train.batch",
        "train.steps",
        "optim.clip",
    ]
    text = "question: q\naxes:\n" + "".join(f"  {name}: {ten}\n" for name in names)
    (line,) = problems(text)
    assert line.startswith("study.yaml:2:1: axes: the grid has 10 x 10 x") and "= 1,000,000,000 runs" in line


def test_a_rule_broken_at_a_point_of_the_grid_names_the_value_and_the_point(problems):
    text = """\
question: q
base: {train: {steps: 500}}
axes:
  optim.lr: [1e-3, 1e-2]
  variant:
    plain: {}
    warm: {optim.warmup: 1000}
"""
    (line,) = problems(text)
    assert line.startswith("study.yaml:7:26: optim.warmup: expected less than train.steps (500)")
    assert line.endswith("got 1000 (at optim.lr=1e-3, variant='warm')")


def test_a_grid_point_of_two_dotted_axes(problems):
    (line,) = problems(axes("train.steps: [50, 300]\n  optim.warmup: [0, 100]"))
    assert line.startswith("study.yaml:4:21: optim.warmup: expected less than train.steps (50)")


def test_values_are_kept_as_their_fields_keep_them(load):
    (axis,) = load(axes("optim.lr: [1, 0x2]")).axes
    assert [type(point.settings["optim.lr"]) for point in axis.points] == [float, float]


@pytest.mark.parametrize(
    ("value", "seeds"),
    [("0-2", (0, 1, 2)), ("3", (3,)), ("0,2,5-7", (0, 2, 5, 6, 7)), ([2, 0], (2, 0)), ([1, "4 - 5"], (1, 4, 5))],
)
def test_seeds(value, seeds):
    assert read_seeds(value) == seeds


def test_seeds_in_yaml_are_text_or_list(load):
    for text in ("0-2", "[0, 1, 2]", "[0, 1-2]"):
        assert load(f"question: q\nseeds: {text}\n").seeds == (0, 1, 2)
    assert load("question: q\n", seeds="4,6").seeds == (4, 6)


def test_labels_and_cells(load):
    study = load(
        axes('model.placement: [post]\n  optim.lr: [1e-3, 1e-2]\n  v: {"a, b": {}, c: {task.a: 4}}'), seeds="0-1"
    )
    runs = expand(study)
    assert [run.label for run in runs[:3]] == ["lr=1e-3 a, b seed=0", "lr=1e-3 a, b seed=1", "lr=1e-3 c seed=0"]
    assert runs[0].cell == {"model.placement": "post", "optim.lr": "1e-3", "v": "a, b"}
    assert [run.spec.seed for run in runs] == [0, 1] * 4
    assert runs[2].spec.task.a == 4 and runs[0].spec.model.placement == "post"


def test_labels_tell_axes_with_one_last_part_apart(load):
    runs = expand(load(axes("task.name: [affine, sum]\n  optim.name: [adam, adamw]\n  task.seed: [0, 1]")))
    assert runs[0].label == "task.name=affine optim.name=adam task.seed=0"
