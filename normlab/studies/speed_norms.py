"""The norms that are timed: written out by hand, from `torch.nn`, and compiled. One token is the last axis, D wide."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

NORMS = ("layernorm", "rmsnorm", "dyt", "identity")
IMPLEMENTATIONS = ("handwritten", "native", "compiled")
PASSES = ("forward", "backward", "both")


class LayerNorm(nn.Module):
    """g (x - mean) / sqrt(var + eps) + b, biased variance, one torch operation after the other."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
        return centred * scale * self.gain + self.bias


class RMSNorm(nn.Module):
    """g x / sqrt(mean(x^2) + eps), one torch operation after the other."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.gain


class DyT(nn.Module):
    """g tanh(a x) + b."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.full((), 0.5))
        self.gain, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.alpha * x) * self.gain + self.bias


class Identity(nn.Module):
    """x itself: what is left is the cost of calling and of timing."""

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x


HANDWRITTEN = {"layernorm": LayerNorm, "rmsnorm": RMSNorm, "dyt": DyT, "identity": Identity}


def native(norm: str, width: int) -> nn.Module | None:
    """torch's own module, with the eps of the handwritten one; None where torch has none."""
    match norm:
        case "layernorm":
            return nn.LayerNorm(width, eps=1e-5)
        case "rmsnorm":
            return nn.RMSNorm(width, eps=1e-6)
        case "identity":
            return nn.Identity()
        case _:
            return None


class Cell(NamedTuple):
    """One thing that is timed at a shape."""

    implementation: str
    norm: str
    direction: str


# What the article compares, and DyT beside it.
LN, RMS, DYT = (
    Cell("native", "layernorm", "forward"),
    Cell("handwritten", "rmsnorm", "forward"),
    Cell("handwritten", "dyt", "forward"),
)
HEADLINES = (LN, RMS, DYT)
ALL = tuple(Cell(i, n, p) for n in NORMS for p in PASSES for i in IMPLEMENTATIONS)


class Absent(Exception):
    """This cell cannot be measured here; the message says why, in one line."""


def build(cell: Cell, width: int, device: str) -> Callable[[Tensor], Tensor]:
    """The norm of a cell, on the device; `Absent` if there is no such implementation. Compiling waits for a call."""
    if cell.implementation == "native":
        module = native(cell.norm, width)
        if module is None:
            raise Absent(f"torch.nn has no {cell.norm}")
        return module.to(device)
    handwritten = HANDWRITTEN[cell.norm](width).to(device)
    return compiled(handwritten) if cell.implementation == "compiled" else handwritten


def compiled(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """The module through torch.compile, for the very shape that it is first called with."""
    return torch.compile(module, dynamic=False, fullgraph=True)


def parameters(norm: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """What the backward pass has to give gradients for, besides x."""
    return list(norm.parameters()) if isinstance(norm, nn.Module) else []


def prepare(norm: Callable[[Tensor], Tensor], direction: str, x: Tensor, grad: Tensor) -> Callable[[], object]:
    """The call that is timed. Forward records for a backward pass, as in training; backward goes through one recorded
    pass again and again; x and all parameters get gradients."""
    inputs = [x, *parameters(norm)]
    if direction == "forward":
        return lambda: norm(x)
    if direction == "both":
        return lambda: torch.autograd.grad(norm(x), inputs, grad)
    y = norm(x)
    return lambda: torch.autograd.grad(y, inputs, grad, retain_graph=True)


def error_against_formula(norm: Callable[[Tensor], Tensor], name: str, x: Tensor) -> float:
    """Largest difference from the formula in float64, over the first eight tokens."""
    # Gradients are recorded as in the calls that are timed: without them a compiled norm would be compiled again.
    got = norm(x)[0, :8].detach().double()
    formula = HANDWRITTEN[name](x.shape[-1]).to(x.device).double()
    return float((got - formula(x[0, :8].detach().double())).detach().abs().max())
