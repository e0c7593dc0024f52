"""RMSNorm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlab.catalogue import Field
from normlab.model.norms.base import EpsOptions, Norm

if TYPE_CHECKING:
    from torch import Tensor, nn


class RMSNorm(Norm):
    """Scale a token's vector to unit root mean square, then apply a gain; the mean stays.

        y = g x / sqrt(mean(x^2) + eps)

    eps (1e-6) sits inside the root, as in LLaMA and in torch (the authors' own code has 1e-8 outside it); g starts
    at 1.
    """

    title = "RMSNorm"
    source = "Zhang & Sennrich 2019, arXiv:1910.07467, equation 4"
    reductions = 1
    # Forward: square, sum, scale, gain. Backward: gain 2, g * gain 1, mean with the unit vector 2, x 3.
    operations = (4, 8)

    class Options(EpsOptions):
        """eps sits inside the root."""

        eps: float = Field(1e-6, ge=0, le=1e30, description="added to the mean square, inside the root")

    def start(self, width: int) -> None:
        self.gain = self.vector(width, 1.0)

    def normalise(self, x_SBTD: Tensor) -> Tensor:
        scale_SBT1 = (x_SBTD.square().mean(-1, keepdim=True) + self.options.eps).rsqrt()
        return x_SBTD * scale_SBT1 * self.gain

    @staticmethod
    def native(width: int) -> nn.Module:
        from torch import nn

        return nn.RMSNorm(width, eps=1e-6)
