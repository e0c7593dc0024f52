"""The norm of a gradient, and clipping by it, over the whole range of float32.

A square overflows above 1.8e19 and vanishes below 1e-19, so a norm of float32 sums can be infinite, or 0, for a
gradient that is neither. Where it may be, it is taken again from float64 sums; everywhere else its bits stay.

Shapes: S lanes, P parameters of one lane.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from normlab.train.optim import clip_factors

# Between these nothing overflows and nothing that counts vanishes: neither in the norm nor in a square of an entry.
SMALL, LARGE = 2.0**-40, 2.0**60


class Norms(NamedTuple):
    """Of each lane (S,): the norm; whether all entries are finite; whether the norm is the plain one; and the norm in
    float64, None if it is the plain one in every lane. `usual`: seen to lie between SMALL and LARGE in every lane."""

    norm_S: Tensor
    fine_S: Tensor
    plain_S: Tensor
    wide_S: Tensor | None
    usual: bool


def gradient_norms(grad_SP: Tensor, looks: bool) -> Norms:
    """The norms of the rows. With `looks` values may be read on the way."""
    norm_S = torch.linalg.vector_norm(grad_SP, dim=1)
    usual_S = (norm_S >= SMALL) & (norm_S <= LARGE)
    if looks and bool(usual_S.all()):
        return Norms(norm_S, usual_S, usual_S, None, True)  # A finite norm has no other than finite parts.
    wide_S = torch.linalg.vector_norm(grad_SP, dim=1, dtype=torch.float64)
    # No sum of squares of float32 numbers overflows in float64.
    fine_S = grad_SP.isfinite().all(1) if grad_SP.dtype == torch.float64 else wide_S.isfinite()
    plain_S = (norm_S >= SMALL) & norm_S.isfinite()
    return Norms(torch.where(plain_S, norm_S, wide_S.to(norm_S.dtype)), fine_S, plain_S, wide_S, False)


def clip_(grad_SP: Tensor, norms: Norms, limit_S: Tensor, looks: bool) -> None:
    """Bring each row's norm down to its limit, in place."""
    factor_S = clip_factors(norms.norm_S, limit_S)
    if norms.wide_S is not None:
        wide_S = clip_factors(norms.wide_S, limit_S.double())
        if looks:
            # The factor of a very large norm may be subnormal, and a CPU flushes those: in two parts it is not.
            half_S = torch.where(norms.plain_S | limit_S.isinf() | (norms.wide_S <= LARGE), 1.0, 1 / LARGE)
            grad_SP.mul_(half_S.to(grad_SP.dtype).unsqueeze(1))
            wide_S = wide_S / half_S
        factor_S = torch.where(norms.plain_S, factor_S, wide_S.to(factor_S.dtype))
    # A frozen lane's norm may be NaN; its factor must not bring the NaN back.
    grad_SP.mul_(factor_S.nan_to_num(0.0).unsqueeze(1))
