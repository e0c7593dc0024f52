"""LayerNorm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlab.model.norms.base import EpsOptions, Norm

if TYPE_CHECKING:
    from torch import Tensor, nn


class LayerNorm(Norm):
    """Centre a token's vector, scale it to unit variance, then apply gain and bias.

        y = g (x - mean(x)) / sqrt(var(x) + eps) + b

    var is the biased variance over D; eps (1e-5) sits inside the root; g starts at 1, b at 0.
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

    def normalise(self, x_SBTD: Tensor) -> Tensor:
        from torch.nn.functional import layer_norm

        unit = layer_norm(x_SBTD, x_SBTD.shape[-1:], eps=self.options.eps)
        return (unit * self.gain).add_(self.bias)  # the gradient of addcmul makes one pass more

    @staticmethod
    def native(width: int) -> nn.Module:
        from torch import nn

        return nn.LayerNorm(width, eps=1e-5)
