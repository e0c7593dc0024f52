"""Statistics, gradient norm and clipping are right over the whole range of float32; what overflows all the same is
said in the record."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from tiny_nets import tiny, train
from torch import Tensor

from normlab.train import loop, program, stack
from normlab.train.gradient import clip_, gradient_norms
from normlab.train.log import Log
from normlab.train.optim import clip_factors
from normlab.train.stack import Stack, largest_rms, largest_rms_scaled
from normlab.train.subnormals import flushing

BARE = {"model__norm": "none", "model__final_norm": "none"}
SCALES = [1e-36, 1e-30, 1e-25, 1e-19, 1e-10, 1.0, 1e10, 1e19, 1e23, 1e30, 1e37]
NORM, MOMENT = "gradient norm overflowed at step ", "the optimizer's second moment overflowed at step "


def bits(values: Any) -> list[str]:
    return [str(value) for value in values]


@pytest.mark.parametrize("scale", SCALES)
def test_act_rms_of_a_finite_stream_is_finite_and_right(scale: float) -> None:
    net = Stack([tiny(**BARE), tiny(**BARE, seed=1)])
    with torch.no_grad():
        net.model.embedding.weight[1].div_(0.02).mul_(scale)
    tokens = torch.arange(66).view(11, 6) % 11
    _, rms_LS = net.evaluate(tokens)
    table_VD = net.model.embedding.weight[1].detach().double()
    assert float(rms_LS[0, 1]) == pytest.approx(float(table_VD.square().mean(1).sqrt().max()), rel=1e-6)
    assert bool(rms_LS.isfinite().all()) and bool((rms_LS > 0).all())
    # A neighbour that is looked at twice changes no bit.
    assert torch.equal(Stack([tiny(**BARE)]).evaluate(tokens)[1][:, 0], rms_LS[:, 0])


def test_ordinary_streams_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(x_SBTD: Tensor) -> Tensor:
        raise AssertionError("looked at twice")

    monkeypatch.setattr(stack, "largest_rms_scaled", never)
    train(tiny(), tiny(seed=1, model__norm="layernorm"))
    # Nor is a lane that has ended a reason to: it is only carried along.
    net = Stack([tiny(**BARE), tiny(**BARE)])
    with torch.no_grad():
        net.model.embedding.weight[1] *= 1e25
    with pytest.raises(AssertionError, match="twice"):
        net.evaluate(torch.ones(2, 6, dtype=torch.int64))
    net.alive_S[1] = False
    net.evaluate(torch.ones(2, 6, dtype=torch.int64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scaling_by_a_power_of_two_changes_no_digit(dtype: torch.dtype) -> None:
    x_SBTD = torch.randn(3, 2, 5, 16, generator=torch.Generator().manual_seed(0), dtype=dtype)
    x_SBTD *= torch.tensor([1e-9, 1.0, 1e12], dtype=dtype).view(-1, 1, 1, 1)
    assert torch.equal(largest_rms(x_SBTD), largest_rms_scaled(x_SBTD))
    for odd in (0.0, math.inf, math.nan):
        assert bits(largest_rms_scaled(torch.full((1, 1, 2, 4), odd, dtype=dtype)).tolist()) == bits([odd])
    huge = torch.full((1, 1, 1, 4), 0.9 * torch.finfo(dtype).max, dtype=dtype)
    assert largest_rms_scaled(huge).item() == pytest.approx(0.9 * torch.finfo(dtype).max, rel=1e-6)


def gradients() -> Tensor:
    """A row for each scale."""
    unit = torch.randn(len(SCALES), 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (unit * torch.tensor(SCALES, dtype=torch.float64).unsqueeze(1)).float()


@pytest.mark.parametrize("looks", [True, False])
def test_the_norm_of_any_gradient_is_right_and_an_ordinary_one_keeps_its_bits(looks: bool) -> None:
    grad_SP = gradients()
    plain_S, wide_S = torch.linalg.vector_norm(grad_SP, dim=1), torch.linalg.vector_norm(grad_SP.double(), dim=1)
    assert bool(plain_S.isinf().any()) and bool((plain_S == 0).any())  # what the plain norm makes of them
    found = gradient_norms(grad_SP, looks)
    torch.testing.assert_close(found.norm_S.double(), wide_S, rtol=1e-6, atol=0)
    ordinary = [i for i, scale in enumerate(SCALES) if 1e-10 <= scale <= 1e10]
    assert torch.equal(found.norm_S[ordinary], plain_S[ordinary]) and bool(found.fine_S.all())
    for lane in range(len(SCALES)):  # alone as in company
        assert torch.equal(gradient_norms(grad_SP[lane : lane + 1], looks).norm_S, found.norm_S[lane : lane + 1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("looks", [True, False])
def test_a_gradient_that_is_not_finite_is_seen(looks: bool, dtype: torch.dtype) -> None:
    grad_SP = torch.ones(5, 50, dtype=dtype)
    grad_SP[1, 3], grad_SP[2, 4], grad_SP[3, 5] = math.inf, math.nan, torch.finfo(dtype).max
    assert gradient_norms(grad_SP, looks).fine_S.tolist() == [True, False, False, True, True]


@pytest.mark.parametrize("looks", [True, False])
def test_a_huge_gradient_is_clipped_to_the_limit_and_not_to_nothing(looks: bool) -> None:
    grad_SP = torch.cat([gradients(), torch.full((1, 50), 3e38), gradients()[5:6], torch.full((1, 50), math.nan)])
    before_SP = grad_SP.double()
    limit_S = torch.full((len(grad_SP),), 0.5)
    limit_S[-2] = math.inf
    norms = gradient_norms(grad_SP, looks)
    assert norms.norm_S[-3] == math.inf and bool(norms.fine_S[-3])  # a norm that no float32 holds
    # Steps flush subnormal numbers where they may look, and a factor may be one.
    if looks:
        with flushing():
            clip_(grad_SP, norms, limit_S, looks)
    else:
        clip_(grad_SP, norms, limit_S, looks)
    length_S = torch.linalg.vector_norm(before_SP, dim=1)
    wanted_SP = before_SP * torch.where(length_S > limit_S.double(), limit_S.double() / length_S, 1.0).unsqueeze(1)
    torch.testing.assert_close(grad_SP[:-1].double(), wanted_SP[:-1], rtol=1e-5, atol=1e-37)
    ordinary = SCALES.index(1.0)
    factor = clip_factors(torch.linalg.vector_norm(gradients(), dim=1), limit_S[: len(SCALES)])[ordinary]
    assert torch.equal(grad_SP[ordinary], gradients()[ordinary] * factor)


@pytest.mark.parametrize("looks", [True, False])
def test_a_net_whose_gradient_norm_overflows_is_clipped_and_goes_on(looks: bool) -> None:
    fields = {**BARE, "model__init_options": {"std": 3e3}, "optim__name": "sgd", "optim__lr": 1e3}
    net = Stack([tiny(**fields, optim__clip=1.0)], looks=looks)
    before = net.params_SP.double()
    stats = net.step(net.inputs(1, np.arange(24).reshape(1, 1, 4, 6) % 11, np.full((1, 1), 1e3)).at(0))
    assert bool(net.alive_S.all()) and 1e19 < float(stats.norm_S) < math.inf
    # The clipped gradient has length 1, so the step has that of the rate.
    assert float((net.params_SP.double() - before).norm()) == pytest.approx(1e3, rel=0.01)


@pytest.mark.parametrize("looks", [True, False])
@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_a_second_moment_that_overflows_is_said(monkeypatch, looks: bool, name: str) -> None:  # noqa: ANN001
    if not looks:
        monkeypatch.setattr(loop, "Stack", lambda specs, device, library: Stack(specs, device, looks=False))
        monkeypatch.setattr(program.Captured, "chunk", 4)
        monkeypatch.setattr(loop, "program_for", lambda stack: program.Captured(stack, lambda call, state: call))
    wild = tiny(**BARE, optim__name=name, model__init_options={"std": 3e3}, optim__lr=1e-3)
    calm = tiny(**BARE, optim__name=name, model__init_options={"std": 3e3}, optim__lr=1e-3, optim__clip=1.0)
    overflowing, clipped = train(wild, calm)
    assert overflowing.run["onset"] is None and clipped.run["notes"] == []
    (note,) = overflowing.run["notes"]
    assert note.startswith(f"{MOMENT}1 although every gradient was finite")


def test_weight_decay_too_can_make_it_overflow() -> None:
    fields = {**BARE, "optim__weight_decay": 1.0, "train__steps": 3, "optim__clip": 1.0}
    net = Stack([tiny(**fields)])
    with torch.no_grad():
        net.model.embedding.weight[0, 0, 0] = 1e25
    tokens = np.arange(1, 25).reshape(1, 1, 4, 6) % 10 + 1  # without token 0, so the forward pass is calm
    stats = net.step(net.inputs(1, tokens, np.full((1, 1), 1e-3)).at(0))
    assert float(stats.norm_S) < 10 and stats.moment_fine_S.tolist() == [False]


@pytest.mark.parametrize("looks", [True, False])
def test_a_gradient_norm_that_no_float32_holds_is_said(monkeypatch, looks: bool) -> None:  # noqa: ANN001
    class Steep(Stack):
        calls = 0

        def gradients(self, tokens_SBT: Tensor) -> tuple[Tensor, Tensor]:
            loss_S, grad_SP = super().gradients(tokens_SBT)
            self.calls += 1
            if self.calls >= 3:
                grad_SP[0].fill_(3e38)
            return loss_S, grad_SP

    monkeypatch.setattr(loop, "Stack", lambda specs, device, library: Steep(specs, device, looks=looks))
    monkeypatch.setattr(loop, "program_for", program.Eager)
    fields = {"optim__name": "sgd", "optim__clip": 1.0}
    steep, calm = train(tiny(**fields), tiny(**fields, seed=1))
    assert steep.run["notes"] == [f"{NORM}3 although every gradient was finite"]
    assert steep.run["onset"] is None and calm.run["notes"] == []
    assert math.isinf(steep.curve["grad_norm"][3]) and math.isfinite(steep.curve["grad_norm"][2])


def test_what_is_not_finite_itself_is_no_overflow_and_each_thing_is_said_once() -> None:
    log = Log(2)
    fine_K4S = np.ones((3, 4, 2), dtype=bool)
    fine_K4S[2, 1, 1] = False  # lane 1 ends with a gradient that is not finite
    norm_KS = np.array([[1.0, 1.0], [np.inf, 1.0], [np.inf, np.inf]])
    log.add_steps(11, np.zeros((3, 2)), norm_KS, fine_K4S)
    log.add_steps(14, np.zeros((3, 2)), norm_KS, np.ones((3, 4, 2), dtype=bool))
    assert log.lanes[0].notes == [f"{NORM}12 although every gradient was finite"]
    assert log.lanes[1].notes == [] and log.lanes[1].onset == {"step": 13, "kind": "gradient"}


def test_a_calm_run_has_no_notes() -> None:
    assert train(tiny())[0].run["notes"] == []
