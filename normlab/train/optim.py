"""Optimisers on one flat buffer a stack: parameters, gradients and moments are (S, P), one row a lane.

The learning rate is a column (S, 1), so each lane has its own; nothing loops over lanes. Numbers equal those of
`torch.optim` with the same settings, up to the order of rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from normlab.catalogue import OPTIMIZERS, SCHEDULES, Entry
from normlab.catalogue.lazy import Lazy

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from normlab.config.schema import OptimSpec, RunSpec
else:
    torch = Lazy("torch")

__all__ = ["OPTIMIZERS", "SCHEDULES", "SGD", "Adam", "AdamW", "Optimizer", "clip_factors", "rate"]


class Optimizer(Entry):
    """Base: holds the per-lane weight decay; `update` changes the parameters in place. With `looks` it may read values.

    What hangs on the number of the step comes in as numbers, so that a captured CUDA graph can be fed new ones."""

    def __init__(self, specs: Sequence[OptimSpec], params_SP: Tensor, looks: bool = True) -> None:
        self.spec, self.looks = specs[0], looks
        decay = [spec.weight_decay for spec in specs]
        self.decay_S1 = params_SP.new_tensor(decay).unsqueeze(1) if any(decay) else None

    def corrections(self, step: int) -> tuple[float, float]:
        """Factor on the rate, and eps, of step 1, 2, ..."""
        return 1.0, 0.0

    def update(self, params_SP: Tensor, grad_SP: Tensor, rate_S1: Tensor, corrections_2: Tensor) -> None:
        """One step at `rate_S1`, with `corrections` as a tensor. A lane at rate 0 keeps its parameters."""
        raise AssertionError("an optimiser defines update")

    def state(self) -> list[Tensor]:
        """The tensors that `update` changes beside the parameters."""
        return []

    def moment_fine(self, usual: bool) -> Tensor | None:
        """Whether each lane's second moment (S,) is still finite; None: it is, or there is none. `usual`: the gradients
        before clipping were seen to be no larger than 2^60."""
        return None

    def _decayed(self, params_SP: Tensor, grad_SP: Tensor) -> Tensor:
        return grad_SP if self.decay_S1 is None else torch.addcmul(grad_SP, params_SP, self.decay_S1)


class Adam(Optimizer):
    """Adam with bias correction; weight decay is added to the gradient (L2)."""

    title = "Adam"
    source = "Kingma & Ba 2014, arXiv:1412.6980, algorithm 1"

    def __init__(self, specs: Sequence[OptimSpec], params_SP: Tensor, looks: bool = True) -> None:
        super().__init__(specs, params_SP, looks)
        self.mean_SP = torch.zeros_like(params_SP)
        self.square_SP = torch.zeros_like(params_SP)
        self.scratch_SP = torch.empty_like(params_SP)
        self.one_lane: Callable[..., None] = torch_adam

    def corrections(self, step: int) -> tuple[float, float]:
        # m / c1 / (sqrt(v) / c2 + eps) is c2 / c1 times m / (sqrt(v) + c2 eps), which saves a pass over the buffer.
        correction2 = math.sqrt(1 - self.spec.beta2**step)
        return correction2 / (1 - self.spec.beta1**step), self.spec.eps * correction2

    def state(self) -> list[Tensor]:
        return [self.mean_SP, self.square_SP]

    def moment_fine(self, usual: bool) -> Tensor | None:
        # (1 - beta2) g^2 overflows from |g| = 1.8e19 on. The weight's step m / sqrt(v) is 0 from there on.
        return None if usual and self.decay_S1 is None else self.square_SP.amax(1).isfinite()

    def update(self, params_SP: Tensor, grad_SP: Tensor, rate_S1: Tensor, corrections_2: Tensor) -> None:
        grad_SP = self._decayed(params_SP, grad_SP)
        self._moment_step(params_SP, grad_SP, rate_S1 * corrections_2[0], corrections_2[1])

    def _moment_step(self, params_SP: Tensor, grad_SP: Tensor, rate_S1: Tensor, eps: Tensor) -> None:
        step = self._by_lane if self.looks else self._all_lanes
        step(params_SP, grad_SP, rate_S1, eps)

    def _all_lanes(self, params_SP: Tensor, grad_SP: Tensor, rate_S1: Tensor, eps: Tensor) -> None:
        """Every lane in each call, and nothing that waits for the device."""
        beta1, beta2 = self.spec.beta1, self.spec.beta2
        self.mean_SP.lerp_(grad_SP, 1 - beta1)
        self.square_SP.mul_(beta2).addcmul_(grad_SP, grad_SP, value=1 - beta2)
        torch.sqrt(self.square_SP, out=self.scratch_SP)
        self.scratch_SP.add_(eps)
        torch.div(self.mean_SP, self.scratch_SP, out=self.scratch_SP)
        params_SP.addcmul_(self.scratch_SP, rate_S1, value=-1)

    def _by_lane(self, params_SP: Tensor, grad_SP: Tensor, rate_S1: Tensor, eps: Tensor) -> None:
        """The same in one pass a lane."""
        for lane, rate in enumerate(rate_S1.flatten().tolist()):
            if rate:
                buffers = (x_SP[lane] for x_SP in (params_SP, grad_SP, self.mean_SP, self.square_SP))
                self.one_lane(*buffers, self.spec, rate, float(eps))


def torch_adam(
    param_P: Tensor, grad_P: Tensor, mean_P: Tensor, square_P: Tensor, optim: OptimSpec, rate: float, eps: float
) -> None:
    """Adam's step of one lane by torch's fused kernel, whose own bias corrections are 1 so late in the training."""
    torch._fused_adam_(
        [param_P], [grad_P], [mean_P], [square_P], [], [torch.tensor(1e9)],
        lr=rate, beta1=optim.beta1, beta2=optim.beta2, eps=eps,
        weight_decay=0.0, amsgrad=False, maximize=False,
    )  # fmt: skip


class AdamW(Adam):
    """Adam with decoupled weight decay: the parameters shrink by rate * decay first."""

    title = "AdamW"
    source = "Loshchilov & Hutter 2017, arXiv:1711.05101"

    def update(self, params_SP: Tensor, grad_SP: Tensor, rate_S1: Tensor, corrections_2: Tensor) -> None:
        if self.decay_S1 is not None:
            params_SP.mul_(1 - rate_S1 * self.decay_S1)
        self._moment_step(params_SP, grad_SP, rate_S1 * corrections_2[0], corrections_2[1])


class SGD(Optimizer):
    """Gradient descent with heavy-ball momentum (no dampening); weight decay is added to the gradient (L2)."""

    title = "SGD"

    def __init__(self, specs: Sequence[OptimSpec], params_SP: Tensor, looks: bool = True) -> None:
        super().__init__(specs, params_SP, looks)
        self.velocity_SP = torch.zeros_like(params_SP) if self.spec.momentum else None

    def state(self) -> list[Tensor]:
        return [] if self.velocity_SP is None else [self.velocity_SP]

    def update(self, params_SP: Tensor, grad_SP: Tensor, rate_S1: Tensor, corrections_2: Tensor) -> None:
        grad_SP = self._decayed(params_SP, grad_SP)
        if self.velocity_SP is not None:
            grad_SP = self.velocity_SP.mul_(self.spec.momentum).add_(grad_SP)
        params_SP.addcmul_(grad_SP, rate_S1, value=-1)


# Share of the peak rate, for a fraction 0 <= p < 1 of the steps after warm-up; the last step is never wasted at 0.
def constant(p: float) -> float:
    """The peak rate to the end."""
    return 1.0


def linear(p: float) -> float:
    """A straight line down to zero."""
    return 1.0 - p


def cosine(p: float) -> float:
    """Half a cosine down to zero."""
    return (1 + math.cos(math.pi * p)) / 2


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
