"""The norms that are timed: written out by hand, from `torch.nn`, and compiled. One lane: x is (1, B, T, D)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from normlab.catalogue import NORMS
from normlab.model.norms.layernorm import LayerNorm
from normlab.model.norms.rmsnorm import RMSNorm
from normlab.model.part import as_module

# The norms of the article, DyT, and none: what is left is the cost of calling and of timing.
TIMED = ("layernorm", "rmsnorm", "dyt", "none")
IMPLEMENTATIONS = ("handwritten", "native", "compiled")
PASSES = ("forward", "backward", "both")


class WrittenLayerNorm(LayerNorm):
    """Written out, one torch operation after the other; the catalogue's calls torch's kernel."""

    def forward(self, x_SBTD: Tensor) -> Tensor:
        centred = x_SBTD - x_SBTD.mean(-1, keepdim=True)
        scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + self.options.eps)
        return centred * scale * self.gain + self.bias


class WrittenRMSNorm(RMSNorm):
    """The formula alone; the catalogue's looks at its statistics as well."""

    def forward(self, x_SBTD: Tensor) -> Tensor:
        return x_SBTD * torch.rsqrt(x_SBTD.square().mean(-1, keepdim=True) + self.options.eps) * self.gain


# What is written by hand in each: but for these two, the norm of the catalogue.
HANDWRITTEN = {norm: NORMS[norm] for norm in TIMED} | {"layernorm": WrittenLayerNorm, "rmsnorm": WrittenRMSNorm}


def handwritten(norm: str, width: int) -> nn.Module:
    """The norm written in torch's operations."""
    return as_module(HANDWRITTEN[norm])(width)


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
ALL = tuple(Cell(i, n, p) for n in TIMED for p in PASSES for i in IMPLEMENTATIONS)


class Absent(Exception):
    """This cell cannot be measured here; the message says why, in one line."""


def build(cell: Cell, width: int, device: str) -> Callable[[Tensor], Tensor]:
    """The norm of a cell, on the device; `Absent` if there is no such implementation. Compiling waits for a call."""
    if cell.implementation == "native":
        native: nn.Module | None = NORMS[cell.norm].native(width)
        if native is None:
            raise Absent("torch.nn has no such norm")
        return native.to(device)
    written = handwritten(cell.norm, width).to(device)
    return compiled(written) if cell.implementation == "compiled" else written


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
    got = norm(x)[:, :1, :8].detach().double()
    formula = handwritten(name, x.shape[-1]).to(x.device).double()
    return float((got - formula(x[:, :1, :8].detach().double())).detach().abs().max())
