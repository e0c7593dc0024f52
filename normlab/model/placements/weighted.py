"""Placements that learn how much of the stream or of a branch enters the sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from normlab import catalogue
from normlab.catalogue import Field
from normlab.model.placements.base import Placement

if TYPE_CHECKING:
    from torch import Tensor


class Admin(Placement):
    """x = norm(w_i x + f_i(x)), i = 1, 2, ... counting sublayers: post whose residual weighs as much as all before it.

        w_1 = 1,  w_{i+1}^2 = Var[w_i x] + Var[f_i(x)]

    w_i is a learnable vector of width D. It starts, in all entries alike, from one pass before training: the biased
    variance over all entries of the lane's first batch. A residual ramp has no part in that pass."""

    title = "Admin"
    source = "Liu et al. 2020, arXiv:2004.08249; the recursion as in the authors' code"
    ramped = True
    without_norm = "the stream is multiplied in every sublayer"

    def start(self, width: int) -> None:
        self.weight = self.vector(width, 1.0)

    def forward(self, x_SBTD: Tensor, sublayer: Any, norms: Sequence[Any]) -> Tensor:
        (norm,) = norms
        return norm((self.weight * x_SBTD).to(x_SBTD.dtype) + self.ramp(sublayer(x_SBTD)))

    def profile(self, x_SBTD: Tensor, sublayer: Any, norms: Sequence[Any], carried: dict[str, Any]) -> Tensor:
        (norm,) = norms
        if "variance_S" in carried:
            self.weight.copy_(carried["variance_S"].sqrt().view(-1, 1, 1, 1))
        kept_SBTD, branch_SBTD = (self.weight * x_SBTD).to(x_SBTD.dtype), sublayer(x_SBTD)
        carried["variance_S"] = lane_variances(kept_SBTD) + lane_variances(branch_SBTD)
        return norm(kept_SBTD + branch_SBTD)


def lane_variances(x_SBTD: Tensor) -> Tensor:
    """Biased variance over all entries of each lane (S,), in float64; one lane after the other, so that its bits do not
    hang on its neighbours."""
    import torch

    return torch.stack([lane_BTD.double().var(correction=0) for lane_BTD in x_SBTD])


class ReZero(Placement):
    """x = x + a f(x), a scalar for each sublayer that starts at 0: no norm anywhere."""

    title = "ReZero"
    source = "Bachlechner et al. 2020, arXiv:2003.04887"
    norms = 0
    ramped = True

    def start(self, width: int) -> None:
        self.weight = self.vector(1, 0.0)

    def forward(self, x_SBTD: Tensor, sublayer: Any, norms: Sequence[Any]) -> Tensor:
        return x_SBTD + self.ramp((self.weight * sublayer(x_SBTD)).to(x_SBTD.dtype))

    @classmethod
    def refusal(cls, model: Any) -> str | None:
        return None if model.norm == "none" else "has no norm of its own: set model.norm to none"


class LayerScale(Placement):
    """x = x + diag(l) f(norm(x)): pre with a learnable factor for each entry of a branch.

    l starts at 0.1 in nets of up to 18 blocks, at 1e-5 up to 24, at 1e-6 beyond."""

    title = "LayerScale"
    source = "Touvron et al. 2021 (CaiT), arXiv:2103.17239, section 2"
    final_norm = True
    ramped = True

    class Options(catalogue.Options):
        start: float | None = Field(None, ge=0, le=1e6, description="start value of l; null: by the number of blocks")

    def start(self, width: int) -> None:
        by_depth = 0.1 if self.depth <= 18 else 1e-5 if self.depth <= 24 else 1e-6
        self.weight = self.vector(width, by_depth if self.options.start is None else self.options.start)

    def forward(self, x_SBTD: Tensor, sublayer: Any, norms: Sequence[Any]) -> Tensor:
        (norm,) = norms
        return x_SBTD + self.ramp((self.weight * sublayer(norm(x_SBTD))).to(x_SBTD.dtype))

    @classmethod
    def unusual(cls, model: Any) -> str | None:
        return "is defined with a norm before the sublayer" if model.norm == "none" else None
