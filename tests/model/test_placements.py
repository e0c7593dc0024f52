"""Placements by their equations, written out by hand; constants, gains, ramps, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from normlab.config.schema import ModelSpec, RunSpec, TaskSpec
from normlab.model.decoder import Decoder, build
from normlab.model.mixers import MIXERS, Mixer
from normlab.model.part import Site, make
from normlab.model.placements import PLACEMENTS, Placement

TASK = TaskSpec(vocab=11, length=6)
TOKENS = torch.arange(24).mul(7).remainder(11).view(1, 4, 6)


def net(depth: int = 2, seed: int = 0, **model: Any) -> Decoder:
    return build([RunSpec(task=TASK, model=ModelSpec(depth=depth, width=8, hidden=12, **model), seed=seed)])


def placed(name: str, layer: int = 1, depth: int = 1, clock: int = 0, ramp: int | None = None, **options: Any) -> Any:
    """A placement for a stream of two entries, the clock at some step; its own parameters are 3 and 5. Options are not
    checked: step -1 is post from the start."""
    entry = PLACEMENTS[name]
    site = Site(layer, depth, "mixer")
    options = entry.Options.model_construct(**(entry.Options().all() | options))
    placement = make(PLACEMENTS, name, 2, options=options, site=site, ramp_steps=ramp)
    placement.clock = torch.tensor([float(clock)])
    for parameter in placement.parameters():
        parameter.data.copy_(torch.tensor([3.0, 5.0])[: parameter.numel()])
    return placement


def double(v: Tensor, inner: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """A sublayer: twice its input, and 7; its inner point is before the 7."""
    return (2 * v if inner is None else inner(2 * v)) + 7


def square(v: Tensor) -> Tensor:
    return v * v


def plus_ten(v: Tensor) -> Tensor:
    return v + 10


# Name, where and when it is asked; the equation of an entry x with the weight w of a ramp's branch and its own
# parameter p. f(v) = 2 v + 7, the norm squares, a second norm adds 10.
EQUATIONS: list[tuple[str, dict[str, Any], Callable[[float, float, float], float]]] = [
    ("post", {}, lambda x, w, p: (x + w * (2 * x + 7)) ** 2),
    ("pre", {}, lambda x, w, p: x + w * (2 * x**2 + 7)),
    ("sandwich", {}, lambda x, w, p: x + w * (2 * x**2 + 7 + 10)),
    ("reordered", {}, lambda x, w, p: x + w * (2 * x + 7) ** 2),
    ("deepnorm", {"layer": 3, "depth": 8}, lambda x, w, p: (2 * x + w * (2 * x + 7)) ** 2),  # 16^(1/4) = 2
    ("subln", {}, lambda x, w, p: x + w * (2 * x**2 + 10 + 7)),
    ("admin", {}, lambda x, w, p: (p * x + w * (2 * x + 7)) ** 2),
    ("lns", {"layer": 4, "depth": 9}, lambda x, w, p: x + w * (2 * (x**2 / 2) + 7)),
    ("lns", {"layer": 4, "depth": 9, "learnable": True}, lambda x, w, p: x + w * (2 * (x**2 * 3) + 7)),
    ("mixln", {"layer": 2, "depth": 11}, lambda x, w, p: (x + w * (2 * x + 7)) ** 2),
    ("mixln", {"layer": 3, "depth": 11}, lambda x, w, p: x + w * (2 * x**2 + 7)),
    ("mixln", {"layer": 29, "depth": 100, "fraction": 0.29}, lambda x, w, p: (x + w * (2 * x + 7)) ** 2),
    ("mixln", {"layer": 30, "depth": 100, "fraction": 0.29}, lambda x, w, p: x + w * (2 * x**2 + 7)),
    ("rezero", {}, lambda x, w, p: x + w * 3 * (2 * x + 7)),
    ("layerscale", {}, lambda x, w, p: x + w * p * (2 * x**2 + 7)),
    ("pre-then-post", {"step": 5, "clock": 5}, lambda x, w, p: x + w * (2 * x**2 + 7)),
    ("pre-then-post", {"step": 5, "clock": 6}, lambda x, w, p: (x + w * (2 * x + 7)) ** 2),
]
IDS = [f"{name} {where}" for name, where, _ in EQUATIONS]


def norms_of(placement: Placement) -> list[Any]:
    own = [square, plus_ten][: placement.norms]
    return own + [plus_ten] * placement.inner_norms


class Function(torch.nn.Module):
    """A norm without parameters for a placement that asks its norm for buffers."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.parametrize(("name", "where", "equation"), EQUATIONS, ids=IDS)
