"""Options of an entry: checked with their place, an axis like any field, part of the id, kept where they were set."""

import json
import re

import pytest

from normlab.catalogue import CATALOGUES, NORMS, Field, Options
from normlab.catalogue.lists import found
from normlab.config.load import study_yaml
from normlab.config.plan import expand, structure_of
from normlab.config.schema import NAMED, OPTIONS, RunSpec
from normlab.model.norms import Norm


def base(text):
    return f"question: q\nbase: {{model: {{{text}}}}}\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (base("norm_options: {eps: -1}"), "study.yaml:2:36: model.norm_options.eps: expected at least 0, got -1"),
        (
            base("norm_options: {epsilon: 1}"),
            "study.yaml:2:40: model.norm_options.epsilon: norm 'layernorm' has no such option; did you mean 'eps'?",
        ),
        (
            base("norm: none, norm_options: {zzz: 1}"),
            "study.yaml:2:48: model.norm_options.zzz: norm 'none' has no such option; it has none",
        ),
        (base("norm_options: {alpha: 1}"), "study.yaml:2:38: model.norm_options.alpha: is read by dyt"),
        (
            base("norm: dyt, norm_options: {alpha: '0.5'}"),
            "study.yaml:2:49: model.norm_options.alpha: expected a number, got text '0.5': write 0.5 without quotes",
        ),
        (base("norm_options: 3"), "study.yaml:2:30: model.norm_options: expected keys with values, got the number 3"),
        (base("norm_eps: 1e-3"), "study.yaml:2:16: model.norm_eps: unknown key; it is called 'model.norm_options.eps'"),
        (
            base("init_std: 1"),
            "study.yaml:2:16: model.init_std: unknown key; it is called 'model.init_options.std' now",
        ),
        (
            "question: q\naxes: {model.norm_options.alpha: [0.1]}\n",
            "study.yaml:2:35: model.norm_options.alpha: is read by dyt",
        ),
        (
            "question: q\nbase: {model: {norm: dyt}}\naxes: {model.norm_options.alpha: [0.1, x]}\n",
            "study.yaml:3:40: model.norm_options.alpha: expected a number, got text 'x'",
        ),
        (
            "question: q\naxes: {model.norm_options.alfa: [0.1]}\n",
            "study.yaml:2:8: model.norm_options.alfa: no field of a run; did you mean 'model.norm_options.alpha'?",
        ),
        (
            base("residual_ramp: {warmup: 0}"),
            "study.yaml:2:40: model.residual_ramp.warmup: expected at least 1, got 0",
        ),
    ],
)
def test_one_line_with_the_place_and_the_mend(problems, text, line):
    (problem,) = problems(text)
    assert problem.startswith(line)


def test_several_faults_are_told_at_once(problems):
    lines = problems(base("norm: dyt, norm_options: {alpha: -1, eps: 1, beta: 2}, init_options: {std: 0}"))
    assert [line.split(": ")[1] for line in lines] == [
        "model.norm_options.alpha",
        "model.norm_options.eps",
        "model.norm_options.beta",
        "model.init_options.std",
    ]


def test_an_axis_of_options_and_its_labels(load):
    text = "question: q\nbase: {model: {norm: dyt}}\naxes: {model.norm_options.alpha: [0.1, 1, 2]}\n"
    runs = expand(load(text))
    assert [run.label for run in runs] == ["alpha=0.1", "alpha=1", "alpha=2"]
    assert [run.spec.model.norm_options.alpha for run in runs] == [0.1, 1.0, 2.0]
    assert len({run.id for run in runs}) == 3 and len({structure_of(run.spec) for run in runs}) == 3
    (single,) = expand(load(text, "model.norm_options.alpha=0.1"))
    assert single.label == "seed=0" and single.id == runs[0].id


def test_an_option_that_was_set_holds_for_every_norm_and_a_default_for_its_own(load):
    text = "question: q\nbase: {{model: {{{}}}}}\naxes: {{model.norm: [layernorm, rmsnorm]}}\n"
    eps = [run.spec.model.norm_options.eps for run in expand(load(text.format("")))]
    assert eps == [1e-5, 1e-6]
    # 1e-5 is LayerNorm's own; said aloud, it is meant for RMSNorm too, in the copy that results keep as well.
    study = load(text.format("norm_options: {eps: 1e-5}"))
    assert [run.spec.model.norm_options.eps for run in expand(study)] == [1e-5, 1e-5]
    again = load(study_yaml(study))
    assert [run.id for run in expand(again)] == [run.id for run in expand(study)]


def test_a_default_said_aloud_asks_the_same_run(load):
    silent, aloud = (
        expand(load(base(text)))[0] for text in ("norm: rmsnorm", "norm: rmsnorm, norm_options: {eps: 1e-6}")
    )
    assert silent.id == aloud.id
    assert silent.spec.model_dump_json() == aloud.spec.model_dump_json()


