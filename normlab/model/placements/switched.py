"""Placements that change during training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from normlab import catalogue
from normlab.catalogue import Field
from normlab.model.placements.base import Placement

if TYPE_CHECKING:
    from torch import Tensor


class PreThenPost(Placement):
    """x = x + f(norm(x)) up to training step `step`, x = norm(x + f(x)) from the next one on, with the same weights.

    The final norm stays throughout. Both equations are computed and one is chosen by the clock on the device, so that
    nothing waits for it; f is called once."""

    title = "pre, then post"
    source = "the article's section 7.4"
    final_norm = True
    ramped = True
    without_norm = "pre and post are the same"

    class Options(catalogue.Options):
        step: int = Field(1_000, ge=0, le=10_000_000, description="last training step as pre; the next is post")

    def forward(self, x_SBTD: Tensor, sublayer: Any, norms: Sequence[Any]) -> Tensor:
        import torch

        (norm,) = norms
        post = self.clock > self.options.step
        before_SBTD = where_taken(~post, norm, x_SBTD)
        sum_SBTD = x_SBTD + self.ramp(sublayer(torch.where(post, x_SBTD, before_SBTD)))
        return torch.where(post, where_taken(post, norm, sum_SBTD), sum_SBTD)


def where_taken(taken: Tensor, norm: Any, x_SBTD: Tensor) -> Tensor:
    """norm(x) where `taken` holds. Elsewhere the norm sees calm numbers and its state stays as it was: an overflow of
    what nobody uses would come back as NaN in the gradient of its parameters (0 times infinity)."""
    import torch

    calm_BTD = torch.linspace(-1, 1, x_SBTD[0].numel(), dtype=x_SBTD.dtype, device=x_SBTD.device).view(x_SBTD.shape[1:])
    kept = [buffer.clone() for buffer in norm.buffers()]
    y_SBTD: Tensor = norm(torch.where(taken, x_SBTD, calm_BTD))
    with torch.no_grad():
        for buffer, value in zip(norm.buffers(), kept, strict=True):
            buffer.copy_(torch.where(taken, buffer, value))
    return y_SBTD
