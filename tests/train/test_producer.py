"""The onset step is exact, and the producer is who made the first non-finite value, not who passed it on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from registered import only_here
from tiny_nets import tiny, train
from torch import Tensor, nn

from normlab.model import decoder as decoder_module
from normlab.model import placements
from normlab.train import optim, stack

# Adam moves a weight by at most its rate a step, and at first by just that: after four steps of 1e-3 the largest move
# is 4e-3. The saboteur wakes up at 3.5e-3, hence in step 5, and only in the lane with the larger rate.
WAKES_AT, ONSET = 3.5e-3, 5
CALM, DOOMED = ({"optim__lr": lr, "model__depth": 4, "train__steps": 9} for lr in (1e-5, 1e-3))


class PoisonGradient(torch.autograd.Function):
    """The identity, whose gradient is `value` in the lanes of the mask."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, value: float) -> Tensor:
        ctx.mask, ctx.value = mask, value
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return grads[0].masked_fill(ctx.mask, ctx.value), None, None


class Saboteur(nn.Module):
    """A feed-forward that turns non-finite, in its forward or in its gradient, once its weights have moved far."""

    def __init__(self, ffn: nn.Module, value: float, where: str) -> None:
        super().__init__()
        self.ffn, self.value, self.where = ffn, value, where
        self.start = ffn.inner.weight.detach().clone()

    def forward(self, x: Tensor) -> Tensor:
        moved = (self.ffn.inner.weight.detach() - self.start).abs().amax((1, 2))
        mask = (moved > WAKES_AT).view(-1, 1, 1, 1)
        y = self.ffn(x)
        return y.masked_fill(mask, self.value) if self.where == "forward" else PoisonGradient.apply(y, mask, self.value)


@pytest.fixture
def sabotage(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, str], None]:
    def install(value: float, where: str) -> None:
        def build(*arguments: Any) -> decoder_module.Decoder:
            model = decoder_module.build(*arguments)
            model.blocks[2].ffn = Saboteur(model.blocks[2].ffn, value, where)
            return model

        monkeypatch.setattr(stack, "build", build)

    return install


@pytest.mark.parametrize("placement", ["post", "pre"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_forward_of_a_middle_ffn(sabotage, value: float, placement: str) -> None:  # noqa: ANN001
    sabotage(value, "forward")
    calm, doomed = train(*[tiny(**lane, model__placement=placement) for lane in (CALM, DOOMED)])
    assert calm.run["onset"] is None
    size = 4 * 5 * 8  # batch x length x width, all of them
    counts = {"nan": size, "inf": 0} if value != value else {"nan": 0, "inf": size}
    expected = {"step": ONSET, "kind": "loss", "phase": "forward", "producer": "blocks.2.ffn", **counts}
    assert doomed.run["onset"] == expected


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_alone(sabotage, value: float) -> None:  # noqa: ANN001
    sabotage(value, "backward")
    calm, doomed = train(tiny(**CALM), tiny(**DOOMED))
    assert calm.run["onset"] is None
    onset = doomed.run["onset"]
    assert (onset["step"], onset["kind"], onset["phase"]) == (ONSET, "gradient", "backward")
    # The saboteur's last layer is the first to see the poison, but it got it; the one around it made it.
    assert onset["producer"] == "blocks.2.ffn"
    assert onset["nan"] + onset["inf"] > 0
    assert all(loss == loss for loss in doomed.curve["train_loss"][1:])  # the losses themselves stayed finite


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_the_optimisers_update(value: float) -> None:
    class Broken(optim.Adam):
        calls = 0

        def update(self, params_SP: Tensor, *rest: Tensor) -> None:
            super().update(params_SP, *rest)
            self.calls += 1
            if self.calls == 4:
                params_SP[1, -1] = value  # the last weight of the head

    with only_here():
        optim.OPTIMIZERS["broken"] = Broken
        calm, doomed = train(*[tiny(**lane, optim__name="broken") for lane in (CALM, DOOMED)])
    assert calm.run["onset"] is None
    counts = {"nan": int(value != value), "inf": int(value == value)}
    expected = {"step": 4, "kind": "parameter", "phase": "update", "producer": "optim.Broken at head.weight", **counts}
    assert doomed.run["onset"] == expected
    assert doomed.run["steps"] == 4


class Bomb(placements.Pre):
    """Pre-LN that turns non-finite in one step."""

    def forward(self, x_SBTD: Tensor, sublayer: Any, norms: Any) -> Tensor:
        return super().forward(x_SBTD, sublayer, norms).masked_fill(self.clock == ONSET, float("inf"))


def test_a_placement_that_depends_on_the_step_is_caught_in_its_step() -> None:
    with only_here():
        placements.PLACEMENTS["bomb"] = Bomb
        (record,) = train(tiny(model__placement="bomb", train__steps=9, train__eval_every=9))
    onset = record.run["onset"]
    # A placement without parameters is the equation of its block.
    assert (onset["step"], onset["phase"], onset["producer"]) == (ONSET, "forward", "blocks.0")


def test_a_real_overflow_names_the_product_that_made_it() -> None:
    (record,) = train(tiny(model__norm="none", optim__lr=1e30, model__final_norm="none"))
    onset = record.run["onset"]
    assert onset["kind"] == "loss" and onset["phase"] == "forward" and onset["step"] == 2
    assert onset["producer"].endswith((".linear", ".inner", ".outer"))
    assert onset["inf"] + onset["nan"] > 0


def test_a_loss_that_is_not_finite_at_the_start_is_an_onset_at_step_0() -> None:
    (record,) = train(
        tiny(
            model__norm="none", model__final_norm="none", model__init_options={"std": 1e10}, train__precision="float16"
        )
    )
    assert record.run["outcome"] == "nan" and record.run["steps"] == 0
    assert record.run["onset"]["step"] == 0 and record.run["onset"]["phase"] == "forward"
    assert record.run["onset"]["producer"] == "blocks.0.mixer.linear"
    assert record.curve["step"] == [0]
