"""Mixers: the sublayer that stands in for attention, without its norm. Shapes (S, B, T, D) in and out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from normlab.catalogue import MIXERS, Field, Options
from normlab.model.part import Part, Site

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["MIXERS", "Field", "LinearMixer", "MeanMixer", "Mixer", "Options"]


class Mixer(Part):
    """Base of all mixers. `make_linear` makes its matrices, and sees to lanes, precision and start values.

    `inner_point` says whether `forward(x, inner)` applies a norm `inner` (if given) to the input of the matrix that
    writes to the stream; that input has `self.inner_width` entries.
    """

    inner_point: ClassVar[bool] = False

    def __init__(
        self,
        width: int,
        lanes: int = 1,
        options: Options | None = None,
        site: Site | None = None,
        low: torch.dtype | None = None,
    ) -> None:
        self.low, self.inner_width = low, width
        super().__init__(width, lanes, options, site)

    def make_linear(self, fan_in: int, fan_out: int, role: str, bias: bool = True) -> Any:
        """A linear map, its matrix drawn by the init and scaled by the placement according to its role: value, output,
        q, k, or mix for the only matrix of a mixer."""
        from normlab.model.layers import Linear

        return Linear(fan_in, fan_out, bias, lanes=self.lanes, low=self.low, role=role)

    def forward(self, x_SBTD: Tensor, inner: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        raise AssertionError("a mixer defines forward")


class MeanMixer(Mixer):
    """Causal running mean over time, then a linear map: y_t = W mean(x_0 .. x_t) + b (the article's prose).

    The mean is a statistic: it is taken in float32 or wider, as one product with a lower triangular matrix.
    """

    title = "running mean"
    inner_point = True

    def start(self, width: int) -> None:
        self.linear = self.make_linear(width, width, "mix")

    def forward(self, x_SBTD: Tensor, inner: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        import torch

        wide = x_SBTD.to(torch.promote_types(x_SBTD.dtype, torch.float32))
        mean_NTT = running_mean(wide.shape[-2], wide).expand(wide.shape[0] * wide.shape[1], -1, -1)
        mean_SBTD = torch.bmm(mean_NTT, wide.flatten(0, 1)).view(wide.shape).to(x_SBTD.dtype)
        return self.linear(mean_SBTD if inner is None else inner(mean_SBTD))


def running_mean(length: int, like: Tensor) -> Tensor:
    """(T, T) matrix whose row t averages positions 0 .. t; dtype and device of `like`."""
    import torch

    count_T1 = torch.arange(1, length + 1, dtype=like.dtype, device=like.device).unsqueeze(1)
    return torch.ones(length, length, dtype=like.dtype, device=like.device).tril() / count_T1


class LinearMixer(Mixer):
    """A linear map of each position by itself: y_t = W x_t + b (the article's listing). It mixes no tokens, so a rule
    that needs more than the last token cannot be learnt."""

    title = "linear map"
    inner_point = True

    def start(self, width: int) -> None:
        self.linear = self.make_linear(width, width, "mix")

    def forward(self, x_SBTD: Tensor, inner: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        return self.linear(x_SBTD if inner is None else inner(x_SBTD))
