"""The package against `scripts/plain_toy.py`, a plain eager copy that shares no code with it.

For every net that the catalogues allow, one lane is held to the plain run leaf by leaf: parameters and gradients. A
stack of three lanes (other seeds, rates and so on) must equal three plain runs, lane by lane, and so must a stack of
one: training loss, gradient norm, validation loss and largest activation of every layer, over 20 steps. An entry that a
user's module registers needs no copy there.
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
import sys
from typing import Any, get_args

import pytest
from oracle import SCRIPTS, TINY, allowed, assert_leaves_equal, assert_package_equals_plain, shipped, spec_of
from oracle import plain_net as net
from oracle import plain_toy as toy

from normlab.catalogue import INITS, MIXERS, NORMS, OPTIMIZERS, PLACEMENTS, SCHEDULES

# What it takes to show within 20 steps of a tiny net all that an entry does.
SHOWN: dict[str, dict[str, Any]] = {"mixln": {"depth": 4}, "pre-then-post": {"placement_options": "step=7"}}
# One entry in 8, pRMSNorm's own share, comes close to 0 now and then: dividing by it brings the last digits forward.
SHOWN |= {"prmsnorm": {"norm_options": "p=0.5"}}
# Biases that cancel before a BatchNorm have gradients of rounding alone; Adam with a tiny eps makes real steps of them.
SHOWN |= {"batchnorm": {"eps": 1e-5}}
NETS = [net for net in itertools.product(*map(shipped, (NORMS, PLACEMENTS, MIXERS))) if allowed(*net)]


@pytest.mark.parametrize(("norm", "placement", "mixer"), NETS, ids=["-".join(net) for net in NETS])
def test_every_net_leaf_by_leaf(norm: str, placement: str, mixer: str) -> None:
    settings = {"norm": norm, "placement": placement, "mixer": mixer} | SHOWN.get(placement, {}) | SHOWN.get(norm, {})
    assert_leaves_equal(init="torch", lr=1e-2, **settings)


RAMPED = [name for name in shipped(PLACEMENTS) if PLACEMENTS[name].ramped]
WITH_EPS = [name for name in shipped(NORMS) if "eps" in NORMS[name].Options.model_fields]
OPTIONS: list[dict[str, Any]] = [
    *({"eps": 1e-5, "norm": name, "norm_options": "eps=0.1"} for name in WITH_EPS),
    {"norm": "scalenorm", "norm_options": "eps=2.5"},
    {"norm": "prmsnorm", "norm_options": "p=0.3", "width": 17},
    {"norm": "batchnorm", "norm_options": "momentum=0.5", "eps": 1e-5},
    {"norm": "dyt", "norm_options": "alpha=0.3"},
    {"norm": "derf", "norm_options": "alpha=0.3"},
    {"norm": "bhyt", "norm_options": "kappa=0.8"},
    {"placement": "lns", "placement_options": "learnable=true"},
    {"placement": "mixln", "placement_options": "fraction=0.5"},
    {"placement": "layerscale", "placement_options": "start=0.7"},
    {"placement": "layerscale", "depth": 19},
    {"placement": "layerscale", "depth": 25},
    {"placement": "pre-then-post", "placement_options": "step=0"},
    {"init": "small_normal", "init_options": "std=0.3"},
    {"init": "xavier", "init_options": "gain=0.7"},
    {"init": "gpt2", "init_options": "std=0.3"},
    {"init": "gpt2", "placement": "subln"},
    {"init": "xavier", "placement": "deepnorm", "mixer": "linear"},
    *({"placement": name, "residual_ramp": 30} | SHOWN.get(name, {}) for name in RAMPED),
    {"placement": "admin", "residual_ramp": 4},
]


@pytest.mark.parametrize("settings", OPTIONS, ids=str)
def test_options_leaf_by_leaf(settings: dict[str, Any]) -> None:
    norm = "none" if settings.get("placement") == "rezero" else "layernorm"
    assert_leaves_equal(**({"norm": norm, "init": "torch", "lr": 1e-2} | settings))


def test_the_plain_net_has_every_entry() -> None:
    names = [(NORMS, net.NormName), (PLACEMENTS, net.PlacementName)]
    names += [(INITS, net.InitName), (MIXERS, net.MixerName)]
    for catalogue, known in names:
        assert set(shipped(catalogue)) == set(get_args(known)), catalogue.kind


# Each entry once, in the precision of most studies; in float64 the tests below lead lanes in company.
COMPANY: list[dict[str, Any]] = [
    *({"norm": name} | SHOWN.get(name, {}) for name in shipped(NORMS)),
    *({"placement": name} | SHOWN.get(name, {}) for name in shipped(PLACEMENTS)),
    *({"init": name, "placement": "deepnorm"} for name in shipped(INITS)),
    {"norm": "none", "placement": "post", "mixer": "linear", "init": "torch"},
    {"norm": "dyt", "placement": "post", "mixer": "linear", "init": "torch"},
    {"norm": "rmsnorm", "placement": "post", "mixer": "linear"},
]


@pytest.mark.parametrize("settings", COMPANY, ids=str)
def test_lanes_in_company(settings: dict[str, Any]) -> None:
    norm = "none" if settings.get("placement") == "rezero" else "layernorm"
    assert_package_equals_plain(**({"norm": norm} | settings), dtype="float32")


SETTINGS: dict[str, dict[str, Any]] = {
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


@pytest.mark.parametrize("schedule", shipped(SCHEDULES))
@pytest.mark.parametrize("optimizer", SETTINGS)
def test_every_optimizer(optimizer: str, schedule: str) -> None:
    assert_package_equals_plain(OPTIM_LANES, **SETTINGS[optimizer], schedule=schedule, dtype="float64", init="torch")


def test_every_optimizer_name_is_covered() -> None:
    assert {settings["optimizer"] for settings in SETTINGS.values()} == set(shipped(OPTIMIZERS))


@pytest.mark.parametrize("final_norm", ["auto", "layernorm", "same", "none"])
@pytest.mark.parametrize("norm", ["none", "dyt"])
@pytest.mark.parametrize("placement", ["post", "pre"])
def test_every_final_norm(placement: str, norm: str, final_norm: str) -> None:
    assert_leaves_equal(placement=placement, norm=norm, final_norm=final_norm)


@pytest.mark.parametrize(
    "settings",
    [
        {"loss_on": "last"},
        {"b": 0},
        {"b": 16, "loss_on": "last"},
        {"a": 0, "b": 1, "c": 0},
        {"task_seed": 5, "val_size": 3, "batch": 1},
        {"init_options": "std=0.5"},
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
    assert len(toy.run(net.Settings(**TINY, **settings, **lanes[1]))) == 3
    assert_package_equals_plain(lanes, **settings)


def test_script_shares_nothing_with_the_package() -> None:
    files = ["plain_toy", "plain_net", "plain_norms"]
    nodes = [node for name in files for node in ast.walk(ast.parse((SCRIPTS / f"{name}.py").read_text("utf-8")))]
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in modules} <= {*sys.stdlib_module_names, "numpy", "torch", *files}


STANDARD = dataclasses.asdict(net.Settings())
OTHER = {"optimizer": "sgd", "init": "torch", "schedule": "linear", "dtype": "float64", "loss_on": "last"}
OTHER |= {"norm": "none", "placement": "post", "mixer": "linear", "final_norm": "same"}
OTHER |= {"norm_options": "eps=0.5", "init_options": "std=0.5", "placement_options": "start=0.5", "residual_ramp": 9}


@pytest.mark.parametrize("name", STANDARD)
def test_every_setting_of_the_script_reaches_the_spec(name: str) -> None:
    standard = STANDARD[name]
    value = OTHER.get(name) or (standard // 2 or 1 if isinstance(standard, int) else standard / 2 or 0.5)
    needs = {"momentum": {"optimizer": "sgd"}, "placement_options": {"placement": "layerscale"}}
    plain = needs.get(name, {})  # what reads it
    assert spec_of(net.Settings(**plain, **{name: value})).id != spec_of(net.Settings(**plain)).id
