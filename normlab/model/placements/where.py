"""Placements that differ in where the norm stands, and in nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from normlab.model.placements.base import Placement

if TYPE_CHECKING:
    from torch import Tensor


class Post(Placement):
    """x = norm(x + f(x)): the sum itself is normalised, no final norm."""

    title = "Post-LN"
    source = "Vaswani et al. 2017, arXiv:1706.03762, section 3.1"
    ramped = True

    def forward(self, x_SBTD: Tensor, sublayer: Any, norms: Sequence[Any]) -> Tensor:
        (norm,) = norms
        return norm(x_SBTD + self.ramp(sublayer(x_SBTD)))


class Pre(Placement):
    """x = x + f(norm(x)): the stream is never normalised, a final norm follows."""

    title = "Pre-LN"
    source = "Xiong et al. 2020, arXiv:2002.04745, figure 1b"
    final_norm = True
    ramped = True

    def forward(self, x_SBTD: Tensor, sublayer: Any, norms: Sequence[Any]) -> Tensor:
        (norm,) = norms
        return x_SBTD + self.ramp(sublayer(norm(x_SBTD)))


class Sandwich(Placement):
    """x = x + norm2(f(norm1(x))): as pre, and a second norm before the sum; known as Peri-LN too.

    Peri-LN may also normalise the embedding; that is not done here."""

    title = "Sandwich-LN (Peri-LN)"
    source = "Ding et al. 2021 (CogView), arXiv:2105.13290; Kim et al. 2025 (Peri-LN), arXiv:2502.02732"
    norms = 2
    final_norm = True
    ramped = True
    without_norm = "it is placement 'pre'"

    def forward(self, x_SBTD: Tensor, sublayer: Any, norms: Sequence[Any]) -> Tensor:
        before, after = norms
        return x_SBTD + self.ramp(after(sublayer(before(x_SBTD))))


class Reordered(Placement):
    """x = x + norm(f(x)): only what a sublayer gives is normalised, a final norm follows."""

    title = "reordered"
    source = "OLMo team 2024 (OLMo 2), arXiv:2501.00656"
    final_norm = True
    ramped = True
    without_norm = "it is placement 'pre'"

    def forward(self, x_SBTD: Tensor, sublayer: Any, norms: Sequence[Any]) -> Tensor:
        (norm,) = norms
        return x_SBTD + self.ramp(norm(sublayer(x_SBTD)))
