"""Overrides of the command line: Hydra's form, the same scalars, the same checks."""

import pytest

TEXT = """\
question: q
axes:
  optim.lr: [1e-4, 1e-3]
  variant:
    post: {model.placement: post}
    "pre, warm": {model.placement: pre, optim.warmup: 10}
"""


def labels(study, name):
    return [point.label for axis in study.axes if axis.name == name for point in axis.points]


def test_a_single_value_sets_the_base(load):
    study = load(TEXT, "train.steps=300", "model.norm=none", "optim.clip=null", "model.init=torch")
    assert (study.base.train.steps, study.base.model.norm, study.base.model.init) == (300, "none", "torch")


def test_commas_make_an_axis_at_the_end(load):
    study = load(TEXT, "model.depth=2,3")
    assert [axis.name for axis in study.axes] == ["optim.lr", "variant", "model.depth"]
    assert labels(study, "model.depth") == ["2", "3"]


@pytest.mark.parametrize(
    ("override", "expected"),
    [("optim.lr=3e-3", ["3e-3"]), ("optim.lr=1e-2, .1", ["1e-2", "0.1"]), ("optim.lr=[1e-2,1]", ["1e-2", "1"])],
)
def test_an_axis_is_replaced_or_narrowed(load, override, expected):
    study = load(TEXT, override)
    assert labels(study, "optim.lr") == expected
    assert len(study.axes) == 2


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("variant=post", ["post"]),
        ("variant=pre, warm", ["pre, warm"]),
        ('variant="pre, warm",post', ["pre, warm", "post"]),
    ],
)
def test_variants_are_chosen_by_label(load, override, expected):
    assert labels(load(TEXT, override), "variant") == expected


def test_seeds_thresholds_outputs_question(load):
    study = load(
        TEXT,
        "seeds=0-2,7",
        "thresholds.stalled_margin=0.1",
        "outputs.steps=0,5",
        "outputs.reach=2",
        "outputs.rows=variant",
        "question=what # is: this, then?",
    )
    assert study.seeds == (0, 1, 2, 7)
    assert study.thresholds.stalled_margin == 0.1
    assert (study.outputs.steps, study.outputs.reach, study.outputs.rows) == ((0, 5), (2.0,), "variant")
    assert study.question == "what # is: this, then?"


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("foo", "expected key=value, such as optim.lr=1e-3 or optim.lr=1e-4,1e-3"),
        ("=1", "expected key=value, such as optim.lr=1e-3 or optim.lr=1e-4,1e-3"),
        ("optim.lrr=1", "optim.lrr: unknown key; did you mean 'optim.lr'?"),
        ("lr=1", "lr: unknown key; did you mean 'optim.lr'?"),
        ("seed=3", "seed: unknown key; did you mean 'seeds'?"),
        ("base.optim.lr=1", "base.optim.lr: unknown key; did you mean 'optim.lr'?"),
        ("+optim.lr=1", "+optim.lr: unknown key; did you mean 'optim.lr'?"),
        ("model=3", "model: unknown key; set its fields, as in model.depth=..."),
        ("optim.lr=", "optim.lr: no value given: null stands for none"),
        ("optim.lr=017", "optim.lr: a number with a leading zero, 017: write 17, or '017' in quotes for text"),
        ("optim.lr=abc", "optim.lr: expected a number, got text 'abc'"),
        ("optim.lr={a: 1}", "optim.lr: expected a number, got a mapping"),
        ("train.steps=3e2", "train.steps: expected a whole number, got the float 300.0: write 300"),
        ("optim.lr=1],[2", "optim.lr: cannot be read: "),
        ("optim.lr=1e-3,1e-3", "optim.lr: 1e-3 is given twice"),
        ("thresholds.stalled_margin=1,2", "thresholds.stalled_margin: expected a number, got a list"),
        ("variant=pots", "variant: no variant 'pots'; did you mean 'post'?"),
        ("variant=post,post", "variant: a variant is given twice"),
        ("model.placement=pre", "model.placement: every variant of axis 'variant' sets it: choose variants instead"),
        ("optim.warmup=1,2", "optim.warmup: set by axis 'variant' too: drop one"),
        ("seeds=5-1", "seeds: the range 5-1 runs backwards: write 1-5"),
        ("seeds=0-999999999", "seeds: 1,000,000,000 seeds, more than the 100,000 runs that a study may have"),
        ("outputs.rows=model.depth", "outputs.rows: expected an axis (optim.lr, variant), got 'model.depth'"),
    ],
)
def test_a_wrong_override_is_one_line(problems, override, text):
    (line,) = problems(TEXT, override)
    assert line.startswith(f"override '{override}': {text}")


def test_one_key_twice_and_line_breaks(problems):
    (line,) = problems(TEXT, "optim.lr=1", "optim.lr=2")
    assert line == "override 'optim.lr=2': optim.lr: set by 'optim.lr=1' already: use commas for several values"
    (line,) = problems(TEXT, "optim.lr\n=\x1b[31m1")
    assert "\\n" in line and "\\x1b" in line


def test_the_option_seeds(problems):
    assert problems(TEXT, seeds="x")[0].startswith("option '--seeds x': seeds: expected whole numbers")
