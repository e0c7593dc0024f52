"""What every norm must be besides its formula: one token and one lane at a time, right over the range of float32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from normlab.model.norms import NORMS
from normlab.model.part import make

SCALED = [name for name in NORMS if name not in ("none", "dyt", "derf")]  # those that divide by a statistic
OF_TOKENS = [name for name in SCALED if name != "batchnorm"]


def norm_of(name: str, width: int, lanes: int = 1, **options: Any) -> Any:
    return make(NORMS, name, width, lanes=lanes, options=NORMS[name].Options(**options))


def redrawn(norm: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return norm


def stream(width: int, lanes: int = 3) -> Tensor:
    return torch.randn(lanes, 3, 5, width, generator=torch.Generator().manual_seed(3)) * 3 + 1.5


def all_results(norm: nn.Module, x_SBTD: Tensor) -> list[Tensor]:
    """Result, gradients and state of a residual block that holds nothing but the norm; S first."""
    x_SBTD = x_SBTD.clone().requires_grad_()
    y_SBTD = x_SBTD + norm(x_SBTD)
    slopes = torch.linspace(-1, 2, y_SBTD[0].numel()).view(y_SBTD.shape[1:])
    grads = torch.autograd.grad((y_SBTD * slopes).sum(), [x_SBTD, *norm.parameters()])
    return [y_SBTD.detach(), *grads, *norm.buffers()]


@pytest.mark.parametrize("neighbour", ["ordinary", "nan", "inf", "huge", "tiny", "far from zero"])
@pytest.mark.parametrize("width", [7, 16, 33])
@pytest.mark.parametrize("name", NORMS)
def test_a_lane_alone_has_the_bits_that_it_has_in_company(name: str, width: int, neighbour: str) -> None:
    x = stream(width)
    strange = {"nan": float("nan"), "inf": float("inf"), "huge": 1e25, "tiny": 0.0, "far from zero": 1e5}
    if neighbour != "ordinary":
        x[1, 1, 2, 3] = strange[neighbour]
    if neighbour == "huge":
        x[1, 2] *= 1e25
    if neighbour == "tiny":
        x[1, 2] *= 1e-30
    if neighbour == "far from zero":
        x[1, 2] += 1e5
    options = {"eps": 0.0} if neighbour == "tiny" and name in SCALED else {}
    together = redrawn(norm_of(name, width, 3, **options))
    expected = all_results(together, x)
    for lanes in ([0], [2], [0, 2]):
        alone = norm_of(name, width, len(lanes), **options)
        alone.load_state_dict(
            {key: value[lanes] for key, value in redrawn(norm_of(name, width, 3)).state_dict().items()}
        )
        for there, here in zip(expected, all_results(alone, x[lanes]), strict=True):
            assert bool(here.isfinite().all()) and torch.equal(there[lanes], here)


class Calls(TorchDispatchMode):
    """What is called, by name, and on what."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if args and isinstance(args[0], Tensor):
            self.seen.append((func.overloadpacket.__name__, args[0]))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["dyt", "derf", "seednorm", "bhyt"])
def test_transcendental_functions_see_whole_registers(name: str) -> None:
    # Where a lane's entries do not fill them, the last bits may hang on its neighbours, on some CPUs.
    with Calls() as calls:
        norm_of(name, 7, 3)(stream(7))
    (x,) = [x for called, x in calls.seen if called in ("tanh", "erf")]
    assert len(x) == 3 and x[0].numel() % 16 == 0


