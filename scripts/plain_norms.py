"""The norms of the toy net in the plainest torch: each is its formula over the last axis, D entries of one token.

Options are keyword arguments, start values are those of the papers. g is a gain that starts at 1, b a bias from 0.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn


def vector(size: int, value: float) -> nn.Parameter:
    """A learnable vector, all entries alike."""
    return nn.Parameter(torch.full((size,), value))


class RMSNorm(nn.Module):
    """g x / sqrt(mean(x^2) + eps), eps inside the root (arXiv:1910.07467)."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps, self.g = eps, vector(width, 1.0)

    def mean_square(self, x_BTD: Tensor) -> Tensor:
        return (x_BTD * x_BTD).mean(-1, keepdim=True)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.g * x_BTD / torch.sqrt(self.mean_square(x_BTD) + self.eps)


class PRMSNorm(RMSNorm):
    """RMSNorm with the mean square of the first ceil(p D) entries only (the same paper, section 4)."""

    def __init__(self, width: int, eps: float = 1e-6, p: float = 1 / 16) -> None:
        super().__init__(width, eps)
        self.first = math.ceil(p * width)

    def mean_square(self, x_BTD: Tensor) -> Tensor:
        return super().mean_square(x_BTD[..., : self.first])


class CRMSNorm(RMSNorm):
    """RMSNorm of a vector of D + 1 entries with mean zero, of which x are the first D (arXiv:2305.14858). The last one
    is minus the sum of the others."""

    def mean_square(self, x_BTD: Tensor) -> Tensor:
        whole = torch.cat([x_BTD, -x_BTD.sum(-1, keepdim=True)], dim=-1)
        return super().mean_square(whole)


class ScaleNorm(nn.Module):
    """g x / max(|x|, eps), one scalar g that starts at sqrt(D), |x| the length of the vector (arXiv:1910.05895)."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps, self.g = eps, nn.Parameter(torch.tensor(math.sqrt(width)))

    def forward(self, x_BTD: Tensor) -> Tensor:
        length = torch.sqrt((x_BTD * x_BTD).sum(-1, keepdim=True))
        return self.g * x_BTD / length.clamp(min=self.eps)


class BatchNorm(nn.Module):
    """torch's own, for each channel over batch and time; running statistics in evaluation (arXiv:1502.03167)."""

    def __init__(self, width: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width, eps=eps, momentum=momentum)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.norm(x_BTD.flatten(0, 1)).view(x_BTD.shape)


class DyT(nn.Module):
    """g tanh(alpha x) + b with one learnable scalar alpha (arXiv:2503.10622)."""

    def __init__(self, width: int, alpha: float = 0.5) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(alpha))
        self.g, self.b = vector(width, 1.0), vector(width, 0.0)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.g * torch.tanh(self.alpha * x_BTD) + self.b


class Derf(nn.Module):
    """g erf(alpha x + s) + b with learnable scalars alpha and s (arXiv:2512.10938)."""

    def __init__(self, width: int, alpha: float = 0.5, shift: float = 0.0) -> None:
        super().__init__()
        self.alpha, self.s = nn.Parameter(torch.tensor(alpha)), nn.Parameter(torch.tensor(shift))
        self.g, self.b = vector(width, 1.0), vector(width, 0.0)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.g * torch.erf(self.alpha * x_BTD + self.s) + self.b


class SeedNorm(nn.Module):
    """(tanh(x . beta) alpha + gamma) x / sqrt(mean(x^2) + eps): a gain that looks at the token (arXiv:2510.22777, the
    formula from a third party's code)."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.gamma, self.alpha, self.beta = vector(width, 1.0), vector(width, 1.0), vector(width, 0.0)

    def forward(self, x_BTD: Tensor) -> Tensor:
        gate = torch.tanh((x_BTD * self.beta).sum(-1, keepdim=True))
        rms = torch.sqrt((x_BTD * x_BTD).mean(-1, keepdim=True) + self.eps)
        return (gate * self.alpha + self.gamma) * x_BTD / rms


class BHyT(nn.Module):
    """w tanh((lambda / kappa) x / sqrt(mean(x^2) + eps)), lambda a learnable scalar that starts at 2 for mixers, at 1
    elsewhere (arXiv:2601.09719)."""

    def __init__(self, width: int, eps: float = 1e-6, kappa: float = 10.0, lam: float = 1.0) -> None:
        super().__init__()
        self.eps, self.kappa = eps, kappa
        self.w, self.lam = vector(width, 1.0), nn.Parameter(torch.tensor(lam))

    def forward(self, x_BTD: Tensor) -> Tensor:
        rms = torch.sqrt((x_BTD * x_BTD).mean(-1, keepdim=True) + self.eps)
        return self.w * torch.tanh(self.lam / self.kappa * x_BTD / rms)


NORMS: dict[str, Any] = {
    "none": lambda width: nn.Identity(),
    "layernorm": lambda width, eps=1e-5: nn.LayerNorm(width, eps=eps),
    "rmsnorm": RMSNorm,
    "prmsnorm": PRMSNorm,
    "crmsnorm": CRMSNorm,
    "scalenorm": ScaleNorm,
    "batchnorm": BatchNorm,
    "dyt": DyT,
    "derf": Derf,
    "seednorm": SeedNorm,
    "bhyt": BHyT,
}