def test_another_norm_and_its_option_in_one_variant(load):
    text = "question: q\naxes: {v: {a: {model.norm: dyt, model.norm_options.alpha: 2}, b: {model.norm: rmsnorm}}}\n"
    one, two = expand(load(text))
    assert one.spec.model.norm_options.all()["alpha"] == 2.0 and two.spec.model.norm_options.all()["eps"] == 1e-6


def test_specs_with_options_survive_json():
    spec = RunSpec.model_validate({"model": {"norm": "dyt", "norm_options": {"alpha": 2.0}}})
    assert RunSpec.model_validate_json(spec.model_dump_json()) == spec
    assert json.loads(spec.model_dump_json())["model"]["norm_options"] == {"alpha": 2.0}


# (changes, id): an id must never change for a run that is on disk. A new field with a default, a new entry and a new
# option change none of these; where a change is meant, raise an entry's `version` or the number of the schema.
PINNED = {
    "c2a8105acd21": {},
    "c8a049de34ac": {"seed": 3},
    "cfd5be82822b": {"model": {"norm": "rmsnorm"}},
    "40e9071a5577": {"model": {"norm": "rmsnorm", "norm_options": {"eps": 1e-5}}},
    "4a5d3ad51bac": {"model": {"norm": "dyt", "norm_options": {"alpha": 0.1, "statistics": "stream"}}},
    "fe97b3a1d24c": {"model": {"placement": "post", "depth": 12}, "optim": {"lr": 3e-3}},
    "e48fb9f05f30": {"model": {"init": "torch"}, "task": {"loss_on": "last"}},
    "51d0b880f010": {"model": {"init_options": {"std": 0.1}, "final_norm": "none"}},
    "a81ccbcdc9b2": {"model": {"residual_ramp": {"warmup": 100}}},
    "c8ea7af11b52": {"train": {"precision": "float16", "loss_scale": 65536.0}},
    "ab33223f94ed": {"optim": {"name": "sgd", "momentum": 0.9, "clip": 1.0}},
    "f77f561b78a4": {"task": {"name": "table", "noise": 0.1, "train_size": 100}, "model": {"mixer": "linear"}},
}


@pytest.mark.parametrize("pinned", PINNED)
def test_a_dozen_runs_keep_their_ids(pinned):
    assert RunSpec.model_validate(PINNED[pinned]).id == pinned


def test_a_version_is_part_of_the_id(monkeypatch):
    default, rms = RunSpec().id, RunSpec.model_validate({"model": {"norm": "rmsnorm"}}).id
    monkeypatch.setattr(NORMS["layernorm"], "version", 2)
    assert RunSpec().id != default
    assert RunSpec.model_validate({"model": {"norm": "rmsnorm"}}).id == rms


@pytest.mark.parametrize("chooser", OPTIONS.values())
def test_a_users_entry_has_options_in_every_kind(chooser, monkeypatch):
    """A new option of an entry changes no id until it is set."""
    catalogue = CATALOGUES[NAMED[chooser]]
    section, field = chooser.split(".")
    path = next(path for path, of in OPTIONS.items() if of == chooser).split(".")[1]

    class Mine(found(catalogue.base)):
        pass

    catalogue["mine"] = Mine
    try:
        before = RunSpec.model_validate({section: {field: "mine"}}).id

        class Grown(Options):
            strength: float = 1.0

        Mine.Options = Grown
        assert RunSpec.model_validate({section: {field: "mine"}}).id == before
        assert RunSpec.model_validate({section: {field: "mine", path: {"strength": 2.0}}}).id != before
    finally:
        del catalogue["mine"]


class NoDefault(Options):
    power: float


class OutOfBounds(Options):
    power: float = Field(-1.0, gt=0)


class Changing(Options):
    powers: list[float] = [1.0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (NoDefault, "its option 'power' has no default: give it one"),
        (OutOfBounds, "the default of its option 'power' is not legal: Input should be greater than 0"),
        (Changing, "an option must not change: unhashable type: 'list'; use a tuple"),
        (dict, "expected Options derived from normlab.catalogue.Options, got <class 'dict'>"),
    ],
)
def test_options_that_cannot_be_used_are_refused_when_they_are_registered(options, words):
    with pytest.raises(ValueError, match=re.escape(f"norm 'mine': {words}")):
        NORMS["mine"] = type("Mine", (Norm,), {"Options": options})
    assert "mine" not in NORMS


@pytest.mark.parametrize(
    ("kind", "entry", "words"),
    [
        ("norms", lambda x: x, "norm 'mine': expected a class derived from normlab.model.norms.base.Norm"),
        ("mixers", Norm, "mixer 'mine': expected a class derived from normlab.model.mixers.Mixer"),
        ("schedules", 3, "schedule 'mine': expected a function, got 3"),
    ],
)
def test_what_is_no_entry_of_the_kind_is_refused(kind, entry, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        CATALOGUES[kind]["mine"] = entry


@pytest.mark.parametrize("name", ["layernorm", "my norm", ""])
def test_a_name_is_taken_or_legal(name):
    with pytest.raises(ValueError, match="layernorm|my norm|''"):
        NORMS[name] = Norm
