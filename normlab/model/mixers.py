"""Mixers: the sublayer that stands in for attention, without its norm. Shapes (S, B, T, D) in and out."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normlab.config.names import Catalogue
from normlab.model.layers import Linear


class MeanMixer(nn.Module):
    """Causal running mean over time, then a linear map: y_t = W mean(x_0 .. x_t) + b (the article's prose).

    The mean is a statistic: it is taken in float32 or wider, as one product with a lower triangular matrix.
    """

    def __init__(self, width: int, lanes: int = 1, low: torch.dtype | None = None) -> None:
        super().__init__()
        self.linear = Linear(width, width, lanes=lanes, low=low)

    def forward(self, x_SBTD: Tensor) -> Tensor:
        wide = x_SBTD.to(torch.promote_types(x_SBTD.dtype, torch.float32))
        mean_NTT = running_mean(wide.shape[-2], wide).expand(wide.shape[0] * wide.shape[1], -1, -1)
        mean_SBTD = torch.bmm(mean_NTT, wide.flatten(0, 1)).view(wide.shape)
        return self.linear(mean_SBTD.to(x_SBTD.dtype))


def running_mean(length: int, like: Tensor) -> Tensor:
    """(T, T) matrix whose row t averages positions 0 .. t; dtype and device of `like`."""
    count_T1 = torch.arange(1, length + 1, dtype=like.dtype, device=like.device).unsqueeze(1)
    return torch.ones(length, length, dtype=like.dtype, device=like.device).tril() / count_T1


class LinearMixer(nn.Module):
    """A linear map of each position by itself: y_t = W x_t + b (the article's listing). It mixes no tokens, so a rule
    that needs more than the last token cannot be learnt."""

    def __init__(self, width: int, lanes: int = 1, low: torch.dtype | None = None) -> None:
        super().__init__()
        self.linear = Linear(width, width, lanes=lanes, low=low)

    def forward(self, x_SBTD: Tensor) -> Tensor:
        return self.linear(x_SBTD)


MIXERS = Catalogue("mixers", {"mean": MeanMixer, "linear": LinearMixer})
