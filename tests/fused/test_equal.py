"""The fused step against torch's operations and against the plain script: gradients, training, evaluations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from nets import NETS, SIZES, apart, pair, spec_of, steps, tokens_of
from oracle import assert_leaves_equal, assert_package_equals_plain

from normlab.fused.build import Library
from normlab.train.tasks import TASKS, validation_set

# Of the largest entry over all leaves. float64: the largest seen are 1e-15 and 4e-15. float32: 6e-7 and 1e-5, which is
# what rounding does to either of them.
GRADIENTS = {"float64": 1e-13, "float32": 3e-6}
TRAINED = {"float64": 1e-12, "float32": 1e-3}
PRECISIONS = ("float64", "float32")
OPTIMIZERS: tuple[dict[str, Any], ...] = (
    {"name": "adam"},
    {"name": "adamw", "clip": 0.5, "weight_decay": 0.1},
    {"name": "adam", "weight_decay": 0.1, "warmup": 3},
    {"name": "adam", "eps": 1e-3, "beta1": 0.5, "beta2": 0.9},
    {"name": "sgd", "momentum": 0.9},
)
IDS = ["-".join(net) for net in NETS]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("net", NETS, ids=IDS)
def test_loss_and_gradient_of_every_leaf(net: tuple[str, str, str], precision: str, library: Library) -> None:
    for size in SIZES:
        specs = [spec_of(net, precision, size, seed) for seed in (0, 1)]
        plain, fused = pair(specs, library)
        for one, two in zip(plain.gradients(tokens_of(specs)), fused.gradients(tokens_of(specs)), strict=True):
            assert apart(one, two) < GRADIENTS[precision], size


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("net", NETS, ids=IDS)
def test_twenty_steps_of_a_stack_with_a_lane_that_ends(
    net: tuple[str, str, str], precision: str, library: Library
) -> None:
    for optim in OPTIMIZERS:
        lanes = [spec_of(net, precision, seed=seed, **{"lr": 1e-3 * (seed + 1), **optim}) for seed in range(3)]
        plain, fused = pair(lanes, library, spread=0.0)
        for one, two in zip(steps(plain, ruined=10), steps(fused, ruined=10), strict=True):
            assert torch.equal(torch.stack(one[2:]), torch.stack(two[2:]))  # what is finite
        assert plain.alive_S.tolist() == fused.alive_S.tolist() == [True, False, True]
        assert apart(plain.params_SP[[0, 2]], fused.params_SP[[0, 2]]) < TRAINED[precision]
        held_out_BT = torch.from_numpy(validation_set(TASKS["affine"](lanes[0].task)))
        for one, two in zip(plain.evaluate(held_out_BT), fused.evaluate(held_out_BT), strict=True):
            torch.testing.assert_close(one[..., [0, 2]], two[..., [0, 2]], rtol=TRAINED[precision], atol=0)


@pytest.mark.parametrize("net", NETS, ids=IDS)
def test_every_net_leaf_by_leaf_against_the_plain_script(net: tuple[str, str, str], library: Library) -> None:
    norm, placement, mixer = net
    assert_leaves_equal(library, norm=norm, placement=placement, mixer=mixer, init="torch", lr=1e-2)


OPTIONS: list[dict[str, Any]] = [
    {"eps": 1e-5, "norm_options": "eps=0.1"},
    {"eps": 1e-5, "norm": "rmsnorm", "norm_options": "eps=0.1", "placement": "post"},
    {"norm": "dyt", "norm_options": "alpha=0.3"},
    {"residual_ramp": 30},
    {"residual_ramp": 30, "placement": "post", "mixer": "linear"},
    *({"norm": "none", "final_norm": name} for name in ("layernorm", "none")),
    {"placement": "post", "final_norm": "layernorm", "norm": "rmsnorm"},
    {"loss_on": "last", "weight_decay": 0.1},
]


@pytest.mark.parametrize("settings", OPTIONS, ids=str)
def test_options_leaf_by_leaf_against_the_plain_script(settings: dict[str, Any], library: Library) -> None:
    assert_leaves_equal(library, **({"norm": "layernorm", "init": "torch", "lr": 1e-2} | settings))


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_whole_runs_against_the_plain_script(dtype: str, placement: str, library: Library) -> None:
    assert_package_equals_plain(library=library, dtype=dtype, placement=placement, width=17, init="torch")


@pytest.mark.parametrize("scale", [1e10, 1e15, 1e30])
@pytest.mark.parametrize("net", NETS, ids=IDS)
def test_what_overflows_overflows_alike(net: tuple[str, str, str], scale: float, library: Library) -> None:
    """Which losses and gradients are finite, at weights where float32 ends; and in float64 where it does not."""
    for precision in PRECISIONS:
        specs = [spec_of(net, precision, seed=seed) for seed in range(4)]
        plain, fused = pair(specs, library)
        for stack in (plain, fused):
            stack.params_SP.mul_(scale)
        (loss_S, grad_SP), (fused_S, fused_SP) = (stack.gradients(tokens_of(specs)) for stack in (plain, fused))
        assert loss_S.isfinite().tolist() == fused_S.isfinite().tolist()
        assert grad_SP.isfinite().all(1).tolist() == fused_SP.isfinite().all(1).tolist()


@pytest.mark.parametrize("scale", [1e-25, 1e-12, 1.0, 1e12, 1e25])
@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_norms_are_right_over_the_whole_range(norm: str, placement: str, scale: float, library: Library) -> None:
    """Streams whose squares vanish or overflow in float32: gradients are those of float64."""
    fine, coarse = ([spec_of((norm, placement, "mean"), precision)] for precision in PRECISIONS)
    wide, (_, fused) = pair(fine, library)[0], pair(coarse, library)
    fused.params_SP.copy_(wide.params_SP)
    wide.params_SP.copy_(fused.params_SP)
    for stack in (wide, fused):
        with torch.no_grad():
            stack.model.embedding.weight.mul_(scale)
    tokens_SBT = tokens_of(fine)
    assert apart(wide.gradients(tokens_SBT)[0], fused.gradients(tokens_SBT)[0].double()) < 1e-5
    assert apart(wide.gradients(tokens_SBT)[1], fused.gradients(tokens_SBT)[1].double()) < 1e-4


def test_the_largest_rms_keeps_its_digits(library: Library) -> None:
    specs = [spec_of(("none", "pre", "linear"), "float32")]
    for scale in (1e-30, 1e-20, 1.0, 1e20, 1e30):
        plain, fused = pair(specs, library)
        for stack in (plain, fused):
            with torch.no_grad():
                stack.model.embedding.weight.mul_(scale)
        rms = [stack.evaluate(tokens_of(specs)[0])[1][0] for stack in (plain, fused)]
        torch.testing.assert_close(*rms, rtol=1e-5, atol=0)
        assert 0 < float(rms[0]) < float("inf")
