"""Gradients by block and the stream's growth before training, against sums over the whole and a closed form."""

from __future__ import annotations

import math

import pytest
import torch

from normlab.config.schema import ModelSpec, RunSpec, TaskSpec
from normlab.studies import initial
from normlab.train.stack import Stack

SMALL = {"depth": 3, "width": 8, "hidden": 12, "init": "torch"}


def stack(seeds=(0, 1), **model):
    task = TaskSpec(vocab=11, length=5, val_size=8)
    return Stack([RunSpec(task=task, model=ModelSpec.model_validate(SMALL | model), seed=seed) for seed in seeds])


def test_block_norms_are_those_of_autograd_by_name():
    """Offsets into the flat gradient, checked against `.grad` of the named parameters of a plain backward pass."""
    tested, plain = stack(), stack()
    block_LS, outer_LS = initial.gradient_norms(tested)
    plain.losses(initial.first_batch(plain.specs)).sum().backward()
    for layer, block in enumerate(plain.model.blocks):
        for lane in range(2):
            squares = [float(p.grad[lane].double().square().sum()) for p in block.parameters()]
            assert float(block_LS[layer, lane]) == pytest.approx(math.sqrt(sum(squares)), rel=1e-6)
            outer = float(block.ffn.outer.weight.grad[lane].double().norm())
            assert float(outer_LS[layer, lane]) == pytest.approx(outer, rel=1e-6)


def test_a_seed_has_the_same_norms_whatever_its_neighbours():
    alone, together = initial.gradient_norms(stack(seeds=(1,))), initial.gradient_norms(stack(seeds=(0, 1)))
    assert torch.equal(alone[0][:, 0], together[0][:, 1])


def test_stream_norms_start_at_the_embedding_and_stay_where_blocks_write_nothing():
    net = stack()
    for block in net.model.blocks:
        for layer in (block.mixer.linear, block.ffn.outer):
            torch.nn.init.zeros_(layer.weight), torch.nn.init.zeros_(layer.bias)
    norms = initial.stream_norms(net)
    tokens_SBT = initial.first_batch(net.specs)[..., :-1]
    expected_S = torch.linalg.vector_norm(net.model.embedding(tokens_SBT), dim=-1).flatten(1).mean(1)
    assert torch.allclose(norms, expected_S.expand(4, -1))
    assert initial.growth_per_layer(norms).tolist() == pytest.approx([0, 0], abs=1e-6)


def test_growth_is_geometric():
    assert initial.growth_per_layer(torch.tensor([[1.0], [9.0], [1.21]])).tolist() == pytest.approx([0.1])


def test_xavier_has_its_variance_and_differs_between_seeds():
    net = initial.stack_of("pre", 2, "xavier", seeds=(0, 1))
    weight = net.model.blocks[0].ffn.inner.weight
    assert weight.std(dim=(1, 2)).tolist() == pytest.approx([math.sqrt(2 / (64 + 128))] * 2, rel=0.05)
    assert not torch.equal(weight[0], weight[1]) and not net.model.blocks[0].ffn.inner.bias.any()
    assert torch.equal(weight[1], initial.stack_of("pre", 2, "xavier", seeds=(1,)).model.blocks[0].ffn.inner.weight[0])


def test_the_measure_has_a_row_for_every_block_and_the_ratio_of_its_ends(monkeypatch):
    monkeypatch.setattr(initial, "DEPTHS", (2, 3))
    monkeypatch.setattr(initial, "GROWTH_DEPTH", 2)
    monkeypatch.setattr(initial, "SEEDS", (0,))
    said: list[str] = []
    settings, values = initial.measure(quick=False, say=said.append)
    rows = values["postln-gradient"]["rows"]
    assert len(rows) == 3 * (2 + 3) and len(said) == 9 and settings["seeds"] == [0]
    ends = [r["grad_norm"] for r in rows if r["placement"] == "post" and r["depth"] == 3 and r["layer"] in (1, 3)]
    ratio = values["postln-gradient"]["last_over_first"]["post_3"]["by_seed"]["0"]
    assert ratio == pytest.approx(ends[1] / ends[0], rel=1e-4)
    assert [r["layer"] for r in values["initial-growth"]["rows"]] == [0, 1, 2]
