"""Norms over the whole range of float32: a square overflows from 1.8e19 on and vanishes below 1e-19, the gradient of a
root goes wrong six decades earlier, and a mean that is many times the deviation takes the digits with it. What a norm
makes of such numbers should be a vector like any other.

The plain formula is computed first, bit by bit what it always was. Its statistics, one number a token, show whether it
could be right; tokens for which they do not are computed again in float64. On the CPU the look at them costs some
microseconds. On a GPU it would make the step wait, and a compiled program cannot branch on it: there the plain formula
stands, and so it does where an option takes the statistics in less than float32. The unit vector of finite numbers may
then be 0 or NaN, as that of torch's own layers is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

# The gradient of a root takes the third power of the scale, and 2^40 to the third is still a float32.
SCALE = (2.0**-40, 2.0**40)
# A mean 2^10 times the deviation leaves 14 of a vector's 24 bits.
OFFSET = 2.0**10


class Unit(NamedTuple):
    """A normalised tensor and the statistics that it came by, (S, B, T, 1) or as they are: the factor, and the mean if
    that was subtracted."""

    unit_SBTD: Tensor
    scale: Tensor
    mean: Tensor | None = None

    def right(self) -> bool:
        """Whether all statistics are in the range where the formula is right."""
        low, high = extremes(self.scale)
        if not (SCALE[0] < low and high < SCALE[1]):
            return False
        if self.mean is None:
            return True
        least, most = extremes(self.mean)
        return max(-least, most) * high < OFFSET or bool(self.where_right().all())

    def where_right(self) -> Tensor:
        """Which of them are."""
        inside = (self.scale > SCALE[0]) & (self.scale < SCALE[1])
        return inside if self.mean is None else inside & ((self.mean * self.scale).abs() < OFFSET)


Formula = Callable[..., Unit]  # of (x, elsewhere); see `masked`


def extremes(x: Tensor) -> tuple[float, float]:
    """The least and the largest entry; NaN if there is one."""
    low, high = x.detach().aminmax()
    return low.item(), high.item()


def normalised(formula: Formula, x_SBTD: Tensor, dims: tuple[int, ...] = (-1,)) -> Tensor:
    """The unit vector of `formula`, whose statistics run over `dims`, in float64 where float32 is not enough."""
    import torch

    plain = formula(x_SBTD, None)
    if torch.compiler.is_compiling() or not x_SBTD.is_cpu or x_SBTD.dtype != torch.float32 or plain.right():
        return plain.unit_SBTD
    with torch.no_grad():
        finite = (x_SBTD * 0).sum(dims, keepdim=True) == 0
        wrong = finite & ~plain.where_right()
    if not bool(wrong.any()):
        return plain.unit_SBTD
    wide = formula(x_SBTD.double(), None).unit_SBTD.float()
    return torch.where(wrong, wide, formula(x_SBTD, wrong).unit_SBTD)


def masked(x_SBTD: Tensor, elsewhere: Tensor | None) -> Tensor:
    """What the statistics are taken of: 1 where they are of no account. Zero gradients come back from there, and times
    an infinity they would be NaN. The other uses of x stay as they are, so that the gradients of all other tokens are
    added up in the same order, to the same bits."""
    return x_SBTD if elsewhere is None else x_SBTD.masked_fill(elsewhere, 1.0)
