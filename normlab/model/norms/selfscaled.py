"""RMSNorm with a tanh in it: of the gain, or of the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from normlab.catalogue import Field
from normlab.model.norms.base import EpsOptions, bounded
from normlab.model.norms.rmsnorm import RMSNorm
from normlab.model.norms.whole_range import normalised

if TYPE_CHECKING:
    from torch import Tensor, nn


class SeeDNorm(RMSNorm):
    """RMSNorm whose gain depends on the vector itself.

        y = (tanh(x . beta) alpha + gamma) x / sqrt(mean(x^2) + eps)

    x . beta is one number a token; eps (1e-5) sits inside the root; gamma and alpha start at 1, beta at 0, so that it
    starts as RMSNorm does. Where |x . beta| passes 3e38 the product, not the norm, is what overflows.
    """

    title = "SeeDNorm"
    source = "Cai et al. 2025, arXiv:2510.22777; formula from a third party's code and a review, not from the authors'"
    reductions = 2
    # Forward: square, sum, scale; times beta, sum; alpha, gamma, product. Backward: product with the unit vector 1,
    # gamma 1, alpha 2, sum with alpha 2, beta 2, dy * gain 1, mean with the unit vector 2, x 3, and x by beta 2.
    operations = (8, 16)

    class Options(EpsOptions):
        """eps sits inside the root."""

    def start(self, width: int) -> None:
        self.gamma, self.alpha = self.vector(width, 1.0), self.vector(width, 1.0)
        self.beta = self.vector(width, 0.0)

    def normalise(self, x_SBTD: Tensor) -> Tensor:
        import torch

        turn_SBT1 = self.each(torch.tanh, (x_SBTD * self.beta).sum(-1, keepdim=True))
        return (turn_SBT1 * self.alpha + self.gamma) * normalised(self.unit, x_SBTD)

    @staticmethod
    def native(width: int) -> nn.Module | None:
        return None


class BHyT(RMSNorm):
    """Bounded hyperbolic tanh: scale a vector to unit root mean square, then squash each entry by a learnt slope.

        y = g tanh(lambda / kappa x / sqrt(mean(x^2) + eps))

    eps (1e-6, as in RMSNorm) sits inside the root; g starts at 1; kappa (10) is fixed; lambda is one scalar, from 2
    before a mixer and from 1 elsewhere. The final norm is RMSNorm.
    """

    title = "BHyT"
    source = "arXiv:2601.09719"
    final = "rmsnorm"
    # Forward: square, sum, scale, slope, tanh, gain. Backward: gain 2, g * gain 1, through tanh 3, slope 2, unit 1,
    # mean with the unit vector 2, x 3.
    operations = (6, 14)

    class Options(RMSNorm.Options):
        """eps sits inside the root."""

        kappa: float = Field(10.0, gt=0, le=1e6, description="what lambda is divided by")

    def start(self, width: int) -> None:
        super().start(width)
        self.slope = self.vector(1, 2.0 if self.site.sublayer == "mixer" else 1.0)

    def normalise(self, x_SBTD: Tensor) -> Tensor:
        import torch

        steep_SBTD = self.slope / self.options.kappa * normalised(self.unit, x_SBTD)
        return self.each(torch.tanh, steep_SBTD) * self.gain

    @classmethod
    def unusual(cls, model: Any) -> str | None:
        return bounded(model) or super().unusual(model)

    @staticmethod
    def native(width: int) -> nn.Module | None:
        return None
