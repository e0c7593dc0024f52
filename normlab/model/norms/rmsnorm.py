"""RMSNorm, and what takes the mean square of less or more than the vector."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

from normlab.catalogue import Field
from normlab.model.norms.base import EpsOptions, Norm
from normlab.model.norms.whole_range import Unit, masked, normalised

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

    def mean_square(self, x_SBTD: Tensor, elsewhere: Tensor | None) -> Tensor:
        """What takes the place of the mean square, (S, B, T, 1)."""
        return masked(x_SBTD, elsewhere).square().mean(-1, keepdim=True)

    def unit(self, x_SBTD: Tensor, elsewhere: Tensor | None = None) -> Unit:
        """The vector without its gain."""
        scale_SBT1 = (self.mean_square(x_SBTD, elsewhere) + self.options.eps).rsqrt()
        return Unit(x_SBTD * scale_SBT1, scale_SBT1)

    def normalise(self, x_SBTD: Tensor) -> Tensor:
        return normalised(self.unit, x_SBTD) * self.gain

    @classmethod
    def unusual(cls, model: Any) -> str | None:
        return "of width 1 passes on no more than a sign" if model.width == 1 else None

    @staticmethod
    def native(width: int) -> nn.Module | None:
        from torch import nn

        return nn.RMSNorm(width, eps=1e-6)


class PartialRMSNorm(RMSNorm):
    """RMSNorm with the mean square taken over the first entries only.

        y = g x / sqrt(mean(x_1^2, .., x_k^2) + eps),  k = ceil(p D)

    p (1/16) is the part of the width that is looked at; eps (1e-6, as in RMSNorm) sits inside the root; g starts at 1.
    """

    title = "pRMSNorm"
    source = "Zhang & Sennrich 2019, arXiv:1910.07467, section 4"
    # As RMSNorm; square and sum, and in the backward pass two of x's three, touch p of the width and are left out.
    operations = (2, 6)

    class Options(RMSNorm.Options):
        """eps sits inside the root."""

        p: float = Field(0.0625, gt=0, le=1, description="part of the width that the mean square is taken over")

    def mean_square(self, x_SBTD: Tensor, elsewhere: Tensor | None) -> Tensor:
        entries = ceil(round(self.options.p * x_SBTD.shape[-1], 9))  # 0.1 * 30 is a little more than 3
        return super().mean_square(x_SBTD[..., :entries], elsewhere)

    @staticmethod
    def native(width: int) -> nn.Module | None:
        return None


class CompressedRMSNorm(RMSNorm):
    """RMSNorm of a zero-mean vector that is stored without its last entry, which is minus the sum of the others.

        y = g x / sqrt((sum(x^2) + sum(x)^2) / (D + 1) + eps)

    eps (1e-6, as in RMSNorm) sits inside the root; g starts at 1. The authors store a stream of width D + 1 so. That
    any stream of width D is read as the first entries of such a vector, and the gain, are ours.
    """

    title = "CRMSNorm"
    source = "Jiang et al. 2023, arXiv:2305.14858, Pre-CRMSNorm"
    reductions = 2
    # As RMSNorm, and the sum of the entries: one addition forward, one backward.
    operations = (5, 9)

    def mean_square(self, x_SBTD: Tensor, elsewhere: Tensor | None) -> Tensor:
        last_SBT1 = masked(x_SBTD, elsewhere).sum(-1, keepdim=True)
        square_SBT1 = masked(x_SBTD, elsewhere).square().sum(-1, keepdim=True)
        return (square_SBT1 + last_SBT1.square()) / (x_SBTD.shape[-1] + 1)

    @classmethod
    def unusual(cls, model: Any) -> str | None:
        return None

    @staticmethod
    def native(width: int) -> nn.Module | None:
        return None
