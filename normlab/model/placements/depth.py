"""Placements with factors that hang on the depth of the net or of the block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from normlab import catalogue
from normlab.catalogue import MIXERS, Field
from normlab.model.placements.base import Placement

if TYPE_CHECKING:
    from torch import Tensor

SCALED = ("value", "output", "ffn_in", "ffn_out")  # the roles whose start values are scaled: not q and k


class DeepNorm(Placement):
    """x = norm(a x + f(x)): post with a heavier residual and smaller start values, no final norm.

        a = (2N)^(1/4)
        b = (8N)^(-1/4), gain on the start values of value, output, ffn_in and ffn_out; q and k keep 1

    N is the number of blocks; these are the constants of a decoder alone."""

    title = "DeepNorm"
    source = "Wang et al. 2022, arXiv:2203.00555, figure 2"
    ramped = True
    without_norm = "the stream is multiplied in every sublayer"

    def gains(self) -> dict[str, float]:
        return dict.fromkeys(SCALED, (8 * self.depth) ** -0.25)

    def forward(self, x_SBTD: Tensor, sublayer: Any, norms: Sequence[Any]) -> Tensor:
        (norm,) = norms
        return norm((2 * self.depth) ** 0.25 * x_SBTD + self.ramp(sublayer(x_SBTD)))


class SubLN(Placement):
    """x = x + f(norm(x)), with one more norm inside f, before the matrix that writes to the stream.

        sqrt(ln(2N)), gain on the start values of value, output, ffn_in and ffn_out

    N is the number of blocks."""

    title = "Sub-LN"
    source = "Wang et al. 2022 (Magneto), arXiv:2210.06423"
    inner_norms = 1
    final_norm = True
    ramped = True
    without_norm = "it is placement 'pre' with other start values"

    def gains(self) -> dict[str, float]:
        return dict.fromkeys(SCALED, math.sqrt(math.log(2 * self.depth)))

    def forward(self, x_SBTD: Tensor, sublayer: Any, norms: Sequence[Any]) -> Tensor:
        norm, inner = norms
        return x_SBTD + self.ramp(sublayer(norm(x_SBTD), inner))

    @classmethod
    def refusal(cls, model: Any) -> str | None:
        if not getattr(MIXERS[model.mixer], "inner_point", False):
            return f"has a norm inside the sublayer, for which mixer '{model.mixer}' has no inner_point"
        return super().refusal(model)


class LNS(Placement):
    """x = x + f(norm(x) / sqrt(l)): LayerNorm scaling, pre whose deep blocks hear less; l = 1, 2, ... is the block, in
    both of its sublayers.

    `learnable` makes the factor a scalar of each sublayer that starts at 1 / sqrt(l); both go by the name."""

    title = "LayerNorm scaling"
    source = "Sun et al. 2025 (Curse of Depth), arXiv:2502.05795"
    final_norm = True
    ramped = True
    without_norm = "there is no norm whose output could be scaled"

    class Options(catalogue.Options):
        learnable: bool = Field(False, description="the factor is trained, and only starts at 1 / sqrt(l)")

    def start(self, width: int) -> None:
        factor = 1 / math.sqrt(self.layer)
        self.factor = self.vector(1, factor) if self.options.learnable else factor

    def forward(self, x_SBTD: Tensor, sublayer: Any, norms: Sequence[Any]) -> Tensor:
        (norm,) = norms
        return x_SBTD + self.ramp(sublayer((norm(x_SBTD) * self.factor).to(x_SBTD.dtype)))


class MixLN(Placement):
    """x = norm(x + f(x)) in the first floor(fraction N) of N blocks, x = x + f(norm(x)) in the rest; a final norm."""

    title = "Mix-LN"
    source = "Li et al. 2024, arXiv:2412.13795"
    final_norm = True
    ramped = True
    without_norm = "its post and pre blocks are the same"

    class Options(catalogue.Options):
        fraction: float = Field(0.25, gt=0, lt=1, description="share of the blocks, from the first on, that are post")

    @staticmethod
    def post_blocks(fraction: float, depth: int) -> int:
        """The number of blocks that are post. 0.29 * 100 is a little less than 29."""
        return math.floor(round(fraction * depth, 9))

    def forward(self, x_SBTD: Tensor, sublayer: Any, norms: Sequence[Any]) -> Tensor:
        (norm,) = norms
        if self.layer <= self.post_blocks(self.options.fraction, self.depth):
            return norm(x_SBTD + self.ramp(sublayer(x_SBTD)))
        return x_SBTD + self.ramp(sublayer(norm(x_SBTD)))

    @classmethod
    def unusual(cls, model: Any) -> str | None:
        fraction = model.placement_options.fraction
        if cls.post_blocks(fraction, model.depth):
            return None
        return f"has no post block at depth {model.depth} with fraction {fraction:g}: it is 'pre'"
