"""A norm with state, as a user may write one: it subtracts a running mean and counts the batches that it has seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from registered import only_here
from torch import Tensor

from normlab.model.norms import NORMS, Norm


class Running(Norm):
    """y = g (x - m), where m follows the mean of the batches; non-finite from batch `LAST` + 1 on."""

    LAST = 10**9

    def start(self, width: int) -> None:
        self.gain = self.vector(width, 1.0)
        self.state("mean", width, 0.0)
        self.state("batches", 1, 0.0)

    def normalise(self, x_SBTD: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                self.mean.lerp_(x_SBTD.mean((1, 2), keepdim=True).to(self.mean.dtype), 0.25)
                self.batches.add_(1)
        y_SBTD = (x_SBTD - self.mean) * self.gain
        return y_SBTD.masked_fill(self.batches > self.LAST, float("inf"))


@contextmanager
def running(last: int = Running.LAST) -> Iterator[None]:
    """Register it as `running`."""
    with only_here():
        NORMS["running"] = type("Running", (Running,), {"LAST": last})
        yield
