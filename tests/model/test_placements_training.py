"""Placements in training: start values taken from a batch, the clock, lanes that are islands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from normlab.config.schema import RunSpec, Thresholds
from normlab.model.part import make
from normlab.model.placements import PLACEMENTS
from normlab.store import RunRecord, curve_csv, strict_json
from normlab.train.loop import train_stack
from normlab.train.stack import Stack
from normlab.train.tasks import TASKS, TrainingData

SIZES = {"depth": 4, "width": 8, "hidden": 16}
STEPS = 6
OPTIONS: dict[str, Any] = {"pre-then-post": {"step": 3}, "lns": {"learnable": True}}


def spec(seed: int = 0, lr: float = 1e-2, **model: Any) -> RunSpec:
    name = model.get("placement", "pre")
    model = {"norm": "none" if name == "rezero" else "layernorm", "placement_options": OPTIONS.get(name, {})} | model
    return RunSpec.model_validate(
        {
            "task": {"vocab": 11, "length": 5, "val_size": 20},
            "model": SIZES | model,
            "optim": {"lr": lr},
            "train": {"steps": STEPS, "batch": 4, "eval_every": 3},
            "seed": seed,
        }
    )


def batches(spec: RunSpec) -> Tensor:
    """The batches of all steps, (K, 1, B, T + 1)."""
    data = TrainingData(TASKS[spec.task.name](spec.task), spec)
    return torch.from_numpy(np.stack([data.next()[None] for _ in range(STEPS)]))


class Trained:
    """A stack of one lane that is led step by step."""

    def __init__(self, spec: RunSpec) -> None:
        self.stack, self.done = Stack([spec]), 0
        self.batches_KSBT = batches(spec)
        self.inputs = self.stack.inputs(1, self.batches_KSBT.numpy(), np.full((STEPS, 1), spec.optim.lr))
        self.stack.profile(self.batches_KSBT[0])

    def step(self, count: int = 1) -> float:
        """Train on; the last step's loss."""
        for _ in range(count):
            stats = self.stack.step(self.inputs.at(self.done))
            self.done += 1
        return float(stats.loss_S)


def written(record: RunRecord) -> str:
    return strict_json(record.run) + curve_csv(record.curve)


def train(*specs: RunSpec) -> list[RunRecord]:
    return train_stack(specs, thresholds=Thresholds())


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_lane_is_an_island_also_beside_one_that_blows_up(placement: str) -> None:
    wild = 1e20 if placement != "rezero" else 1e30
    specs = [spec(0, placement=placement), spec(1, lr=wild, placement=placement), spec(2, 3e-2, placement=placement)]
    alone = [written(train(one)[0]) for one in specs]
    together = train(*specs)
    assert [written(record) for record in together] == alone
    assert [written(record) for record in train(*reversed(specs))] == alone[::-1]
    assert together[0].run["outcome"] != "nan"
    if placement in ("pre", "rezero", "layerscale", "mixln"):
        assert together[1].run["outcome"] == "nan"


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_admins_weights_are_those_of_a_pass_by_hand(norm: str) -> None:
    led = Trained(spec(placement="admin", norm=norm))
    decoder = led.stack.model
    with torch.no_grad():
        x, variance = decoder.embedding(led.batches_KSBT[0][..., :-1]), None
        for block in decoder.blocks:
            for placement, f, norms in (
                (block.mixer_placement, block.mixer, block.mixer_norms),
                (block.ffn_placement, block.ffn, block.ffn_norms),
            ):
                expected = 1.0 if variance is None else variance**0.5
                weights = placement.weight.flatten().tolist()
                assert weights == pytest.approx([expected] * 8, rel=1e-6)
                kept, branch = expected * x, f(x)
                variance = float(np.var(kept.numpy().ravel()) + np.var(branch.numpy().ravel()))
                x = norms[0](kept + branch)
    assert variance != pytest.approx(1.0, rel=1e-3), "weights that stay at 1 prove nothing"


def test_admins_weights_are_the_lanes_own_and_trained() -> None:
    specs = [spec(seed, placement="admin") for seed in (0, 1, 2)]
    stack = Stack(specs)
    stack.profile(torch.cat([batches(one)[0] for one in specs]))
    last = stack.model.blocks[-1].ffn_placement.weight
    assert len({float(weight[0, 0, 0]) for weight in last.detach()}) == 3
    for lane, one in enumerate(specs):
        led = Trained(one)
        assert torch.equal(led.stack.params_SP[0], stack.params_SP[lane])
        before = led.stack.model.blocks[0].ffn_placement.weight.detach().clone()
        led.step()
        after = led.stack.model.blocks[0].ffn_placement.weight.detach()
        assert bool((after != before).all())  # a vector: each entry by its own gradient


