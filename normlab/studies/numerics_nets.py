"""The untrained nets of the seeded experiments: each function draws in the order that the setting gives.

Shapes: B batch, T time, D width, N rows. The random state is the caller's (`seeded`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from normlab.model.norms import NORMS
from normlab.model.part import make


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """torch's CPU stream started at `seed`; the caller's own stream goes on afterwards as if nothing had been drawn."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        yield


def normalise(name: str, x: Tensor) -> Tensor:
    """A fresh norm of our catalogue over the last axis of `x` of any shape."""
    norm = make(NORMS, name, x.shape[-1]).to(x.dtype)
    y: Tensor = norm(x.reshape(1, 1, -1, x.shape[-1]))
    return y.reshape(x.shape).detach()


def token_norm(x: Tensor) -> float:
    """Mean over tokens of the L2 norm of a token's vector."""
    return float(torch.linalg.vector_norm(x, dim=-1).mean())


def sublayer(width: int, hidden: int, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """Linear to `hidden`, exact GELU, linear back; torch's init, drawn in that order."""
    return nn.Sequential(nn.Linear(width, hidden, dtype=dtype), nn.GELU(), nn.Linear(hidden, width, dtype=dtype))


def linear_stack(
    x: Tensor, depth: int, weight: Callable[[], Tensor], after: Callable[[Tensor], Tensor] = lambda x: x
) -> list[float]:
    """Mean token norm of `x` and of what each of `depth` linear maps makes of it; `after` follows every map."""
    norms = [token_norm(x)]
    for _ in range(depth):
        x = after(x @ weight())
        norms.append(token_norm(x))
    return norms


def ragged(lengths: list[int], width: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Sequences (length, width) with values of mean 1 and standard deviation 2, drawn one after the other."""
    return [1.0 + 2.0 * torch.randn(length, width, dtype=dtype) for length in lengths]


def mean_and_variance(x: Tensor, correction: int = 0) -> list[float]:
    """Mean and variance over all values of `x`; biased unless `correction` is 1."""
    return [float(x.mean()), float(x.var(correction=correction))]


def residual_gradients(function: nn.Module, x: Tensor, other: Tensor) -> dict[str, float]:
    """Gradient of sum(y^2), y = F(x) + x, with respect to `x`: norm of all of it, of the identity path's part 2y, and
    their ratio; beside it the norm of the gradient of sum(F(x)^2) at `other`, where there is no residual."""
    x = x.requires_grad_()
    y = function(x) + x
    (total,) = torch.autograd.grad(y.square().sum(), x)
    other = other.requires_grad_()
    (bare,) = torch.autograd.grad(function(other).square().sum(), other)
    whole, identity = float(total.norm()), float(2 * y.detach().norm())
    return {"total": whole, "identity": identity, "share": identity / whole, "without_residual": float(bare.norm())}
