"""The formula of every norm: against torch's own module, against the closed form, and through its gradient."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from normlab.model.norms import NORMS, Norm
from normlab.model.part import Site, make

LANES, WIDTH = 2, 12


def norm_of(name: str, width: int = WIDTH, lanes: int = LANES, site: Site | None = None, **options: Any) -> Any:
    return make(NORMS, name, width, lanes=lanes, options=NORMS[name].Options(**options), site=site)


def redrawn(norm: nn.Module) -> nn.Module:
    """The norm with parameters of order one, every lane its own."""
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return norm


@pytest.fixture
def x_SBTD() -> Tensor:
    return torch.randn(LANES, 3, 5, WIDTH, generator=torch.Generator().manual_seed(3)) * 3 + 1.5


def rms(x: np.ndarray, of: int, eps: float) -> np.ndarray:
    """The root mean square of the first `of` entries."""
    return np.sqrt(np.sum(x[..., :of] ** 2, -1, keepdims=True) / of + eps)


def deviation(x: np.ndarray, axes: tuple[int, ...], eps: float) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def full_rms(x: np.ndarray) -> np.ndarray:
    """By the definition: the zero-mean vector of one entry more."""
    full = np.concatenate([x, -x.sum(-1, keepdims=True)], -1)
    return np.sqrt(np.mean(full**2, -1, keepdims=True) + 1e-6)


erf = np.vectorize(math.erf)
# x and the parameters of all lanes (S, 1, 1, D) to y, in float64 and without the package.
CLOSED = {
    "none": lambda x, p: x,
    "layernorm": lambda x, p: p["gain"] * deviation(x, (3,), 1e-5) + p["bias"],
    "rmsnorm": lambda x, p: p["gain"] * x / rms(x, WIDTH, 1e-6),
    "prmsnorm": lambda x, p: p["gain"] * x / rms(x, 1, 1e-6),
    "crmsnorm": lambda x, p: p["gain"] * x / full_rms(x),
    "scalenorm": lambda x, p: p["gain"] * x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-5),
    "batchnorm": lambda x, p: p["gain"] * deviation(x, (1, 2), 1e-5) + p["bias"],
    "dyt": lambda x, p: p["gain"] * np.tanh(p["alpha"] * x) + p["bias"],
    "derf": lambda x, p: p["gain"] * erf(p["alpha"] * x + p["shift"]) + p["bias"],
    "seednorm": lambda x, p: (
        (np.tanh(np.einsum("sbtd,sd->sbt", x, p["beta"][:, 0, 0]))[..., None] * p["alpha"] + p["gamma"])
        * x
        / rms(x, WIDTH, 1e-5)
    ),
    "bhyt": lambda x, p: p["gain"] * np.tanh(p["slope"] / 10 * x / rms(x, WIDTH, 1e-6)),
}


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_is_its_formula(name: str, x_SBTD: Tensor) -> None:
    norm, x = redrawn(norm_of(name)).double(), x_SBTD.double()
    parameters = {key: value.detach().numpy() for key, value in norm.named_parameters()}
    expected = torch.from_numpy(CLOSED[name](x.numpy(), parameters))
    torch.testing.assert_close(norm(x).detach(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NORMS)
def test_the_gradient_is_that_of_the_formula(name: str) -> None:
    norm = redrawn(norm_of(name, width=5)).double()
    generator = torch.Generator().manual_seed(5)
    x = (torch.randn(LANES, 2, 3, 5, generator=generator, dtype=torch.float64) + 0.5).requires_grad_()
    assert norm.training
    assert torch.autograd.gradcheck(lambda x, *_: norm(x), (x, *norm.parameters()), eps=1e-6, atol=1e-7)


def native(name: str, lane: int, norm: nn.Module) -> nn.Module:
    """torch's own module with the parameters of one lane."""
    theirs = NORMS[name].native(WIDTH)
    ours = {"weight": norm.gain, **({"bias": norm.bias} if hasattr(norm, "bias") else {})}
    theirs.load_state_dict({key: value[lane, 0, 0].detach() for key, value in ours.items()}, strict=False)
    return theirs


