"""Precision: products in the low dtype, the rest in float32; a switch puts the stream into half too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiny_nets import tiny, train

from normlab.model import layers
from normlab.model.decoder import build
from normlab.train.stack import Stack


def watched(function: Callable[..., torch.Tensor], seen: dict[str, torch.dtype]) -> Callable[..., torch.Tensor]:
    def inner(*arguments: Any) -> torch.Tensor:
        result = function(*arguments)
        seen["product"] = result.dtype
        return result

    return inner


def dtypes(**fields: object) -> dict[str, torch.dtype]:
    stack = Stack([tiny(**fields)])
    seen: dict[str, torch.dtype] = {}
    block = stack.model.blocks[0]
    block.register_forward_hook(lambda m, i, o: seen.update(stream=o.dtype))
    block.mixer_norms[0].register_forward_hook(lambda m, i, o: seen.update(norm=o.dtype))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("product", "low_product"):
            patch.setattr(layers, name, watched(getattr(layers, name), seen))
        loss_S, grad_SP = stack.gradients(torch.zeros(1, 2, 6, dtype=torch.int64))
    return {**seen, "loss": loss_S.dtype, "gradient": grad_SP.dtype, "parameters": stack.params_SP.dtype}


@pytest.mark.parametrize("low", ["bfloat16", "float16"])
def test_low_precision_reaches_the_products_alone(low: str) -> None:
    seen = dtypes(train__precision=low)
    assert seen.pop("product") == getattr(torch, low)
    assert set(seen.values()) == {torch.float32}
    seen = dtypes(train__precision=low, train__low_stream=True)
    assert seen["stream"] == seen["norm"] == seen["product"] == getattr(torch, low)
    assert seen["loss"] == seen["gradient"] == seen["parameters"] == torch.float32


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_full_precision_is_one_dtype(precision: str) -> None:
    assert set(dtypes(train__precision=precision).values()) == {getattr(torch, precision)}


def test_float64_starts_from_the_float32_draws() -> None:
    low, high = (build([tiny(train__precision=precision)]) for precision in ("float32", "float64"))
    for a, b in zip(low.parameters(), high.parameters(), strict=True):
        assert b.dtype == torch.float64 and torch.equal(a.double(), b)


def test_all_precisions_train_to_about_the_same_loss() -> None:
    fields = {"train__steps": 20, "train__eval_every": 10, "train__batch": 16}
    losses = [train(tiny(**fields, train__precision=p))[0].run["loss"]["final"] for p in ("float64", "float32")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for low in ("bfloat16", "float16"):
        # Eight and eleven bits of significand in the products: the loss is good to a few parts in a hundred.
        final = train(tiny(**fields, train__precision=low))[0].run["loss"]["final"]
        assert final == pytest.approx(losses[0], rel=0.03) and final != losses[0]


def test_loss_scale_cancels_but_for_rounding() -> None:
    plain, scaled = (
        train(tiny(train__precision="float16", train__loss_scale=scale))[0].run["loss"]["final"] for scale in (1.0, 8.0)
    )
    assert plain == pytest.approx(scaled, rel=0.01)


def test_float16_on_the_cpu_rounds_operands_and_result_and_sums_wide() -> None:
    # 2048 + 1 is lost in float16 sums; with wide sums 4096 ones give 4096, rounded once at the end.
    ones = torch.ones(1, 1, 4096)
    y = layers.low_product(ones, ones.transpose(1, 2), None, torch.float16)
    assert y.dtype == torch.float16 and y.item() == 4096
    tiny_step = torch.full((1, 1, 1), 1 + 2**-12)  # not a float16: the operand is rounded to 1
    assert layers.low_product(tiny_step, torch.ones(1, 1, 1), None, torch.float16).item() == 1
    assert layers.low_product(ones * 300, ones.transpose(1, 2), None, torch.float16).isinf().all()


def test_float16_overflow_is_seen_at_its_step() -> None:
    (record,) = train(tiny(train__precision="float16", train__loss_scale=1e9))
    assert record.run["onset"]["kind"] == "gradient" and record.run["onset"]["step"] == 1
    assert record.run["onset"]["phase"] == "backward"


def test_a_scale_whose_removal_overflows_is_named() -> None:
    (record,) = train(tiny(train__precision="bfloat16", train__loss_scale=1e-300))
    assert record.run["onset"]["producer"] == "loss_scale" and record.run["onset"]["kind"] == "gradient"
