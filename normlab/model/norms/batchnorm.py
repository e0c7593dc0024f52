"""BatchNorm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlab.catalogue import Field
from normlab.model.norms.base import EpsOptions, Norm
from normlab.model.norms.whole_range import Unit, masked, normalised

if TYPE_CHECKING:
    from torch import Tensor, nn


class BatchNorm(Norm):
    """Centre and scale each channel by the statistics of its batch; later tokens and other sequences enter.

        y_d = g_d (x_d - mean(x_d)) / sqrt(var(x_d) + eps) + b_d

    In training mean and the biased variance run over batch and time, lane by lane, and running statistics follow them:
    r = (1 - momentum) r + momentum new, with the unbiased variance. In evaluation these take their place. eps (1e-5)
    sits inside the root; g starts at 1, b at 0, the running mean at 0, the running variance at 1; momentum is 0.1. The
    running variance is a float32: of a channel beyond 1e19 it is infinite, and that channel is 0 in evaluation.
    """

    title = "BatchNorm"
    source = "Ioffe & Szegedy 2015, arXiv:1502.03167, algorithms 1 and 2"
    reductions = 0  # none over the width: its two sums run over batch and time
    # Forward: sum, centre, square, sum, scale, gain, bias. Backward: bias 1, gain 2, g * gain 1, its mean 1, its mean
    # with the unit vector 2, and x 4.
    operations = (7, 11)

    running_mean: Tensor
    running_variance: Tensor

    class Options(EpsOptions):
        """eps sits inside the root."""

        momentum: float = Field(0.1, gt=0, le=1, description="part of a batch in the running statistics")

    def start(self, width: int) -> None:
        self.gain, self.bias = self.vector(width, 1.0), self.vector(width, 0.0)
        self.state("running_mean", width, 0.0)
        self.state("running_variance", width, 1.0)

    def normalise(self, x_SBTD: Tensor) -> Tensor:
        return (self.by_batch(x_SBTD) if self.training else self.by_running(x_SBTD)) * self.gain + self.bias

    def by_running(self, x_SBTD: Tensor) -> Tensor:
        """The unit channels of evaluation."""
        return (x_SBTD - self.running_mean) * (self.running_variance + self.options.eps).rsqrt()

    def by_batch(self, x_SBTD: Tensor) -> Tensor:
        """The unit channels of training; the running statistics follow."""
        seen = []

        def unit(x_SBTD: Tensor, elsewhere: Tensor | None) -> Unit:
            mean_S11D = x_SBTD.mean((1, 2), keepdim=True)
            centred_SBTD = x_SBTD - mean_S11D
            variance_S11D = masked(centred_SBTD, elsewhere).square().mean((1, 2), keepdim=True)
            seen.append((mean_S11D.detach(), variance_S11D.detach()))
            scale_S11D = (variance_S11D + self.options.eps).rsqrt()
            return Unit(centred_SBTD * scale_S11D, scale_S11D, mean_S11D)

        y_SBTD = normalised(unit, x_SBTD, (1, 2))
        self.follow(*seen[0], x_SBTD.shape[1] * x_SBTD.shape[2])
        return y_SBTD

    def follow(self, mean_S11D: Tensor, variance_S11D: Tensor, tokens: int) -> None:
        """Move the running statistics towards those of a batch of so many tokens."""
        unbiased = variance_S11D * (tokens / max(tokens - 1, 1))
        self.running_mean.lerp_(mean_S11D.to(self.running_mean.dtype), self.options.momentum)
        self.running_variance.lerp_(unbiased.to(self.running_variance.dtype), self.options.momentum)

    @staticmethod
    def native(width: int) -> nn.Module:
        from torch import nn

        return nn.BatchNorm1d(width, eps=1e-5)
