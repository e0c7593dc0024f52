"""ScaleNorm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from normlab.catalogue import Field
from normlab.model.norms.base import EpsOptions, Norm
from normlab.model.norms.rmsnorm import RMSNorm
from normlab.model.norms.whole_range import Unit, masked, normalised

if TYPE_CHECKING:
    from torch import Tensor


class ScaleNorm(Norm):
    """Scale a token's vector to length g, one learnt number; its mean stays.

        y = g x / max(|x|, eps)

    |x| is the Euclidean length; eps (1e-5) is the least length that is divided by; g starts at sqrt(D).
    """

    title = "ScaleNorm"
    source = "Nguyen & Salazar 2019, arXiv:1910.05895, section 2.3"
    reductions = 1
    # Forward: square, sum, scale, g. Backward: g 2, dy * g 1, mean with the unit vector 2, x 3.
    operations = (4, 8)

    class Options(EpsOptions):
        """eps is the least length."""

        eps: float = Field(1e-5, ge=0, le=1e30, description="the least length that is divided by")

    def start(self, width: int) -> None:
        self.gain = self.vector(1, width**0.5)

    def unit(self, x_SBTD: Tensor, elsewhere: Tensor | None = None) -> Unit:
        """The vector of length 1."""
        # The larger one before the root: at 0 a root has no gradient.
        square_SBT1 = masked(x_SBTD, elsewhere).square().sum(-1, keepdim=True)
        scale_SBT1 = square_SBT1.clamp(min=self.options.eps**2).rsqrt()
        return Unit(x_SBTD * scale_SBT1, scale_SBT1)

    def normalise(self, x_SBTD: Tensor) -> Tensor:
        return normalised(self.unit, x_SBTD) * self.gain

    @classmethod
    def unusual(cls, model: Any) -> str | None:
        return RMSNorm.unusual(model)