def test_the_equation(name: str, where: dict[str, Any], equation: Any) -> None:
    placement = placed(name, **where)
    x = torch.tensor([1.0, 2.0]).view(1, 1, 1, 2)
    y = placement(x, double, [Function(norm) for norm in norms_of(placement)])
    assert y.flatten().tolist() == [equation(1.0, 1.0, 3.0), equation(2.0, 1.0, 5.0)]


def test_every_placement_has_its_equation_here() -> None:
    assert {name for name, *_ in EQUATIONS} == {name for name in PLACEMENTS if name not in PLACEMENTS.added}
    assert all(PLACEMENTS[name].ramped for name, *_ in EQUATIONS)


# Block 3 of 4 with a ramp of 8 steps: its branches are whole from step 6 on.
@pytest.mark.parametrize(("clock", "share"), [(0, 0.0), (1, 1 / 6), (3, 0.5), (6, 1.0), (7, 1.0)])
@pytest.mark.parametrize(("name", "where", "equation"), EQUATIONS, ids=IDS)
def test_the_residual_ramp(name: str, where: dict[str, Any], equation: Any, clock: int, share: float) -> None:
    if name == "pre-then-post":
        where = where | {"step": -1 if where["clock"] == 6 else 1000}
    layer, depth = where.get("layer", 3), where.get("depth", 4)
    placement = placed(name, **(where | {"clock": clock, "ramp": 8, "layer": layer, "depth": depth}))
    assert placement.ramp_steps == pytest.approx(8 * layer / depth)
    share = min(clock * depth / (8 * layer), 1.0) if "layer" in where else share
    x = torch.tensor([1.0, 2.0]).view(1, 1, 1, 2)
    y = placement(x, double, [Function(norm) for norm in norms_of(placement)])
    expected = [equation(1.0, share, 3.0), equation(2.0, share, 5.0)]
    assert y.flatten().tolist() == pytest.approx(expected, rel=1e-6)


def test_a_ramp_is_as_exact_as_the_stream() -> None:
    """One third in float32 would be wrong in the ninth digit."""
    placement = placed("pre", clock=1, ramp=3)
    x = torch.ones(1, 1, 1, 2, dtype=torch.float64)
    assert placement(x, lambda v: v, [lambda v: v]).flatten().tolist() == [1 + 1 / 3] * 2


def test_a_ramp_is_refused_where_nothing_is_ramped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PLACEMENTS["pre"], "ramped", False)
    with pytest.raises(ValueError, match="placement 'pre' has no residual sum that could be ramped"):
        ModelSpec.model_validate({"residual_ramp": {"warmup": 3}})


# formulas as printed: (blocks, factor on the stream, gain)
@pytest.mark.parametrize(
    ("depth", "alpha", "beta"),
    [(6, 1.8612, 0.3799), (12, 2.2134, 0.3195), (20, 2.5149, 0.2812), (30, 2.7832, 0.2541)],
)
def test_deepnorms_constants(depth: int, alpha: float, beta: float) -> None:
    placement = placed("deepnorm", depth, depth)
    x = torch.tensor([1.0, 2.0])
    assert placement(x, torch.zeros_like, [lambda v: v]).tolist() == pytest.approx([alpha, 2 * alpha], abs=2e-4)
    gains = placement.gains()
    assert set(gains) == {"value", "output", "ffn_in", "ffn_out"}  # q and k keep 1
    assert list(gains.values()) == pytest.approx([beta] * 4, abs=5e-5)
    assert not PLACEMENTS["deepnorm"].final_norm


class Attention(Mixer):
    """The matrices of an attention mixer, added up."""

    def start(self, width: int) -> None:
        self.maps = torch.nn.ModuleList(self.make_linear(width, width, role) for role in ("q", "k", "value", "output"))

    def forward(self, x_SBTD: Tensor, inner: Any = None) -> Tensor:
        return sum(linear(x_SBTD) for linear in self.maps)  # type: ignore[return-value]


@pytest.fixture
def attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MIXERS, "attention", Attention)


@pytest.mark.usefixtures("attention")
def test_q_and_k_keep_their_start_values() -> None:
    plain, scaled = (net(placement=name, mixer="attention").blocks[0].mixer.maps for name in ("post", "deepnorm"))
    ratios = [float((b.weight / a.weight).detach().mean()) for a, b in zip(plain, scaled, strict=True)]
    assert ratios == pytest.approx([1.0, 1.0, 0.5, 0.5], rel=1e-6)  # (8 * 2)^(-1/4)


