"""A stack whose gradients, evaluations and Adam come from the C++ step: the hooks that the package's would need."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fused.build import built
from fused.fused import Fused, adam_step
from normlab.train import stack as plain
from normlab.train.optim import Adam
from normlab.train.subnormals import flushing


class FusedStack(plain.Stack):
    """Same questions, same answers up to rounding; `fused.refusal` says which specs it does not know."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        library = built().library
        assert library is not None, built().why_not
        self.fused, self.library = Fused(library, self.model, self.specs[0], self.params_SP), library
        if isinstance(self.optimizer, Adam):
            self.optimizer._by_lane = self._adam  # type: ignore[method-assign]

    def _adam(self, params_SP: Tensor, grad_SP: Tensor, rate_S1: Tensor, eps: Tensor) -> None:
        adam = self.optimizer
        assert isinstance(adam, Adam)
        numbers = {"beta1": adam.spec.beta1, "beta2": adam.spec.beta2, "eps": float(eps), "decay": 0.0, "shrink": 1.0}
        rates = rate_S1.flatten().tolist()
        adam_step(self.library, params_SP, grad_SP, adam.mean_SP, adam.square_SP, rates, numbers)

    def gradients(self, tokens_SBT: Tensor) -> tuple[Tensor, Tensor]:
        return self.fused.gradients(tokens_SBT)

    @flushing()
    @torch.no_grad()
    def evaluate(self, tokens_BT: Tensor) -> tuple[Tensor, Tensor]:
        chunks = tokens_BT.split(plain.EVALUATION_CHUNK)
        found = [(len(chunk_BT), *self.fused.evaluate(chunk_BT)) for chunk_BT in chunks]
        total_S = torch.stack([loss_S.double() * count for count, loss_S, _ in found]).sum(0)
        return (total_S / len(tokens_BT)).to(self.params_SP.dtype), torch.stack([rms for *_, rms in found]).amax(0)
