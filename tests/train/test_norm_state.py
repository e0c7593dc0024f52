"""State of a norm (running statistics) belongs to its lane: it freezes with it, evaluation leaves it alone, and the
search for a producer starts from it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from stateful_norm import running
from tiny_nets import tiny, train
from torch import Tensor

from normlab.config.schema import RunSpec
from normlab.store import curve_csv, strict_json
from normlab.train.stack import Stack

PLACEMENTS = ("pre", "post")


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with running():
        yield


def lanes(placement: str = "pre") -> list[RunSpec]:
    """A calm lane, one that blows up, another calm one."""
    shared = {"model__norm": "running", "model__placement": placement, "model__final_norm": "same"}
    return [tiny(**shared), tiny(**shared, seed=1, optim__lr=1e30), tiny(**shared, seed=2)]


def written(record) -> str:  # noqa: ANN001
    return strict_json(record.run) + curve_csv(record.curve)


def rows(stack: Stack, lane: int) -> list[Tensor]:
    return [buffer[lane].clone() for buffer in stack.buffers]


def steps(stack: Stack, count: int) -> Iterator[int]:
    tokens = np.random.default_rng(0).integers(11, size=(count, len(stack.specs), 4, 6))
    inputs = stack.inputs(1, tokens, np.array([[spec.optim.lr for spec in stack.specs]] * count))
    for k in range(count):
        stack.step(inputs.at(k))
        yield k


def equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_alone_and_in_company(placement: str) -> None:
    specs = lanes(placement)
    alone = [written(train(spec)[0]) for spec in specs]
    assert '"outcome": "nan"' in alone[1] and '"outcome": "nan"' not in alone[0] + alone[2]
    for order in ([0, 1, 2], [2, 0], [1, 2]):
        assert [written(record) for record in train(*[specs[i] for i in order])] == [alone[i] for i in order]


def test_state_is_per_lane_and_moves() -> None:
    stack = Stack(lanes())
    assert len(stack.buffers) == 2 * 5 and all(len(buffer) == 3 for buffer in stack.buffers)
    (_,) = steps(stack, 1)
    assert not torch.equal(stack.buffers[0][0], stack.buffers[0][2]) and stack.buffers[1].flatten().tolist() == [1] * 3


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("looks", [True, False])
def test_state_freezes_with_its_lane(looks: bool, placement: str) -> None:
    stack = Stack(lanes(placement), looks=looks)
    start, frozen, kept = rows(stack, 1), -1, rows(stack, 1)
    for k in steps(stack, 8):
        if frozen < 0 and not bool(stack.alive_S[1]):
            frozen = k
            # As they were before the step that failed, so that it can be run again.
            assert equal(rows(stack, 1), kept)
        if frozen < 0:
            kept = rows(stack, 1)
    assert 0 < frozen < 7 and not equal(kept, start)
    assert equal(rows(stack, 1), kept) and all(bool(row.isfinite().all()) for row in kept)
    batches = stack.buffers[1].flatten().tolist()
    assert batches == [8, frozen, 8]


def test_evaluation_uses_the_state_and_leaves_it_alone() -> None:
    stack = Stack(lanes())
    list(steps(stack, 2))
    before = [buffer.clone() for buffer in stack.buffers]
    tokens = torch.randint(11, (70, 6), generator=torch.Generator().manual_seed(0))
    loss_S, _ = stack.evaluate(tokens)
    assert equal(stack.buffers, before) and all(module.training for module in stack.model.modules())
    for buffer in stack.buffers[::2]:
        buffer.add_(1.0)
    assert not torch.equal(stack.evaluate(tokens)[0], loss_S)


def test_the_first_batch_that_start_values_are_set_on_is_not_counted() -> None:
    stack = Stack([tiny(model__norm="running", model__placement="admin")])
    stack.profile(torch.ones(1, 4, 6, dtype=torch.int64))
    assert not any(bool(buffer.any()) for buffer in stack.buffers)


def test_the_producer_is_found_from_the_state_of_the_onset_step() -> None:
    with running(last=4):
        (record,) = train(tiny(model__norm="running", train__steps=9, train__eval_every=9))
    onset = record.run["onset"]
    assert (onset["step"], onset["kind"], onset["phase"]) == (5, "loss", "forward")
    assert onset["producer"] == "blocks.0.mixer_norms.0"