@pytest.mark.parametrize(
    ("gains", "factor"),
    [({"value": 2.0, "output": 2.0}, 2.0), ({"output": 3.0}, 3.0), ({"value": 2.0, "mix": 5.0}, 5.0), ({}, 1.0)],
)
def test_the_only_matrix_of_a_mixer_takes_one_gain(monkeypatch: pytest.MonkeyPatch, gains: Any, factor: float) -> None:
    plain = net().blocks[1].mixer.linear.weight
    monkeypatch.setattr(PLACEMENTS["pre"], "gains", lambda self: gains)
    assert torch.equal(net().blocks[1].mixer.linear.weight, plain * factor)


@pytest.mark.parametrize(("depth", "start"), [(18, 0.1), (19, 1e-5), (24, 1e-5), (25, 1e-6)])
def test_layerscale_starts_by_the_depth(depth: int, start: float) -> None:
    placement = make(PLACEMENTS, "layerscale", 3, lanes=2, site=Site(1, depth, "ffn"))
    assert placement.weight.shape == (2, 1, 1, 3)
    assert bool((placement.weight == torch.tensor(start)).all())
    given = make(PLACEMENTS, "layerscale", 3, options=PLACEMENTS["layerscale"].Options(start=0.7))
    assert bool((given.weight == torch.tensor(0.7)).all())


def test_the_other_start_values() -> None:
    assert make(PLACEMENTS, "rezero", 3, lanes=2).weight.flatten().tolist() == [0.0, 0.0]
    assert make(PLACEMENTS, "admin", 3).weight.flatten().tolist() == [1.0, 1.0, 1.0]
    learnable = PLACEMENTS["lns"].Options(learnable=True)
    assert make(PLACEMENTS, "lns", 3, options=learnable, site=Site(4, 9, "ffn")).factor.flatten().tolist() == [0.5]


FINAL = {"pre", "sandwich", "reordered", "subln", "lns", "mixln", "layerscale", "pre-then-post"}


@pytest.mark.parametrize("name", PLACEMENTS)
def test_final_norms_and_norms(name: str) -> None:
    decoder = net(placement=name, norm="none" if name == "rezero" else "layernorm")
    assert (type(decoder.final_norm).__name__ == "LayerNorm") == (name in FINAL)
    widths = [[norm.width for norm in norms] for norms in (decoder.blocks[1].mixer_norms, decoder.blocks[1].ffn_norms)]
    expected = {"sandwich": [[8, 8], [8, 8]], "subln": [[8, 8], [8, 12]], "rezero": [[], []]}
    assert widths == expected.get(name, [[8], [8]])


@pytest.mark.parametrize("name", ["DeepNorm", "Post", "peri_ln", "postLN", "pre_then_post"])
def test_a_name_in_another_spelling_builds_nothing(name: str) -> None:
    with pytest.raises(ValueError, match="expected one of post, pre, sandwich"):
        net(placement=name)


@pytest.mark.usefixtures("attention")
@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ({"placement": "rezero"}, "'rezero' has no norm of its own: set model.norm to none"),
        ({"placement": "subln", "mixer": "attention"}, "mixer 'attention' has no inner_point"),
        *(({"placement": name, "norm": "none"}, f"'{name}' needs a norm: without one ") for name in PLACEMENTS),
    ],
    ids=str,
)
def test_nets_that_make_no_sense_are_refused(model: dict[str, Any], reason: str) -> None:
    if model.get("norm") == "none" and model["placement"] in ("pre", "post", "rezero", "layerscale"):
        assert ModelSpec(**model).norm == "none"
        return
    with pytest.raises(ValueError, match=reason):
        ModelSpec(**model)


@pytest.mark.parametrize(
    ("model", "clauses"),
    [
        ({"placement": "layerscale", "norm": "none"}, ["is defined with a norm before the sublayer"]),
        ({"placement": "mixln", "depth": 3}, ["has no post block at depth 3 with fraction 0.25: it is 'pre'"]),
        ({"placement": "mixln", "depth": 4}, []),
        ({"placement": "deepnorm"}, []),
    ],
    ids=str,
)
def test_unusual_nets_say_so(model: dict[str, Any], clauses: list[str]) -> None:
    assert ModelSpec(**model).unusual() == [f"placement '{model['placement']}' {clause}" for clause in clauses]
