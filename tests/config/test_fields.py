"""What is wrong with keys and values: place, expectation, what came, the likely mend; all at once."""

import pytest

from normlab.config.fields import run_fields


def base(text):
    return f"question: q\nbase: {{{text}}}\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("question: q\nbas: {}\n", "study.yaml:2:1: bas: unknown key; did you mean 'base'?"),
        ("base: {}\n", "study.yaml:1:1: question: missing"),
        ("question: 2024\n", "study.yaml:1:11: question: expected text, got the number 2024: put it in quotes"),
        ("question: q\nbase:\n", "study.yaml:2:6: base: expected keys with values, got nothing (null)"),
        ("question: q\naxes:\n", "study.yaml:2:6: axes: expected names with lists of values, got nothing (null)"),
        ("question: q\nname: a/b\n", "study.yaml:2:7: name: expected a letter or digit"),
        (base("model: {depht: 3}"), "study.yaml:2:16: model.depht: unknown key; did you mean 'depth'?"),
        (base("lr: 3"), "study.yaml:2:8: lr: unknown key; did you mean 'optim.lr'?"),
        (base("optim.lr: 3"), "study.yaml:2:8: optim.lr: unknown key; write it nested, 'optim: {lr: ...}'"),
        (base("seed: 3"), "study.yaml:2:8: seed: set at the top of the study, as 'seeds: [0]'"),
        (base("model: 3"), "study.yaml:2:15: model: expected keys with values, got the number 3"),
        (base("model: {depth: 0}"), "study.yaml:2:23: model.depth: expected at least 1, got 0"),
        (base("optim: {lr: 0}"), "study.yaml:2:20: optim.lr: expected more than 0, got 0"),
        (base("optim: {beta1: 1}"), "study.yaml:2:23: optim.beta1: expected less than 1, got 1"),
        (
            base("model: {width: '12'}"),
            "study.yaml:2:23: model.width: expected a whole number, got text '12': write 12",
        ),
        (
            base("model: {hidden: 3e3}"),
            "study.yaml:2:24: model.hidden: expected a whole number, got the float 3000.0: write 3000",
        ),
        (
            base("train: {batch: 1_000}"),
            "study.yaml:2:23: train.batch: expected a whole number, got text '1_000': write 1000",
        ),
        (
            base("train: {low_stream: no}"),
            "study.yaml:2:28: train.low_stream: expected true or false, got text 'no': write false",
        ),
        (base("optim: {lr: .nan}"), "study.yaml:2:20: optim.lr: expected a finite number, got the number .nan"),
        (base("optim: {clip: .inf}"), "study.yaml:2:22: optim.clip: expected a finite number, got the number .inf"),
        (
            base("optim: {lr: null}"),
            "study.yaml:2:20: optim.lr: expected a number, got nothing (null): remove the line",
        ),
        (
            base("model: {norm: layrnorm}"),
            "study.yaml:2:22: model.norm: expected one of none, layernorm, rmsnorm",
        ),
        (base("model: {final_norm: sam}"), "study.yaml:2:28: model.final_norm: expected one of auto, same, none,"),
        (
            base("task: {vocab: 1000000000000}"),
            "study.yaml:2:22: task.vocab: expected at most 65536, got 1000000000000",
        ),
        (base("model: {depth: 1000000000}"), "study.yaml:2:23: model.depth: expected at most 1000, got 1000000000"),
        (
            base("model: {depth: 1000, width: 16384}"),
            "study.yaml:2:36: model.width: the net would have 272,631,857,152 param",
        ),
        (
            base("train: {batch: 1000000}"),
            "study.yaml:2:23: train.batch: a training step would hold 288,768,000,000 values, more than 4,000,000,000",
        ),
        (
            base("task: {train_size: 10000000, length: 4000}, train: {batch: 1}"),
            "study.yaml:2:27: task.train_size: drawing the data would hold 40,010,000,000 values at once",
        ),
        (
            base("optim: {momentum: 0.5}"),
            "study.yaml:2:26: optim.momentum: is read by sgd only, not by 'adam': remove it",
        ),
        (base("optim: {warmup: 3000}"), "study.yaml:2:24: optim.warmup: expected less than train.steps (3000), or the"),
        (
            base("train: {steps: 5}, optim: {warmup: 9}"),
            "study.yaml:2:43: optim.warmup: expected less than train.steps (5)",
        ),
        (base("task: {name: sum, k: 20}"), "study.yaml:2:29: task.k: expected at most task.length (16), got 20"),
        (
            base("train: {loss_scale: 8}"),
            "study.yaml:2:28: train.loss_scale: needs precision bfloat16 or float16, got float32",
        ),
        (
            "question: q\noutputs: {steps: 5}\n",
            "study.yaml:2:18: outputs.steps: expected a list, got the number 5: write [5]",
        ),
        (
            "question: q\noutputs: {steps: [0, 5, -7]}\n",
            "study.yaml:2:18: outputs.steps: expected no value below 0, got -7",
        ),
        (
            "question: q\noutputs: {rows: optim.lr}\n",
            "study.yaml:2:17: outputs.rows: this study has no axes, got 'optim.lr'",
        ),
        (
            "question: q\nthresholds: {stalled: 1}\n",
            "study.yaml:2:14: thresholds.stalled: unknown key; did you mean 'stalled_",
        ),
    ],
)
def test_one_line_with_the_place_and_the_mend(problems, text, line):
    (problem,) = problems(text)
    assert problem.startswith(line)


def test_everything_is_told_at_once(problems):
    text = """\
question: q
base:
  model: {depht: 3, width: '12'}
  optim: {lr: 017, warmup: 4000}
axes:
  optim.eps: [1e-8, abc]
seeds: 4-0
outputs: {rows: nothing}
sedes: 3
"""
    lines = problems(text, "optim.lrr=1")
    assert [line.split(": ")[0] for line in lines] == [
        "study.yaml:3:11",
        "study.yaml:3:28",
        "study.yaml:4:15",
        "study.yaml:4:28",
        "study.yaml:6:21",
        "study.yaml:7:8",
        "study.yaml:8:17",
        "study.yaml:9:1",
        "override 'optim.lrr=1'",
    ]


def test_a_faulty_field_does_not_cause_a_second_message(problems):
    """The rule between steps and warm-up is not judged against the default that replaces a faulty `steps`."""
    (line,) = problems(base("train: {steps: 10k}, optim: {warmup: 4000}"))
    assert "train.steps: expected a whole number" in line


def test_a_file_name_that_cannot_be_a_study(write):
    from normlab.config.errors import ConfigError
    from normlab.config.load import load_study

    with pytest.raises(ConfigError, match="add 'name: my-study'"):
        load_study(write("question: q\n", "my study.yaml"))
    assert load_study(write("question: q\nname: mine\n", "my study.yaml")).name == "mine"


def test_every_field_has_a_description():
    for name, field in run_fields().items():
        assert field.description, name
