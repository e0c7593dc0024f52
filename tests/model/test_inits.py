"""Start values: their size by role, biases, and the gains of placements on top of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from normlab.config.schema import ModelSpec, RunSpec, TaskSpec
from normlab.model.decoder import Decoder, build
from normlab.model.inits import INITS

WIDTH, HIDDEN, VOCAB, DEPTH = 64, 128, 96, 8


def net(seed: int = 0, **model: Any) -> Decoder:
    sizes = {"depth": DEPTH, "width": WIDTH, "hidden": HIDDEN}
    task = TaskSpec(vocab=VOCAB, length=6)
    return build([RunSpec(task=task, model=ModelSpec(**(sizes | model)), seed=seed)])


def matrices(decoder: Decoder) -> dict[str, torch.Tensor]:
    """Every weight by its role; those of all blocks together."""
    by_role: dict[str, list[torch.Tensor]] = {"embedding": [decoder.embedding.weight], "head": [decoder.head.weight]}
    for block in decoder.blocks:
        for role, layer in (("mix", block.mixer.linear), ("ffn_in", block.ffn.inner), ("ffn_out", block.ffn.outer)):
            by_role.setdefault(role, []).append(layer.weight)
    return {role: torch.stack(weights).detach() for role, weights in by_role.items()}


@pytest.mark.parametrize("init", sorted(set(INITS) - {"torch"}))
def test_biases_start_at_zero(init: str) -> None:
    decoder = net(init=init)
    biases = [p for block in decoder.blocks for n, p in block.named_parameters() if n.endswith("bias")]
    assert len(biases) == DEPTH * 5 and all(bool((bias == 0).all()) for bias in biases)


@pytest.mark.parametrize("gain", [1.0, 0.3])
def test_xavier_fills_its_bounds(gain: float) -> None:
    sizes = {"embedding": (VOCAB, WIDTH), "head": (WIDTH, VOCAB), "mix": (WIDTH, WIDTH)}
    sizes |= {"ffn_in": (WIDTH, HIDDEN), "ffn_out": (HIDDEN, WIDTH)}
    for role, weight in matrices(net(init="xavier", init_options={"gain": gain})).items():
        bound = gain * math.sqrt(6 / sum(sizes[role]))
        assert 0.99 * bound < float(weight.abs().max()) <= bound * (1 + 1e-6), role
        assert float(weight.std()) == pytest.approx(bound / math.sqrt(3), rel=0.03), role  # uniform
        assert abs(float(weight.mean())) < 0.03 * bound, role


@pytest.mark.parametrize("std", [0.02, 0.5])
def test_gpt2_shrinks_what_writes_to_the_stream(std: float) -> None:
    for role, weight in matrices(net(init="gpt2", init_options={"std": std})).items():
        expected = std / math.sqrt(2 * DEPTH) if role in ("mix", "ffn_out") else std
        assert float(weight.std()) == pytest.approx(expected, rel=0.03), role


def test_small_normal_is_of_one_size() -> None:
    for role, weight in matrices(net(init="small_normal", init_options={"std": 0.05})).items():
        assert float(weight.std()) == pytest.approx(0.05, rel=0.03), role


def test_torch_keeps_what_the_modules_draw() -> None:
    torch.manual_seed(3)
    expected = torch.nn.Embedding(VOCAB, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
    decoder = net(seed=3, init="torch")
    linear = decoder.blocks[0].mixer.linear
    assert torch.equal(decoder.embedding.weight[0], expected[0].weight)
    assert torch.equal(linear.weight[0], expected[1].weight.T) and torch.equal(linear.bias[0, 0], expected[1].bias)


@pytest.mark.parametrize("mixer", ["mean", "linear"])
@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize(
    ("placement", "gain"), [("deepnorm", (8 * DEPTH) ** -0.25), ("subln", math.sqrt(math.log(2 * DEPTH)))]
)
def test_gains_are_read_off_the_drawn_weights(placement: str, gain: float, init: str, mixer: str) -> None:
    """That of value and output counts once in the only matrix of a simple mixer."""
    plain, scaled = (matrices(net(init=init, mixer=mixer, placement=where)) for where in ("pre", placement))
    for role, weight in plain.items():
        factor = gain if role in ("mix", "ffn_in", "ffn_out") else 1.0
        torch.testing.assert_close(scaled[role], weight * factor, rtol=1e-6, atol=0)


@pytest.mark.parametrize("init", INITS)
def test_another_seed_draws_another_net(init: str) -> None:
    one, same, other = (matrices(net(seed=seed, init=init)) for seed in (1, 1, 2))
    for role, weight in one.items():
        assert torch.equal(weight, same[role]) and not torch.equal(weight, other[role])