def test_which_norms_torch_has() -> None:
    having = [name for name in NORMS if NORMS[name].native(4) is not None]
    assert having == ["layernorm", "rmsnorm", "batchnorm"]


@pytest.mark.parametrize("name", ["layernorm", "rmsnorm"])
def test_torch_agrees(name: str, x_SBTD: Tensor) -> None:
    ours = redrawn(norm_of(name))
    for lane in range(LANES):
        torch.testing.assert_close(ours(x_SBTD)[lane], native(name, lane, ours)(x_SBTD[lane]))


def test_torch_agrees_on_batchnorm_and_its_running_statistics(x_SBTD: Tensor) -> None:
    ours = redrawn(norm_of("batchnorm"))
    theirs = [native("batchnorm", lane, ours) for lane in range(LANES)]
    for factor in (1.0, 0.1, -4.0):
        y = ours(x_SBTD * factor)
        for lane, module in enumerate(theirs):
            torch.testing.assert_close(y[lane].flatten(0, 1), module((x_SBTD[lane] * factor).flatten(0, 1)))
    for lane, module in enumerate(theirs):
        torch.testing.assert_close(ours.running_mean[lane, 0, 0], module.running_mean)
        torch.testing.assert_close(ours.running_variance[lane, 0, 0], module.running_var)
        expected = module.eval()(x_SBTD[lane].flatten(0, 1))
        torch.testing.assert_close(ours.eval()(x_SBTD)[lane].flatten(0, 1), expected)


def test_running_statistics_move_in_training_only(x_SBTD: Tensor) -> None:
    norm = norm_of("batchnorm", momentum=0.25).eval()
    norm(x_SBTD)
    assert bool((norm.running_mean == 0).all()) and bool((norm.running_variance == 1).all())
    norm.train()(x_SBTD)
    channels = x_SBTD.flatten(1, 2)
    torch.testing.assert_close(norm.running_mean[:, 0, 0], 0.25 * channels.mean(1))
    torch.testing.assert_close(norm.running_variance[:, 0, 0], 0.75 + 0.25 * channels.var(1))


def test_start_values() -> None:
    ones = {"gain": 1.0, "bias": 0.0, "alpha": 0.5, "shift": 0.0}
    own = {
        "scalenorm": {"gain": 12**0.5},
        "seednorm": {"gamma": 1.0, "alpha": 1.0, "beta": 0.0},
        "bhyt": {"gain": 1.0, "slope": 2.0},
    }
    single = {("scalenorm", "gain"), ("dyt", "alpha"), ("derf", "alpha"), ("derf", "shift"), ("bhyt", "slope")}
    for name in NORMS:
        for key, value in norm_of(name).named_parameters():
            assert value.shape == (LANES, 1, 1, 1 if (name, key) in single else WIDTH), (name, key)
            torch.testing.assert_close(value.detach(), torch.full_like(value, own.get(name, ones)[key]))
    assert list(norm_of("none").parameters()) == []
    assert norm_of("dyt", alpha=0.8).alpha[0].item() == pytest.approx(0.8)
    assert norm_of("derf", alpha=0.8).alpha[0].item() == pytest.approx(0.8)


def test_bhyt_starts_twice_as_steep_before_a_mixer() -> None:
    for sublayer, slope in (("mixer", 2.0), ("ffn", 1.0), ("final", 1.0)):
        assert bool((norm_of("bhyt", site=Site(1, 2, sublayer)).slope == slope).all())
    assert NORMS["bhyt"].final == "rmsnorm" and NORMS["layernorm"].final == "layernorm"


def test_seednorm_starts_as_rmsnorm(x_SBTD: Tensor) -> None:
    torch.testing.assert_close(norm_of("seednorm")(x_SBTD), norm_of("rmsnorm", eps=1e-5)(x_SBTD))


