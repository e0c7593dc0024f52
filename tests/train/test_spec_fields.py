"""Every field of RunSpec and every option of an entry matters: another legal value changes what the run leaves behind,
not only its id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from tiny_nets import allowed, tiny, train

from normlab.catalogue import CATALOGUES
from normlab.config.fields import leaf_fields, option_fields
from normlab.config.schema import NAMED, OPTIONS, RunSpec
from normlab.store import curve_csv, strict_json

# dotted field: (another value, settings under which the field is read)
OTHER: dict[str, tuple[Any, dict[str, Any]]] = {
    "task.name": ("sum", {}),
    "task.vocab": (13, {}),
    "task.length": (6, {}),
    "task.a": (4, {}),
    "task.b": (5, {}),
    "task.c": (6, {}),
    "task.k": (2, {"task__name": "sum"}),
    "task.noise": (0.5, {"task__name": "table"}),
    "task.concentration": (5.0, {"task__name": "markov"}),
    "task.seed": (1, {}),
    "task.train_size": (3, {}),
    "task.val_size": (21, {}),
    "task.loss_on": ("last", {}),
    "model.depth": (3, {}),
    "model.width": (9, {}),
    "model.hidden": (13, {}),
    "model.norm": ("rmsnorm", {}),
    "model.placement": ("post", {}),
    "model.residual_ramp.warmup": (4, {}),
    "model.mixer": ("linear", {}),
    "model.init": ("torch", {}),
    "model.final_norm": ("none", {}),
    "optim.name": ("adamw", {"optim__weight_decay": 0.1}),
    "optim.lr": (2e-2, {}),
    "optim.beta1": (0.8, {}),
    "optim.beta2": (0.9, {}),
    "optim.eps": (1e-3, {}),
    "optim.momentum": (0.5, {"optim__name": "sgd"}),
    "optim.weight_decay": (0.1, {}),
    "optim.warmup": (3, {}),
    "optim.schedule": ("cosine", {}),
    "optim.clip": (0.01, {"optim__eps": 1e-3}),
    "train.steps": (7, {}),
    "train.batch": (5, {}),
    "train.eval_every": (2, {}),
    "train.precision": ("float64", {}),
    "train.low_stream": (True, {"train__precision": "bfloat16"}),
    "train.loss_scale": (1e-6, {"train__precision": "float16"}),
    "seed": (1, {}),
}


def options() -> Iterator[tuple[str, str, str]]:
    """Every option that an entry of the package has: the field that holds it, the entry and the option's name."""
    for path, chooser in OPTIONS.items():
        for name, entry in CATALOGUES[NAMED[chooser]].items():
            for option in entry.Options.model_fields:
                yield path, name, option


def others(field: FieldInfo) -> Iterator[Any]:
    """Legal values of an option that are not its default."""
    default, legal = field.default, TypeAdapter(field.rebuild_annotation())
    if get_origin(field.annotation) is Literal:
        candidates = list(get_args(field.annotation))
    elif isinstance(default, bool):
        candidates = [not default]
    elif isinstance(default, int):
        candidates = [3, default + 1, default - 1]  # 3: a step within the six of the net
    else:
        candidates = [0.5, 0.7] if default is None else [default * 1.6, default / 1.6, default + 0.3]
    for value in candidates:
        try:
            legal.validate_python(value, strict=True)
        except ValidationError:
            continue
        if value != default:
            yield value


def trace(**fields: Any) -> str:
    """All that a run leaves behind, less the spec itself and what the record read back from the config."""
    (record,) = train(tiny(**fields))
    run = {key: value for key, value in record.run.items() if key not in ("id", "spec", "built", "notes")}
    return strict_json(run) + curve_csv(record.curve)


def test_the_list_is_complete() -> None:
    assert sorted(OTHER) == sorted(leaf_fields(RunSpec))
    assert {f"{path}.{option}" for path, _, option in options()} == set(option_fields())
    for known in ("norm_options.eps", "norm_options.statistics", "norm_options.alpha", "init_options.std"):
        assert f"model.{known}" in option_fields()


@pytest.mark.parametrize("field", OTHER)
def test_another_value_changes_the_run(field: str) -> None:
    value, needed = OTHER[field]
    if field.count(".") == 2:
        section, node, leaf = field.split(".")
        changed = {f"{section}__{node}": {leaf: value}}
    else:
        changed = {field.replace(".", "__"): value}
    assert trace(**needed) != trace(**{**needed, **changed})


@pytest.mark.parametrize(("path", "name", "option"), [*options()])
def test_another_value_of_an_option_changes_the_run(path: str, name: str, option: str) -> None:
    key, chooser = path.replace(".", "__"), OPTIONS[path]
    # Depth 4: placements that treat blocks apart have some of each kind.
    needed = {chooser.replace(".", "__"): name, "model__depth": 4}
    if not allowed(**needed):
        needed["model__norm"] = "none"
    values = [*others(CATALOGUES[NAMED[chooser]][name].Options.model_fields[option])]
    assert values, "no other legal value was found"
    plain = trace(**needed)
    assert any(trace(**needed, **{key: {option: value}}) != plain for value in values)


def test_the_record_says_what_was_built() -> None:
    fields = {"model__norm": "rmsnorm", "model__placement": "post", "model__depth": 3, "optim__name": "sgd"}
    (record,) = train(tiny(**fields, optim__lr=0.25, optim__warmup=2, model__norm_options={"eps": 0.5}))
    built = record.run["built"]
    assert built["norm"] == "RMSNorm" and built["norms"] == 6 and built["options"]["norm"]["eps"] == 0.5
    assert built["options"]["init"] == {"std": 0.02}
    assert built["placement"] == "Post" and built["depth"] == 3 and built["final_norm"] == "Identity"
    assert built["optimizer"] == "SGD" and built["lr"] == 0.25 and built["mixer"] == "MeanMixer"
    blocks = 3 * (2 * 8 + (8 * 8 + 8) + (8 * 12 + 12) + (12 * 8 + 8))
    assert built["parameters"] == 11 * 8 * 2 + blocks


def test_an_eps_of_zero_is_recorded_as_zero_and_no_option_as_none() -> None:
    built = train(tiny(model__norm_options={"eps": 0.0}))[0].run["built"]
    assert built["options"]["norm"]["eps"] == 0.0
    built = train(tiny(model__norm="none", model__init="torch"))[0].run["built"]
    assert "norm" not in built["options"] and "init" not in built["options"]
