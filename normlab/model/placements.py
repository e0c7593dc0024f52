"""Placements: where the norm stands relative to the residual sum. The equation is `forward`.

To add a placement: write the class here (or in a plugin) and add it to PLACEMENTS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from normlab.config.names import Catalogue

Layer = Callable[[Tensor], Tensor]


class Placement:
    """How one sublayer f and its norms join the stream x (S, B, T, D).

    `norms` is the number of norms that a sublayer needs; `final_norm` says whether a final norm follows the last block
    when the config leaves that to the placement (`auto`).
    """

    norms = 1
    final_norm = False

    def forward(self, x_SBTD: Tensor, sublayer: Layer, norms: Sequence[Layer]) -> Tensor:
        raise AssertionError("a placement defines forward")


class Post(Placement):
    """x = norm(x + f(x)): the sum itself is normalised, no final norm. Source: arXiv:1706.03762, section 3.1."""

    def forward(self, x_SBTD: Tensor, sublayer: Layer, norms: Sequence[Layer]) -> Tensor:
        (norm,) = norms
        return norm(x_SBTD + sublayer(x_SBTD))


class Pre(Placement):
    """x = x + f(norm(x)): the stream is never normalised, a final norm follows. Source: arXiv:2002.04745, figure 1b."""

    final_norm = True

    def forward(self, x_SBTD: Tensor, sublayer: Layer, norms: Sequence[Layer]) -> Tensor:
        (norm,) = norms
        return x_SBTD + sublayer(norm(x_SBTD))


PLACEMENTS = Catalogue("placements", {"post": Post, "pre": Pre})