def test_a_profile_leaves_running_statistics_and_other_placements_alone() -> None:
    admin = Trained(spec(placement="admin", norm="batchnorm")).stack
    fresh = Stack([spec(placement="admin", norm="batchnorm")])
    assert admin.buffers and all(torch.equal(a, b) for a, b in zip(admin.buffers, fresh.buffers, strict=True))
    assert not torch.equal(admin.params_SP, fresh.params_SP)
    assert torch.equal(
        Trained(spec(placement="deepnorm")).stack.params_SP, Stack([spec(placement="deepnorm")]).params_SP
    )


def test_a_ramp_has_no_part_in_admins_profile() -> None:
    plain, ramped = (Trained(spec(placement="admin", residual_ramp={"warmup": w})) for w in (None, 50))
    assert torch.equal(plain.stack.params_SP, ramped.stack.params_SP)


@pytest.mark.parametrize(("norm", "rtol"), [("layernorm", 0.0), ("batchnorm", 1e-5)])
def test_the_switch_comes_right_after_its_step(norm: str, rtol: float) -> None:
    """Pre in steps 1 to 3 and post from the fourth on: to the bit, but for BatchNorm, whose two uses of its input have
    their gradients added up in another order. Its running statistics are those of the branch that was taken."""
    pre, switch = (Trained(spec(placement=name, norm=norm)) for name in ("pre", "pre-then-post"))
    post = Trained(spec(placement="post", norm=norm, final_norm="layernorm"))
    validation = batches(spec(seed=9))[0, 0]

    def assert_same(one: Trained, other: Trained) -> None:
        states = [[led.stack.params_SP, *led.stack.buffers] for led in (one, other)]
        for a, b in zip(*states, strict=True):
            torch.testing.assert_close(a, b, rtol=rtol, atol=rtol)
        losses = [float(led.stack.evaluate(validation)[0]) for led in (one, other)]
        assert losses[0] == pytest.approx(losses[1], rel=rtol, abs=0)

    assert pre.step(3) == pytest.approx(switch.step(3), rel=rtol, abs=0)
    assert_same(pre, switch)
    post.done = 3
    post.stack.load(0, switch.stack.lane(0))
    fourth = switch.step()
    assert fourth == pytest.approx(post.step(), rel=rtol, abs=0) and fourth != pytest.approx(pre.step(), rel=1e-4)
    post.stack.params_SP.copy_(switch.stack.params_SP)  # the moments of Adam were others
    assert_same(post, switch)


class Direction(nn.Module):
    """x / |x|: NaN at 0, and so is its gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * x / x.square().sum(-1, keepdim=True).sqrt()


@pytest.mark.parametrize("clock", [3, 4])
def test_no_nan_comes_from_the_branch_that_is_not_taken(clock: int) -> None:
    """Before the switch the sum is 0, after it the input is: the norm of that is NaN, and nobody asked for it."""
    placement = make(PLACEMENTS, "pre-then-post", 2, options=PLACEMENTS["pre-then-post"].Options(step=3))
    placement.clock, norm = torch.tensor([float(clock)]), Direction()
    x = torch.full((1, 1, 2, 2), 0.5**0.5 if clock == 3 else 0.0, requires_grad=True)
    calls = []

    def f(v: Tensor) -> Tensor:
        calls.append(v)
        return -v if clock == 3 else v + torch.tensor([3.0, 4.0])

    y = placement(x, f, [norm])
    y.sum().backward()
    assert len(calls) == 1
    torch.testing.assert_close(y[0, 0, 0].tolist(), [0.0, 0.0] if clock == 3 else [0.6, 0.8])
    assert x.grad is not None and bool(x.grad.isfinite().all())
    assert norm.gain.grad is not None and bool(norm.gain.grad.isfinite().all())


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_ramp_of_one_step_changes_nothing_and_a_long_one_does(placement: str) -> None:
    plain, short, long = (Trained(spec(placement=placement, residual_ramp={"warmup": w})) for w in (None, 1, 50))
    losses = [led.step(2) for led in (plain, short, long)]
    assert losses[0] == losses[1] != losses[2]
    assert torch.equal(plain.stack.params_SP, short.stack.params_SP)


def test_before_the_first_step_a_ramp_shuts_every_branch() -> None:
    stack = Stack([spec(residual_ramp={"warmup": 3})])
    seen: list[Tensor] = []
    stack.model(batches(spec())[0][..., :-1], tap=lambda layer, x: seen.append(x))
    assert len(seen) == 5 and all(torch.equal(x, seen[0]) for x in seen)
