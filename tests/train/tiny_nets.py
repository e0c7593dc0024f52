"""A net small enough for a test, as a spec with any field changed by its dotted name."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from normlab.config.schema import RunSpec, Thresholds
from normlab.store import RunRecord
from normlab.train.loop import train_stack

TINY: dict[str, Any] = {
    "task": {"vocab": 11, "length": 5, "val_size": 20},
    "model": {"depth": 2, "width": 8, "hidden": 12},
    "optim": {"lr": 1e-2},
    "train": {"steps": 6, "batch": 4, "eval_every": 3},
    "seed": 0,
}


def tiny(**fields: Any) -> RunSpec:
    """The tiny spec with `fields` set; a dotted name is written with a double underscore: `optim__lr=1.0`."""
    tree = {key: dict(value) if isinstance(value, dict) else value for key, value in TINY.items()}
    for name, value in fields.items():
        section, _, leaf = name.partition("__")
        if leaf:
            tree[section][leaf] = value
        else:
            tree[section] = value
    return RunSpec.model_validate(tree)


def allowed(**fields: Any) -> bool:
    """Whether there is such a spec; an entry refuses nets in which it makes no sense."""
    try:
        tiny(**fields)
    except ValidationError:
        return False
    return True


def train(*specs: RunSpec) -> list[RunRecord]:
    return train_stack(specs, thresholds=Thresholds())
