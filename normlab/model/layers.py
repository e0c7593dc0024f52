"""Leaf layers with a leading axis of lanes: S independent nets computed in one call.

Shapes: S lanes, B batch, T time, D width in, F width out, V vocabulary, N = B * T.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

ALIGN = 16  # numbers in the widest vector register; see `lanewise`


def lanewise(function: Callable[[Tensor], Tensor], x_SBTD: Tensor) -> Tensor:
    """Apply an elementwise transcendental function so that a lane's bits do not hang on its neighbours.

    Vectorised kernels treat what does not fill a register differently in the last bit; with every lane padded to whole
    registers, an element is treated alike wherever its lane stands in the stack.
    """
    rest = -x_SBTD[0].numel() % ALIGN
    if not rest:
        return function(x_SBTD)
    flat = nn.functional.pad(x_SBTD.flatten(1), (0, rest))
    return function(flat)[:, : flat.shape[1] - rest].view(x_SBTD.shape)


class Leaf(nn.Module):
    """A layer whose parameters carry the axis S. `plain()` makes its one-lane counterpart from torch, so that a lane
    starts from the very draws of the textbook module; `load` copies such a module into one lane. The net's init draws
    by the leaf's `role`; `gain` is the placement's factor on what it draws."""

    role = ""
    gain = 1.0

    def plain(self) -> nn.Module:
        raise AssertionError("every leaf that draws weights defines plain()")

    def load(self, lane: int, plain: nn.Module) -> None:
        raise AssertionError("every leaf that draws weights defines load()")


def product(x_SND: Tensor, weight_SDF: Tensor, bias_S1F: Tensor | None) -> Tensor:
    """x W + b of every lane, (S, N, F). `baddbmm` would fill the result with the bias first: one pass more."""
    y_SNF = islands(x_SND, weight_SDF) if ragged(x_SND, weight_SDF) else torch.bmm(x_SND, weight_SDF)
    return y_SNF if bias_S1F is None else y_SNF.add_(bias_S1F)


def ragged(x_SND: Tensor, weight_SDF: Tensor) -> bool:
    """Whether lanes lie in memory in another way than the first: on a CPU without AVX-512 the last digits of MKL's
    products depend on whether a matrix starts on 16 bytes."""
    (n, d), f = x_SND.shape[1:], weight_SDF.shape[2]
    return x_SND.device.type == "cpu" and any(size * x_SND.element_size() % 16 for size in (n * d, d * f, n * f))


def islands(x_SND: Tensor, weight_SDF: Tensor) -> Tensor:
    """The product lane by lane. Times 1 puts a matrix, and its gradient, into memory of its own."""
    pairs = zip(x_SND.unbind(), weight_SDF.unbind(), strict=True)
    return torch.stack([((x_ND * 1) @ (weight_DF * 1)) * 1 for x_ND, weight_DF in pairs])


def low_product(x_SND: Tensor, weight_SDF: Tensor, bias_S1F: Tensor | None, low: torch.dtype) -> Tensor:
    """The same with operands and result in `low`, and so are the gradients; sums are kept in float32.

    The CPU's own float16 product is slow, and its last bit hangs on where a lane lies in memory. There the rounded
    operands are multiplied in float32 and the result is rounded, which is what the hardware of a GPU does.
    """
    x_SND, weight_SDF = x_SND.to(low), weight_SDF.to(low)
    bias_S1F = None if bias_S1F is None else bias_S1F.to(low)
    if low is torch.float16 and x_SND.device.type == "cpu":
        wide_bias = None if bias_S1F is None else bias_S1F.float()
        return product(x_SND.float(), weight_SDF.float(), wide_bias).to(low)
    if bias_S1F is None:
        return torch.bmm(x_SND, weight_SDF)
    return torch.baddbmm(bias_S1F, x_SND, weight_SDF)  # rounded once


class Linear(Leaf):
    """y = x W + b per lane, as one batched matrix product.

    With `low` set, the product runs in that dtype and its result returns in the dtype of the input.
    """

    def __init__(
        self,
        fan_in: int,
        fan_out: int,
        bias: bool = True,
        lanes: int = 1,
        low: torch.dtype | None = None,
        role: str = "head",
    ) -> None:
        super().__init__()
        self.low, self.role = low, role
        self.weight = nn.Parameter(torch.empty(lanes, fan_in, fan_out))
        self.bias = nn.Parameter(torch.empty(lanes, 1, fan_out)) if bias else None

    def plain(self) -> nn.Module:
        _, fan_in, fan_out = self.weight.shape
        return nn.Linear(fan_in, fan_out, bias=self.bias is not None)

    @torch.no_grad()
    def load(self, lane: int, plain: nn.Module) -> None:
        assert isinstance(plain, nn.Linear)
        self.weight[lane] = plain.weight.T
        if self.bias is not None:
            self.bias[lane, 0] = plain.bias

    def forward(self, x_SBTD: Tensor) -> Tensor:
        factors = (x_SBTD.flatten(1, 2), self.weight, self.bias)
        y_SNF = product(*factors) if self.low is None else low_product(*factors, self.low).to(x_SBTD.dtype)
        return y_SNF.unflatten(1, x_SBTD.shape[1:3])


class Embedding(Leaf):
    """Look up one row of `weight` (S, V, D) a token; each lane has its own table."""

    role = "embedding"

    def __init__(self, vocab: int, width: int, lanes: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(lanes, vocab, width))

    def plain(self) -> nn.Module:
        return nn.Embedding(*self.weight.shape[1:])

    @torch.no_grad()
    def load(self, lane: int, plain: nn.Module) -> None:
        assert isinstance(plain, nn.Embedding)
        self.weight[lane] = plain.weight

    def forward(self, tokens_SBT: Tensor) -> Tensor:
        if tokens_SBT.is_cuda:
            return LookUp.apply(tokens_SBT, self.weight)
        return look_up(tokens_SBT, self.weight)


def look_up(tokens_SBT: Tensor, weight_SVD: Tensor) -> Tensor:
    """The row of each token in its lane's table, (S, B, T, D)."""
    lanes, vocab, width = weight_SVD.shape
    first_row_S11 = torch.arange(0, lanes * vocab, vocab, device=tokens_SBT.device).view(-1, 1, 1)
    return nn.functional.embedding(tokens_SBT + first_row_S11, weight_SVD.reshape(-1, width))


class LookUp(torch.autograd.Function):
    """`look_up` whose gradient is a product with the one-hot tokens. Torch's own gradient sorts the tokens on a GPU and
    waits for the result, which a CUDA graph cannot hold (pytorch issue 82886), and adds up in no fixed order."""

    @staticmethod
    def forward(ctx: Any, tokens_SBT: Tensor, weight_SVD: Tensor) -> Tensor:
        ctx.save_for_backward(tokens_SBT)
        ctx.vocab = weight_SVD.shape[1]
        return look_up(tokens_SBT, weight_SVD)

    @staticmethod
    def backward(ctx: Any, grad_SBTD: Tensor) -> tuple[None, Tensor]:
        (tokens_SBT,) = ctx.saved_tensors
        hot_SNV = tokens_SBT.flatten(1).unsqueeze(-1) == torch.arange(ctx.vocab, device=tokens_SBT.device)
        grad_SND = grad_SBTD.flatten(1, 2)
        return None, torch.bmm(hot_SNV.to(grad_SND.dtype).transpose(1, 2), grad_SND)