@pytest.mark.parametrize(("p", "width", "entries"), [(0.0625, 64, 4), (0.0625, 12, 1), (0.07, 100, 7), (1.0, 7, 7)])
def test_prmsnorm_looks_at_the_first_entries(p: float, width: int, entries: int) -> None:
    x = torch.arange(1.0, width + 1).view(1, 1, 1, -1)
    y = norm_of("prmsnorm", width, lanes=1, p=p)(x)
    torch.testing.assert_close(y, x / x[..., :entries].square().mean().sqrt())


def test_eps_sits_inside_the_root() -> None:
    # With eps 1, a vector of 0.01 becomes 0.01 / sqrt(1.0001) inside and 0.01 / 1.01 outside.
    for name in ("rmsnorm", "prmsnorm", "seednorm"):
        y = norm_of(name, 4, lanes=1, eps=1.0)(torch.full((1, 1, 1, 4), 0.01))
        torch.testing.assert_close(y, torch.full_like(y, 0.01 / 1.0001**0.5), rtol=1e-6, atol=0)
    x = torch.tensor([0.01, -0.01]).view(1, 1, 1, 2)
    for name in ("layernorm", "crmsnorm"):
        scale = 1.0001 if name == "layernorm" else 1 + 2e-4 / 3
        torch.testing.assert_close(norm_of(name, 2, lanes=1, eps=1.0)(x), x / scale**0.5, rtol=1e-6, atol=0)


def test_scalenorm_divides_by_eps_at_least() -> None:
    x = torch.zeros(1, 1, 1, 4)
    x[..., 0] = 0.25
    x.requires_grad_()
    y = norm_of("scalenorm", 4, lanes=1, eps=0.5)(x)
    torch.testing.assert_close(y, 2 * x / 0.5)
    zero = torch.zeros(1, 1, 1, 4, requires_grad=True)
    norm_of("scalenorm", 4, lanes=1)(zero).sum().backward()
    assert zero.grad is not None and bool(zero.grad.isfinite().all())


class Sums(TorchDispatchMode):
    """Counts the sums over the last axis; torch's LayerNorm is taken apart first."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.native_layer_norm.default:
            with self:
                return torch._decomp.decomposition_table[func](*args, **(kwargs or {}))
        name, result = func.overloadpacket.__name__, func(*args, **(kwargs or {}))
        if name in ("sum", "mean", "var_mean", "var", "linalg_vector_norm"):
            dims = next(argument for argument in args[1:] if isinstance(argument, list | tuple))
            if [dim % args[0].dim() for dim in dims] == [args[0].dim() - 1]:
                self.count += 2 if name == "var_mean" else 1
        return result


@pytest.mark.parametrize("name", NORMS)
def test_reductions_are_those_of_a_forward_pass(name: str, x_SBTD: Tensor) -> None:
    norm = redrawn(norm_of(name))
    with Sums() as sums:
        norm(x_SBTD)
    assert sums.count == NORMS[name].reductions


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_says_what_it_is(name: str) -> None:
    norm: type[Norm] = NORMS[name]
    assert norm.title and norm.__doc__
    if name != "none":
        assert "y = " in norm.__doc__ or "y_d = " in norm.__doc__
        assert "arXiv" in norm.source and min(norm.operations) > 0
        assert norm.operations[0] >= 2 * norm.reductions  # a sum and what is done with it


def test_pairs_that_are_unusual() -> None:
    from types import SimpleNamespace

    def said(name: str, placement: str = "pre", width: int = 8) -> str | None:
        return NORMS[name].unusual(SimpleNamespace(placement=placement, width=width))

    assert [name for name in NORMS if said(name)] == []
    assert [name for name in NORMS if said(name, "post")] == ["dyt", "derf", "bhyt"]
    one = ["layernorm", "rmsnorm", "prmsnorm", "scalenorm", "seednorm", "bhyt"]
    assert [name for name in NORMS if said(name, width=1)] == one
