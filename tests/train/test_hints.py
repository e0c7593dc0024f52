"""What a number does not say: a norm that lets nothing through, a loss scale that overflows by itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from registered import only_here
from tiny_nets import tiny, train
from torch import Tensor

from normlab.catalogue import NORMS
from normlab.model.norms import Norm
from normlab.model.part import make
from normlab.train.hints import blocked_norms, passes_nothing
from normlab.train.stack import Stack


class Blind(Norm):
    """Forgets its input where the width is odd, behind a gain that starts at zero."""

    def start(self, width: int) -> None:
        self.gain = self.vector(width, 0.0)

    def normalise(self, x_SBTD: Tensor) -> Tensor:
        return self.gain * (x_SBTD * 0 + 3 if self.width % 2 else x_SBTD)


def notes(**fields: Any) -> list[str]:
    return train(tiny(**fields))[0].run["notes"]


@pytest.mark.parametrize("norm", [name for name in NORMS if name != "none"])
def test_no_norm_of_width_two_is_blind(norm: str) -> None:
    assert not passes_nothing(make(NORMS, norm, 2))


def test_a_layernorm_of_width_one_is() -> None:
    assert passes_nothing(make(NORMS, "layernorm", 1)) and not passes_nothing(make(NORMS, "rmsnorm", 1))
    said = notes(model__width=1)
    assert len([note for note in said if "passes nothing on" in note]) == 1  # the entry tells it, or else the probe
    # The final norm is one too, whatever the blocks have.
    said = notes(model__width=1, model__norm="dyt")
    assert "LayerNorm of width 1 passes nothing on: its output is the same for any input" in said


def test_a_users_norm_is_asked_too_and_its_start_values_do_not_count() -> None:
    with only_here():
        NORMS["blind"] = Blind
        assert notes(model__norm="blind") == []
        (said,) = notes(model__norm="blind", model__width=9)
        assert said == "Blind of width 9 passes nothing on: its output is the same for any input"
        # The second norm of SubLN is as wide as the feed-forward's inside, which is 13 here.
        inner = Stack([tiny(model__norm="blind", model__placement="subln", model__mixer="linear", model__hidden=13)])
        assert [said.split(" passes")[0] for said in blocked_norms(inner)] == ["Blind of width 13"]


def test_asking_leaves_the_net_and_the_random_numbers_alone() -> None:
    net = Stack([tiny(model__norm="batchnorm")])
    before, random = [t.clone() for t in [net.params_SP, *net.buffers]], torch.get_rng_state()
    assert list(blocked_norms(net)) == []
    after = [net.params_SP, *net.buffers]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert torch.equal(torch.get_rng_state(), random)


def test_a_loss_scale_that_overflows_by_itself_is_named() -> None:
    (record,) = train(tiny(train__precision="float16", train__loss_scale=16777216.0))
    assert record.run["onset"]["kind"] == "gradient" and record.run["onset"]["step"] == 1
    assert record.run["notes"] == [
        "the loss scale 16777216.0 spoilt the gradient of step 1, which is finite without it"
    ]
    assert notes(train__precision="float16", train__loss_scale=128.0) == []


def test_a_gradient_that_overflows_anyhow_is_not_the_scales_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    class Steep(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * float("inf")

    losses = Stack.losses
    monkeypatch.setattr(Stack, "losses", lambda self, *arguments: Steep.apply(losses(self, *arguments)))
    (record,) = train(tiny(train__precision="float16", train__loss_scale=4.0))
    assert record.run["onset"]["kind"] == "gradient" and record.run["notes"] == []
