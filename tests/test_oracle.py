"""The package against `scripts/plain_toy.py`, a plain eager copy that shares no code with it.

A stack of three lanes (other seeds, rates and so on) must equal three plain runs, lane by lane; so must a stack of one.
Compared over 20 steps: training loss, gradient norm, validation loss, largest activation of every layer.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from normlab.config.names import KNOWN

from normlab.config.schema import RunSpec, Thresholds
from normlab.store import RunRecord
from normlab.train.loop import train_stack

SCRIPT = Path(__file__).parents[1] / "scripts" / "plain_toy.py"

# Both do the same sums in another order. float64: 1e-10 is asked for; the largest seen is 4e-15 (a gradient norm).
# float32: the largest seen is 1.6e-6 (a gradient norm; losses 3e-7); ten times that for other CPUs' kernels.
RTOL = {"float64": 1e-10, "float32": 2e-5}

TINY = {"width": 8, "hidden": 16, "depth": 2, "vocab": 16, "length": 6, "batch": 4, "val_size": 32}
TINY |= {"steps": 20, "eval_every": 7}
LANES = ({"seed": 0, "lr": 1e-3}, {"seed": 3, "lr": 1e-2}, {"seed": 2**40 + 1, "lr": 3e-3})


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plain_toy", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["plain_toy"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


plain_toy = load_script()


def spec_of(s: Any) -> RunSpec:
    """The RunSpec that asks the same as the script's settings `s`."""
    task = {key: getattr(s, key) for key in ("vocab", "length", "a", "b", "c", "val_size", "loss_on")}
    model = {key: getattr(s, key) for key in ("depth", "width", "hidden", "norm", "placement", "mixer", "init")}
    optim = {key: getattr(s, key) for key in ("lr", "beta1", "beta2", "eps", "momentum", "weight_decay", "warmup")}
    return RunSpec.model_validate(
        {
            "task": task | {"name": "affine", "seed": s.task_seed},
            "model": model | {"init_std": s.init_std, "final_norm": s.final_norm},
            "optim": optim | {"name": s.optimizer, "schedule": s.schedule, "clip": s.clip or None},
            "train": {"steps": s.steps, "batch": s.batch, "eval_every": s.eval_every, "precision": s.dtype},
            "seed": s.seed,
        }
    )


def flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the script under the column names of the package."""
    rms = row["act_rms"] or [None] * (TINY["depth"] + 1)
    return {name: row[name] for name in plain_toy.SHOWN} | {f"act_rms_{layer}": x for layer, x in enumerate(rms)}


def assert_equal(record: RunRecord, rows: list[dict[str, Any]], rtol: float) -> None:
    """Every cell of the record's curve within `rtol` of the plain run's, and empty where that one is empty."""
    expected = [flat(row) for row in rows]
    assert set(record.curve) == set(expected[0])
    for column, values in record.curve.items():
        plain = [row[column] for row in expected]
        assert [x is None for x in values] == [x is None for x in plain], column
        got, want = ([float(x) for x in cells if x is not None] for cells in (values, plain))
        np.testing.assert_allclose(got, want, rtol=rtol, atol=0, err_msg=column)


def assert_package_equals_plain(lanes: tuple[dict[str, Any], ...] = LANES, **settings: Any) -> None:
    """Train a stack of `lanes`, its middle lane alone, and each lane by the script; they must agree."""
    all_settings = [plain_toy.Settings(**{**TINY, **settings, **lane}) for lane in lanes]
    plain = [plain_toy.run(s) for s in all_settings]
    assert len({rows[-1]["val_loss"] for rows in plain}) == len(lanes), "lanes that do not differ prove nothing"
    specs = [spec_of(s) for s in all_settings]
    rtol = RTOL[all_settings[0].dtype]
    for record, rows in zip(train_stack(specs, thresholds=Thresholds()), plain, strict=True):
        assert_equal(record, rows, rtol)
    (alone,) = train_stack(specs[1:2], thresholds=Thresholds())
    assert_equal(alone, plain[1], rtol)


NETS = list(itertools.product(*(KNOWN[kind] for kind in ("norms", "placements", "mixers", "inits"))))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("norm", "placement", "mixer", "init"), NETS, ids=["-".join(net) for net in NETS])
def test_every_net(norm: str, placement: str, mixer: str, init: str, dtype: str) -> None:
    assert_package_equals_plain(norm=norm, placement=placement, mixer=mixer, init=init, dtype=dtype)


OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adam": {"optimizer": "adam"},
    "adam-betas": {"optimizer": "adam", "beta1": 0.5, "beta2": 0.9, "eps": 1e-3},
    "adamw": {"optimizer": "adamw"},
    "sgd": {"optimizer": "sgd"},
    "sgd-momentum": {"optimizer": "sgd", "momentum": 0.9},
}
OPTIM_LANES = (
    {"seed": 0, "lr": 1e-2, "warmup": 0, "clip": 0.0, "weight_decay": 0.1},
    {"seed": 1, "lr": 3e-2, "warmup": 5, "clip": 0.05, "weight_decay": 0.0},
    {"seed": 2, "lr": 3e-3, "warmup": 19, "clip": 0.5, "weight_decay": 0.01},
)


@pytest.mark.parametrize("schedule", KNOWN["schedules"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer(optimizer: str, schedule: str) -> None:
    assert_package_equals_plain(OPTIM_LANES, **OPTIMIZERS[optimizer], schedule=schedule, dtype="float64", init="torch")


def test_every_optimizer_name_is_covered() -> None:
    assert {settings["optimizer"] for settings in OPTIMIZERS.values()} == set(KNOWN["optimizers"])


@pytest.mark.parametrize("final_norm", ["auto", "layernorm", "same", "none"])
@pytest.mark.parametrize("norm", ["none", "dyt"])
@pytest.mark.parametrize("placement", KNOWN["placements"])
def test_every_final_norm(placement: str, norm: str, final_norm: str) -> None:
    assert_package_equals_plain(placement=placement, norm=norm, final_norm=final_norm, dtype="float64")


@pytest.mark.parametrize(
    "settings",
    [
        {"loss_on": "last"},
        {"b": 0},
        {"b": 16, "loss_on": "last"},
        {"a": 0, "b": 1, "c": 0},
        {"task_seed": 5, "val_size": 3, "batch": 1},
        {"init_std": 0.5},
        {"eval_every": 1},
        {"eval_every": 100},
        {"steps": 1},
    ],
    ids=str,
)
def test_task_and_loop_settings(settings: dict[str, Any]) -> None:
    assert_package_equals_plain(**settings, dtype="float64")


def test_lanes_beside_one_that_overflows() -> None:
    """The middle lane's first update makes numbers whose products overflow: NaN at step 2, where both curves end."""
    lanes = ({"seed": 0, "lr": 0.1}, {"seed": 1, "lr": 1e300}, {"seed": 2, "lr": 0.3})
    settings = {"norm": "none", "optimizer": "sgd", "dtype": "float64", "init": "torch"}
    assert len(plain_toy.run(plain_toy.Settings(**TINY, **settings, **lanes[1]))) == 3
    assert_package_equals_plain(lanes, **settings)


def test_script_shares_nothing_with_the_package() -> None:
    nodes = list(ast.walk(ast.parse(SCRIPT.read_text(encoding="utf-8"))))
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in modules} <= {*sys.stdlib_module_names, "numpy", "torch"}


STANDARD = dataclasses.asdict(plain_toy.Settings())
OTHER = {"optimizer": "sgd", "init": "torch", "schedule": "linear", "dtype": "float64", "loss_on": "last"}
OTHER |= {"norm": "none", "placement": "post", "mixer": "linear", "final_norm": "same"}


@pytest.mark.parametrize("name", STANDARD)
def test_every_setting_of_the_script_reaches_the_spec(name: str) -> None:
    standard = STANDARD[name]
    value = OTHER.get(name) or (standard // 2 or 1 if isinstance(standard, int) else standard / 2 or 0.5)
    plain = {"optimizer": "sgd"} if name == "momentum" else {}  # only sgd reads it
    assert spec_of(plain_toy.Settings(**plain, **{name: value})).id != spec_of(plain_toy.Settings(**plain)).id
