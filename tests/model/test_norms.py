"""Norms against torch's own, and the properties that every catalogued norm must have."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from normlab.model.norms import NORMS, DyT, LayerNorm, RMSNorm

LANES, WIDTH = 2, 12


@pytest.fixture
def x_SBTD() -> torch.Tensor:
    return torch.randn(LANES, 3, 5, WIDTH, generator=torch.Generator().manual_seed(3)) * 3 + 1.5


def randomised(norm: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return norm


@pytest.mark.parametrize("eps", [None, 1e-2])
def test_layernorm_equals_torch(x_SBTD: torch.Tensor, eps: float | None) -> None:
    ours = randomised(LayerNorm(WIDTH, lanes=LANES, eps=eps))
    for lane in range(LANES):
        theirs = nn.LayerNorm(WIDTH, eps=1e-5 if eps is None else eps)
        theirs.load_state_dict({"weight": ours.gain[lane, 0, 0], "bias": ours.bias[lane, 0, 0]})
        torch.testing.assert_close(ours(x_SBTD)[lane], theirs(x_SBTD[lane]))


@pytest.mark.parametrize("eps", [None, 1e-2])
def test_rmsnorm_equals_torch(x_SBTD: torch.Tensor, eps: float | None) -> None:
    ours = randomised(RMSNorm(WIDTH, lanes=LANES, eps=eps))
    for lane in range(LANES):
        theirs = nn.RMSNorm(WIDTH, eps=1e-6 if eps is None else eps)
        theirs.load_state_dict({"weight": ours.gain[lane, 0, 0]})
        torch.testing.assert_close(ours(x_SBTD)[lane], theirs(x_SBTD[lane]))


def test_rmsnorm_keeps_eps_inside_the_root() -> None:
    # Inside, x = 0.01 with eps 1 gives 0.01 / sqrt(1.0001); outside it would give 0.01 / 1.01.
    y = RMSNorm(4, eps=1.0)(torch.full((1, 1, 1, 4), 0.01))
    torch.testing.assert_close(y, torch.full_like(y, 0.01 / 1.0001**0.5))


def test_dyt_is_its_formula(x_SBTD: torch.Tensor) -> None:
    norm = randomised(DyT(WIDTH, lanes=LANES))
    torch.testing.assert_close(norm(x_SBTD), norm.gain * torch.tanh(norm.alpha * x_SBTD) + norm.bias)
    assert DyT(WIDTH, alpha=0.8).alpha.item() == pytest.approx(0.8)


def test_start_values(x_SBTD: torch.Tensor) -> None:
    for norm in (LayerNorm(WIDTH), RMSNorm(WIDTH), DyT(WIDTH)):
        assert bool((norm.gain == 1).all())
    assert bool((LayerNorm(WIDTH).bias == 0).all()) and DyT(WIDTH).alpha.item() == 0.5
    assert NORMS["none"](WIDTH)(x_SBTD) is x_SBTD
    assert list(NORMS["none"](WIDTH).parameters()) == []


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_works_token_by_token_and_lane_by_lane(name: str, x_SBTD: torch.Tensor) -> None:
    norm = randomised(NORMS[name](WIDTH, lanes=LANES))
    y = norm(x_SBTD)
    assert y.shape == x_SBTD.shape and y.dtype == x_SBTD.dtype
    other = x_SBTD.clone()
    other[0, 1, 2] *= 7
    changed = (norm(other) != y).any(-1)
    expected = torch.zeros_like(changed)
    expected[0, 1, 2] = True  # no other position, sequence or lane: statistics run over the width alone
    assert torch.equal(changed, expected)


@pytest.mark.parametrize("name", NORMS)
def test_statistics_are_wide_where_the_stream_is_half(name: str) -> None:
    # 300 squared overflows float16 (65504), so a mean square taken in float16 would give 0 or NaN.
    x = torch.tensor([300.0, -300.0, 299.0, -301.0], dtype=torch.float16).view(1, 1, 1, 4)
    norm = NORMS[name](4)
    y = norm(x)
    assert y.dtype == torch.float16
    torch.testing.assert_close(y, norm(x.float()).half())
    assert bool(y.isfinite().all()) and bool((y.abs() > 0.5).all())