@pytest.mark.parametrize("name", NORMS)
def test_a_change_reaches_its_own_token_only(name: str) -> None:
    x = stream(12)
    norm = redrawn(norm_of(name, 12, 3))
    y = norm(x)
    other = x.clone()
    other[0, 1, 2] *= 7
    changed = (norm(other) != y).any(-1)
    expected = torch.zeros_like(changed)
    if name == "batchnorm":
        expected[0] = True  # its lane: statistics run over batch and time
    else:
        expected[0, 1, 2] = True
    assert torch.equal(changed, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", NORMS)
def test_shape_and_dtype_are_kept_and_the_input_is_not_written_to(name: str, dtype: torch.dtype) -> None:
    norm = redrawn(norm_of(name, 12, 3))
    x = stream(12).to(dtype)
    before = x.clone()
    y = norm(x)
    assert y.shape == x.shape and y.dtype == dtype and torch.equal(x, before)
    assert all(buffer.dtype == torch.float32 for buffer in norm.buffers())


@pytest.mark.parametrize("name", SCALED)
def test_statistics_are_wide_where_the_stream_is_half(name: str) -> None:
    # The square of 300 is beyond float16 (65504): statistics in float16 come out infinite, and the result 0 or NaN.
    x = torch.tensor([[300.0, -300.0, 290.0, -310.0], [-310.0, 290.0, -300.0, 300.0]], dtype=torch.float16)
    x = x.view(1, 1, 2, 4)
    y = norm_of(name, 4)(x)
    assert y.dtype == torch.float16
    torch.testing.assert_close(y, norm_of(name, 4)(x.float()).half())
    assert bool((y.abs() > 0.05).all())
    narrow = norm_of(name, 4, statistics="stream")(x)
    assert narrow.dtype == torch.float16
    if name != "layernorm":  # torch's own takes them in float32
        assert not bool((narrow.abs() > 0.05).all())


@pytest.mark.parametrize("name", [name for name in NORMS if name != "none"])
def test_statistics_in_float64_have_more_digits(name: str) -> None:
    x = stream(12)
    exact = redrawn(norm_of(name, 12, 3)).double()(x.double())
    wide = redrawn(norm_of(name, 12, 3, statistics="float64")).double()(x)
    assert wide.dtype == torch.float32 and torch.equal(wide, exact.float())
    assert not torch.equal(redrawn(norm_of(name, 12, 3))(x), wide)


def ramp(factor: float, lanes: int = 1) -> Tensor:
    return (torch.linspace(-1, 1, 64) * factor).expand(lanes, 2, 3, 64).clone()


def test_the_two_norms_of_the_article_at_1e19() -> None:
    end = (3 * 63 / 65) ** 0.5  # of 64 numbers evenly from -1 to 1, in units of their deviation
    for factor in (1e13, 1e19, 1e25, 1e30, 3e38):
        for name in ("layernorm", "rmsnorm"):
            y = norm_of(name, 64)(ramp(factor))
            assert y[0, 0, 0, -1].item() == pytest.approx(end, rel=1e-6)
            assert y[0, 1, 2, 0].item() == pytest.approx(-end, rel=1e-6)


@pytest.mark.parametrize("factor", [1e-30, 1e-22, 1e-13, 1e13, 1e17, 1e19, 1e25, 1e30, 1e38])
@pytest.mark.parametrize("name", SCALED)
def test_results_and_gradients_are_right_over_the_range_of_float32(name: str, factor: float) -> None:
    x = stream(16, lanes=2)
    x = x / x.abs().max() * 3
    if name == "seednorm":
        factor = min(factor, 1e30)  # the gradient of beta itself is beyond float32 at 1e38
        x[0, :, :, 8:] = 0  # its inner product is to be of order one: beta is 0 where x is not
    x[0] *= factor  # the other lane is as always
    norm = redrawn(norm_of(name, 16, 2, eps=0.0))
    if name == "seednorm":
        norm.beta.data[..., :8] = 0
    expected = all_results_branch(norm, x.double(), factor)
    for mine, right in zip(all_results_branch(norm, x, factor), expected, strict=True):
        torch.testing.assert_close(mine.double(), right.double(), rtol=2e-4, atol=2e-5)


def all_results_branch(norm: nn.Module, x_SBTD: Tensor, factor: float) -> list[Tensor]:
    """Result and gradients of the norm alone; the gradient of the first lane's x in units that suit it."""
    norm = norm.to(x_SBTD.dtype)
    x_SBTD = x_SBTD.clone().requires_grad_()
    y_SBTD = norm(x_SBTD)
    slopes = torch.linspace(-1, 2, y_SBTD[0].numel(), dtype=x_SBTD.dtype).view(y_SBTD.shape[1:])
    x_grad, *grads = torch.autograd.grad((y_SBTD * slopes).sum(), [x_SBTD, *norm.parameters()])
    x_grad = x_grad.double()
    x_grad[0] *= factor
    return [y_SBTD.detach(), x_grad, *grads]


@pytest.mark.parametrize("name", OF_TOKENS)
@pytest.mark.parametrize("strange", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_so(name: str, strange: float) -> None:
    x = stream(16, lanes=1)
    x[0, 1, 2, 3] = strange
    y = norm_of(name, 16)(x)
    assert not bool(y[0, 1, 2].isfinite().all())
    y[0, 1, 2] = 0
    assert bool(y.isfinite().all())


@pytest.mark.parametrize("name", SCALED)
def test_a_lane_of_nan_costs_no_second_pass(name: str) -> None:
    x = stream(16)
    norm = norm_of(name, 16, 3)
    wide = []
    for strange in (1.0, float("nan"), 1e25):
        x[1] = x[1] * strange
        with Calls() as calls:
            norm(x)
        wide.append(any(seen.dtype == torch.float64 for _, seen in calls.seen))
        x = stream(16)
    assert wide == [False, False, True]


def test_running_statistics_of_large_channels() -> None:
    x = stream(16)
    x[1, ..., 3] *= 1e15
    norm = norm_of("batchnorm", 16, 3, momentum=1.0)
    norm(x)
    torch.testing.assert_close(norm.running_mean[1, 0, 0, 3], x[1, ..., 3].mean())
    torch.testing.assert_close(norm.running_variance[1, 0, 0, 3], x[1, ..., 3].var())


@pytest.mark.parametrize("mean", [1e2, 1e3, -1e3, 1e4])
@pytest.mark.parametrize("name", ["layernorm", "batchnorm"])
def test_a_large_mean_costs_no_digits(name: str, mean: float) -> None:
    x = (mean + 0.001 * torch.arange(16.0)).view(1, 1, 1, 16)
    x = x.transpose(2, 3).expand(1, 1, 16, 3) if name == "batchnorm" else x
    x = x.clone().requires_grad_()
    norm = norm_of(name, x.shape[-1])
    exact = norm_of(name, x.shape[-1]).double()(x.double()).detach()
    torch.testing.assert_close(norm(x).double().detach(), exact, rtol=1e-6, atol=1e-6)
    if name == "layernorm" and mean > 0:
        first = {1e2: -1.34153, 1e3: -1.34151, 1e4: -1.33133}[mean]
        assert norm(x)[0, 0, 0, 0].item() == pytest.approx(first, abs=6e-6)
        theirs = nn.LayerNorm(16)(x)[0, 0, 0, 0].item()
        assert abs(theirs - first) > 1e-4  # torch's own has lost them


@pytest.mark.parametrize("name", ["layernorm", "rmsnorm"])
def test_ordinary_vectors_have_the_bits_of_the_plain_formula(name: str) -> None:
    norm = redrawn(norm_of(name, 24, 3))

    class Plain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if name == "layernorm":
                return nn.functional.layer_norm(x, (24,), eps=1e-5) * norm.gain + norm.bias
            return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * norm.gain

    plain = Plain()
    plain.gain = norm.gain
    if name == "layernorm":
        plain.bias = norm.bias
    for factor in (1e-9, 1.0, 1e11):
        for ours, theirs in zip(
            all_results(norm, stream(24) * factor), all_results(plain, stream(24) * factor), strict=True
        ):
            assert torch.equal(ours, theirs)
