"""Norms: statistics over the last axis, one token at a time, every lane with parameters of its own.

Each takes the width first, then `lanes`, `eps` and `alpha`; a norm reads what it needs. Input and output are
(S, B, T, D) in the dtype of the residual stream. Statistics and the affine part are taken in float32 (float64 where the
net is in float64), whatever the precision of the matrix products.

To add a norm: write the class here (or in a module of your own that is named under `plugins:` in the config) and add it
to NORMS.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normlab.config.names import Catalogue
from normlab.model.layers import lanewise


class Norm(nn.Module):
    """Base of all norms: keeps `eps`, the dtype of the stream, and makes per-lane parameters."""

    default_eps = 0.0

    def __init__(self, width: int, lanes: int = 1, eps: float | None = None, alpha: float = 0.5) -> None:
        super().__init__()
        self.eps = self.default_eps if eps is None else eps
        self.start(width, lanes, alpha)

    def start(self, width: int, lanes: int, alpha: float) -> None:
        """Create the parameters, if any."""

    def normalise(self, x_SBTD: Tensor) -> Tensor:
        """The formula, in the dtype of the statistics."""
        return x_SBTD

    def forward(self, x_SBTD: Tensor) -> Tensor:
        wide = x_SBTD.to(torch.promote_types(x_SBTD.dtype, torch.float32))
        return self.normalise(wide).to(x_SBTD.dtype)


def _vector(lanes: int, width: int, value: float) -> nn.Parameter:
    return nn.Parameter(torch.full((lanes, 1, 1, width), value))


class Identity(Norm):
    """No norm: y = x."""

    def forward(self, x_SBTD: Tensor) -> Tensor:
        return x_SBTD


class LayerNorm(Norm):
    """Centre a token's vector, scale it to unit variance, then apply gain and bias.

        y = g (x - mean(x)) / sqrt(var(x) + eps) + b

    var is the biased variance over D; eps (1e-5) sits inside the root; g starts at 1, b at 0.
    Source: Ba, Kiros & Hinton 2016, arXiv:1607.06450, section 3.
    """

    default_eps = 1e-5

    def start(self, width: int, lanes: int, alpha: float) -> None:
        self.gain = _vector(lanes, width, 1.0)
        self.bias = _vector(lanes, width, 0.0)

    def normalise(self, x_SBTD: Tensor) -> Tensor:
        unit = nn.functional.layer_norm(x_SBTD, x_SBTD.shape[-1:], eps=self.eps)
        return (unit * self.gain).add_(self.bias)  # the gradient of addcmul makes one pass more


class RMSNorm(Norm):
    """Scale a token's vector to unit root mean square, then apply a gain; the mean stays.

        y = g x / sqrt(mean(x^2) + eps)

    eps (1e-6) sits inside the root, as in LLaMA and in torch (the authors' own code has 1e-8 outside it); g starts
    at 1.
    Source: Zhang & Sennrich 2019, arXiv:1910.07467, equation 4.
    """

    default_eps = 1e-6

    def start(self, width: int, lanes: int, alpha: float) -> None:
        self.gain = _vector(lanes, width, 1.0)

    def normalise(self, x_SBTD: Tensor) -> Tensor:
        scale_SBT1 = torch.rsqrt(x_SBTD.square().mean(-1, keepdim=True) + self.eps)
        return x_SBTD * scale_SBT1 * self.gain


class DyT(Norm):
    """Dynamic tanh: squash each entry by a learnt slope; no statistics at all.

        y = g tanh(alpha x) + b

    alpha is one scalar (starts at 0.5), g starts at 1, b at 0. Source: Zhu et al. 2025, arXiv:2503.10622, equation 1.
    """

    def start(self, width: int, lanes: int, alpha: float) -> None:
        self.alpha = _vector(lanes, 1, alpha)
        self.gain = _vector(lanes, width, 1.0)
        self.bias = _vector(lanes, width, 0.0)

    def normalise(self, x_SBTD: Tensor) -> Tensor:
        return torch.addcmul(self.bias, lanewise(torch.tanh, self.alpha * x_SBTD), self.gain)


NORMS = Catalogue("norms", {"none": Identity, "layernorm": LayerNorm, "rmsnorm": RMSNorm, "dyt": DyT})
