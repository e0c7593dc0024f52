"""Optimisers on one flat buffer a stack: parameters, gradients and moments are (S, P), one row a lane.

The learning rate is a column (S, 1), so each lane has its own; nothing loops over lanes. Numbers equal those of
`torch.optim` with the same settings, up to the order of rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from normlab.config.names import Catalogue
from normlab.config.schema import OptimSpec, RunSpec


class Optimizer:
    """Base: holds the per-lane weight decay; `update` changes the parameters in place."""

    def __init__(self, specs: Sequence[OptimSpec], params_SP: Tensor) -> None:
        self.spec = specs[0]
        decay = [spec.weight_decay for spec in specs]
        self.decay_S1 = params_SP.new_tensor(decay).unsqueeze(1) if any(decay) else None

    def update(self, params_SP: Tensor, grad_SP: Tensor, rate_S1: Tensor, step: int) -> None:
        """One step at `rate_S1`; `step` counts from 1."""
        raise AssertionError("an optimiser defines update")

    def _decayed(self, params_SP: Tensor, grad_SP: Tensor) -> Tensor:
        return grad_SP if self.decay_S1 is None else torch.addcmul(grad_SP, params_SP, self.decay_S1)


class Adam(Optimizer):
    """Adam with bias correction; weight decay is added to the gradient (L2). Source: arXiv:1412.6980, algorithm 1."""

    def __init__(self, specs: Sequence[OptimSpec], params_SP: Tensor) -> None:
        super().__init__(specs, params_SP)
        self.mean_SP = torch.zeros_like(params_SP)
        self.square_SP = torch.zeros_like(params_SP)
        self.scratch_SP = torch.empty_like(params_SP)

    def update(self, params_SP: Tensor, grad_SP: Tensor, rate_S1: Tensor, step: int) -> None:
        grad_SP = self._decayed(params_SP, grad_SP)
        self._moment_step(params_SP, grad_SP, rate_S1, step)

    def _moment_step(self, params_SP: Tensor, grad_SP: Tensor, rate_S1: Tensor, step: int) -> None:
        beta1, beta2 = self.spec.beta1, self.spec.beta2
        correction1, correction2 = 1 - beta1**step, math.sqrt(1 - beta2**step)
        self.mean_SP.lerp_(grad_SP, 1 - beta1)
        self.square_SP.mul_(beta2).addcmul_(grad_SP, grad_SP, value=1 - beta2)
        # m / (sqrt(v) / c2 + eps) with c2 moved outside, to save a pass over the buffer.
        torch.sqrt(self.square_SP, out=self.scratch_SP)
        self.scratch_SP.add_(self.spec.eps * correction2)
        torch.div(self.mean_SP, self.scratch_SP, out=self.scratch_SP)
        params_SP.addcmul_(self.scratch_SP, rate_S1, value=-correction2 / correction1)


class AdamW(Adam):
    """Adam with decoupled weight decay: the parameters shrink by rate * decay first. Source: arXiv:1711.05101."""

    def update(self, params_SP: Tensor, grad_SP: Tensor, rate_S1: Tensor, step: int) -> None:
        if self.decay_S1 is not None:
            params_SP.mul_(1 - rate_S1 * self.decay_S1)
        self._moment_step(params_SP, grad_SP, rate_S1, step)


class SGD(Optimizer):
    """Gradient descent with heavy-ball momentum (no dampening); weight decay is added to the gradient (L2)."""

    def __init__(self, specs: Sequence[OptimSpec], params_SP: Tensor) -> None:
        super().__init__(specs, params_SP)
        self.velocity_SP = torch.zeros_like(params_SP) if self.spec.momentum else None

    def update(self, params_SP: Tensor, grad_SP: Tensor, rate_S1: Tensor, step: int) -> None:
        grad_SP = self._decayed(params_SP, grad_SP)
        if self.velocity_SP is not None:
            grad_SP = self.velocity_SP.mul_(self.spec.momentum).add_(grad_SP)
        params_SP.addcmul_(grad_SP, rate_S1, value=-1)


OPTIMIZERS = Catalogue("optimizers", {"adam": Adam, "adamw": AdamW, "sgd": SGD})

# Share of the peak rate, for a fraction 0 <= p < 1 of the steps after warm-up; the last step is never wasted at 0.
SCHEDULES = Catalogue(
    "schedules",
    {
        "constant": lambda p: 1.0,
        "linear": lambda p: 1.0 - p,
        "cosine": lambda p: (1 + math.cos(math.pi * p)) / 2,
    },
)


def rate(spec: RunSpec, step: int) -> float:
    """The learning rate of step `step` = 1, 2, ...: step k of W warm-up steps runs at k/W of it."""
    optim = spec.optim
    ramp = min(step / optim.warmup, 1.0) if optim.warmup else 1.0
    progress = max(step - optim.warmup - 1, 0) / (spec.train.steps - optim.warmup)
    return optim.lr * ramp * SCHEDULES[optim.schedule](progress)


def clip_factors(norm_S: Tensor, limit_S: Tensor) -> Tensor:
    """Factors (S,) that bring each lane's gradient norm down to its limit, as `torch.nn.utils.clip_grad_norm_` does.

    A lane without clipping has an infinite limit and factor 1, whatever its norm."""
    return (limit_S / (norm_S + 1e-6)).clamp(max=1.0).masked_fill(limit_S.isinf(), 1.0)
