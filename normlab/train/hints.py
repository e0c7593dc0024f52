"""Clauses on what a run cannot show by itself: a norm that lets nothing through, a loss scale that overflows alone."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from normlab.config.schema import RunSpec
from normlab.model.norms import Norm
from normlab.train.stack import LaneState, Stack
from normlab.train.subnormals import flushing

TOKENS, SIZES = 8, (1.0, 100.0)


def blocked_norms(stack: Stack) -> Iterator[str]:
    """A clause for each norm whose output is the same whatever comes in (what a LayerNorm of width 1 does), unless the
    entry itself tells."""
    model, seen = stack.specs[0].model, set()
    told = model.entries()["norm"] if model.entries()["norm"].unusual(model) else Norm
    for norm in (module for module in stack.model.modules() if isinstance(module, Norm)):
        kind = (type(norm), norm.width)
        if kind not in seen and (told is Norm or not isinstance(norm, told)) and passes_nothing(norm):
            yield f"{type(norm).__name__} of width {norm.width} passes nothing on: its output is the same for any input"
        seen.add(kind)


@flushing()
@torch.no_grad()
def passes_nothing(norm: Norm) -> bool:
    """Whether tokens that differ in direction and size all come out alike, with parameters of order one so that a gain
    that starts at 0 does not count."""
    random = torch.Generator().manual_seed(0)
    norm = type(norm)(norm.width, 1, norm.options, norm.site).double().eval()
    for parameter in norm.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=random, dtype=parameter.dtype))
    x_SBTD = torch.randn(1, len(SIZES), TOKENS, norm.width, generator=random, dtype=torch.float64)
    y_SBTD = norm(x_SBTD * torch.tensor(SIZES, dtype=torch.float64).view(-1, 1, 1))
    spread_D = y_SBTD.flatten(0, 2).std(0)
    return bool((spread_D <= 1e-9 * y_SBTD.abs().amax()).all())


@flushing()
def scale_overflow(spec: RunSpec, state: LaneState, tokens_BT: Tensor, device: str, step: int) -> list[str]:
    """A clause if a lane's gradient, not finite at `step`, is finite without the static loss scale."""
    scale = spec.train.loss_scale
    if scale == 1:
        return []
    stack = Stack([spec.model_copy(update={"train": spec.train.model_copy(update={"loss_scale": 1.0})})], device)
    stack.load(0, state)
    _, grad_SP = stack.gradients(tokens_BT.unsqueeze(0))
    fine = bool(grad_SP.isfinite().all())
    return [f"the loss scale {scale} spoilt the gradient of step {step}, which is finite without it"] if fine else []
