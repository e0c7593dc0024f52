"""What all norms share: the dtype of the statistics, and what is known of each besides its formula."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from normlab import catalogue
from normlab.catalogue import Field
from normlab.model.part import Part

if TYPE_CHECKING:
    from torch import Tensor, nn


class Norm(Part):
    """Base of all norms. `normalise` holds the formula, in the dtype of the statistics, affine part included.

    `reductions` counts sums over a token's width in the forward pass; `operations` are those of an element, forward and
    backward: each addition, multiplication, division, root or transcendental function is one, what a token does once
    is left out."""

    reductions: ClassVar[int] = 0
    operations: ClassVar[tuple[int, int]] = (0, 0)
    final: ClassVar[str] = "layernorm"  # the norm before the head where `final_norm: auto` puts one

    class Options(catalogue.Options):
        statistics: Literal["float32", "float64", "stream"] = Field(
            "float32", description="dtype of the statistics: so wide at least, or that of the residual stream"
        )

    def normalise(self, x_SBTD: Tensor) -> Tensor:
        """The formula, in the dtype of the statistics."""
        raise AssertionError("a norm defines normalise")

    def forward(self, x_SBTD: Tensor) -> Tensor:
        import torch

        if self.options.statistics == "stream":
            return self.normalise(x_SBTD).to(x_SBTD.dtype)
        least = torch.float64 if self.options.statistics == "float64" else torch.float32
        return self.normalise(x_SBTD.to(torch.promote_types(x_SBTD.dtype, least))).to(x_SBTD.dtype)

    @staticmethod
    def native(width: int) -> nn.Module | None:
        """torch's own module of the same norm with its default options; None where torch has none."""
        return None


class EpsOptions(Norm.Options):
    """The options of a norm that divides: eps inside the root, or as the class says."""

    eps: float = Field(1e-5, ge=0, le=1e30, description="keeps the division from zero")


class Identity(Norm):
    """No norm: y = x."""

    title = "no norm"

    class Options(catalogue.Options):
        """None."""

    def forward(self, x_SBTD: Tensor) -> Tensor:
        return x_SBTD


def bounded(model: Any) -> str | None:
    """What is unusual about a norm with bounded entries in such a net."""
    if model.placement == "pre":
        return None
    return f"is meant to stand before a sublayer; with placement '{model.placement}' it bounds more than its input"
