"""LayerNorm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from normlab.model.norms.base import EpsOptions, Norm
from normlab.model.norms.whole_range import Unit, masked, normalised

if TYPE_CHECKING:
    from torch import Tensor, nn


class LayerNorm(Norm):
    """Centre a token's vector, scale it to unit variance, then apply gain and bias.

        y = g (x - mean(x)) / sqrt(var(x) + eps) + b

    var is the biased variance over D; eps (1e-5) sits inside the root; g starts at 1, b at 0. torch's own layer loses
    the digits of a vector whose mean is many times its deviation, and all of one beyond 1e19: see `whole_range`.
    """

    title = "LayerNorm"
    source = "Ba, Kiros & Hinton 2016, arXiv:1607.06450, section 3"
    reductions = 2
    # Forward: sum, centre, square, sum, scale, gain, bias. Backward: bias 1, gain 2, g * gain 1, its mean 1, its mean
    # with the unit vector 2, and x 4.
    operations = (7, 11)

    class Options(EpsOptions):
        """eps sits inside the root."""

    def start(self, width: int) -> None:
        self.gain, self.bias = self.vector(width, 1.0), self.vector(width, 0.0)

    def unit(self, x_SBTD: Tensor, elsewhere: Tensor | None) -> Unit:
        """The vector without gain and bias; torch has its statistics at hand."""
        import torch

        x_SBTD = masked(x_SBTD, elsewhere)
        unit, mean, scale = torch.native_layer_norm(x_SBTD, x_SBTD.shape[-1:], None, None, self.options.eps)
        return Unit(unit, scale, mean)

    def normalise(self, x_SBTD: Tensor) -> Tensor:
        return (normalised(self.unit, x_SBTD) * self.gain).add_(self.bias)  # addcmul's gradient makes one pass more

    @classmethod
    def unusual(cls, model: Any) -> str | None:
        return "of width 1 passes nothing on but its bias" if model.width == 1 else None

    @staticmethod
    def native(width: int) -> nn.Module:
        from torch import nn

        return nn.LayerNorm(width, eps=1e-5)
