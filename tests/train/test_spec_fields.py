"""Every field of RunSpec matters: another legal value changes what the run leaves behind, not only its id."""

from __future__ import annotations

from typing import Any

import pytest
from tiny_nets import tiny, train

from normlab.config.schema import Node, RunSpec
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
    "model.mixer": ("linear", {}),
    "model.init": ("torch", {}),
    "model.init_std": (0.03, {}),
    "model.final_norm": ("none", {}),
    "model.norm_eps": (0.01, {}),
    "model.dyt_alpha": (0.8, {"model__norm": "dyt"}),
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


def leaves(node: type[Node], prefix: str = "") -> list[str]:
    found: list[str] = []
    for name, field in node.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Node):
            found += leaves(kind, f"{prefix}{name}.")
        else:
            found.append(prefix + name)
    return found


def trace(**fields: Any) -> str:
    """All that a run leaves behind, less the spec itself and what the record read back from the config."""
    (record,) = train(tiny(**fields))
    run = {key: value for key, value in record.run.items() if key not in ("id", "spec", "built")}
    return strict_json(run) + curve_csv(record.curve)


def test_the_list_is_complete() -> None:
    assert sorted(OTHER) == sorted(leaves(RunSpec))


@pytest.mark.parametrize("field", OTHER)
def test_another_value_changes_the_run(field: str) -> None:
    value, needed = OTHER[field]
    assert trace(**needed) != trace(**{**needed, field.replace(".", "__"): value})


def test_the_record_says_what_was_built() -> None:
    fields = {"model__norm": "rmsnorm", "model__placement": "post", "model__depth": 3, "optim__name": "sgd"}
    (record,) = train(tiny(**fields, optim__lr=0.25, optim__warmup=2, model__norm_eps=0.5))
    built = record.run["built"]
    assert built["norm"] == "RMSNorm" and built["norms"] == 6 and built["norm_eps"] == 0.5
    assert built["placement"] == "Post" and built["depth"] == 3 and built["final_norm"] == "Identity"
    assert built["optimizer"] == "SGD" and built["lr"] == 0.25 and built["mixer"] == "MeanMixer"
    blocks = 3 * (2 * 8 + (8 * 8 + 8) + (8 * 12 + 12) + (12 * 8 + 8))
    assert built["parameters"] == 11 * 8 * 2 + blocks


def test_an_eps_of_zero_is_recorded_as_zero_and_no_eps_as_none() -> None:
    assert train(tiny(model__norm_eps=0.0))[0].run["built"]["norm_eps"] == 0.0
    assert train(tiny(model__norm="dyt"))[0].run["built"]["norm_eps"] is None
