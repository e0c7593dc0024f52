"""Functions of each entry by itself that take a norm's place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from normlab.catalogue import Field
from normlab.model.norms.base import Norm, bounded

if TYPE_CHECKING:
    from torch import Tensor


class DyT(Norm):
    """Dynamic tanh: squash each entry by a learnt slope; no statistics at all.

        y = g tanh(alpha x) + b

    alpha is one scalar (starts at 0.5), g starts at 1, b at 0.
    """

    title = "DyT"
    source = "Zhu et al. 2025, arXiv:2503.10622, equation 1"
    # Forward: slope, tanh, gain, bias. Backward: bias 1, gain 2, g * gain 1, through tanh 3, slope 2, x 1.
    operations = (4, 10)

    class Options(Norm.Options):
        alpha: float = Field(0.5, gt=0, le=1e6, description="start value of the slope")

    def start(self, width: int) -> None:
        self.alpha = self.vector(1, self.options.alpha)
        self.gain, self.bias = self.vector(width, 1.0), self.vector(width, 0.0)

    def normalise(self, x_SBTD: Tensor) -> Tensor:
        import torch

        return torch.addcmul(self.bias, self.each(torch.tanh, self.alpha * x_SBTD), self.gain)

    @classmethod
    def unusual(cls, model: Any) -> str | None:
        return bounded(model)


class Derf(Norm):
    """Dynamic erf: as DyT with the error function, and a learnt shift before it.

        y = g erf(alpha x + s) + b

    alpha and s are one scalar each (start at 0.5 and 0), g starts at 1, b at 0.
    """

    title = "Derf"
    source = "Chen et al. 2025, arXiv:2512.10938"
    # Forward: slope, shift, erf, gain, bias. Backward: bias 1, gain 2, g * gain 1, through erf 4 (a Gaussian), shift 1,
    # slope 2, x 1.
    operations = (5, 12)

    class Options(DyT.Options):
        """As DyT's."""

    def start(self, width: int) -> None:
        self.alpha, self.shift = self.vector(1, self.options.alpha), self.vector(1, 0.0)
        self.gain, self.bias = self.vector(width, 1.0), self.vector(width, 0.0)

    def normalise(self, x_SBTD: Tensor) -> Tensor:
        import torch

        return torch.addcmul(self.bias, self.each(torch.erf, self.alpha * x_SBTD + self.shift), self.gain)

    @classmethod
    def unusual(cls, model: Any) -> str | None:
        return bounded(model)
