"""What a lane needs of a GPU's memory, and what becomes of lanes that do not fit."""

from __future__ import annotations

import pytest
import torch
from tiny_nets import tiny, train

from normlab.store import curve_csv, strict_json
from normlab.train import loop, memory
from normlab.train.stack import Stack


def written(records) -> list[str]:  # noqa: ANN001
    return [strict_json(record.run) + curve_csv(record.curve) for record in records]


def test_lanes_that_run_out_of_memory_are_halved_and_nothing_else_fails(monkeypatch) -> None:  # noqa: ANN001
    specs = [tiny(seed=seed) for seed in range(5)]
    whole, tried, real = written(train(*specs)), [], loop._train

    def cramped(part, *rest):  # noqa: ANN001, ANN002, ANN202
        tried.append(len(part))
        if len(part) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(part, *rest)

    monkeypatch.setattr(loop, "_train", cramped)
    assert written(train(*specs)) == whole
    assert tried == [5, 2, 1, 1, 3, 1, 2, 1, 1]


def test_a_lane_that_does_not_fit_alone_is_a_crash(monkeypatch) -> None:  # noqa: ANN001
    def cramped(*_) -> None:  # noqa: ANN002
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(loop, "_train", cramped)
    with pytest.raises(torch.OutOfMemoryError):
        train(tiny(), tiny(seed=1))


def test_parts_by_free_memory(monkeypatch) -> None:  # noqa: ANN001
    specs = [tiny(seed=seed) for seed in range(7)]
    assert memory.lanes_that_fit(specs, "cpu") == [specs]
    monkeypatch.setattr(memory, "free_bytes", lambda device: int(3.5 / memory.SHARE * memory.lane_bytes(specs[0])))
    parts = memory.lanes_that_fit(specs, "cuda:0")
    assert sorted(map(len, parts)) == [2, 2, 3] and [spec for part in parts for spec in part] == specs
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1)
    assert [len(part) for part in memory.lanes_that_fit(specs, "cuda:0")] == [1] * 7


def test_a_lane_takes_twice_the_memory_in_float64_and_as_much_more_as_it_has_tokens() -> None:
    one = memory.lane_bytes(tiny())
    assert memory.lane_bytes(tiny(train__precision="float64")) == 2 * one
    weights = memory.lane_bytes(tiny()) * 2 - memory.lane_bytes(tiny(train__batch=8))
    assert memory.lane_bytes(tiny(train__batch=40)) - weights == 10 * (one - weights) and 0 < weights < one


@pytest.mark.parametrize("depth", [1, 6])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_estimate_holds_what_a_step_keeps(depth: int, precision: str) -> None:
    spec = tiny(model__depth=depth, model__width=32, model__hidden=64, train__batch=16, train__precision=precision)
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    stack = Stack([spec], looks=False)
    tokens = torch.zeros(1, 16, spec.task.length + 1, dtype=torch.int64)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = stack.losses(tokens)
    del loss
    held = sum(kept.values()) + 4 * stack.params_SP.nbytes  # and gradient (twice) and two moments
    assert 0.9 * held < memory.lane_bytes(spec) < 2 * held


def test_what_did_not_fit_is_given_back_to_the_gpu_first(monkeypatch) -> None:  # noqa: ANN001
    calls: list[str] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("emptied"))
    specs = [tiny(seed=seed) for seed in range(3)]
    assert memory.halves(specs, "cpu") == [specs[:1], specs[1:]] and calls == []
    assert memory.halves(specs, "cuda:0") == [specs[:1], specs[1:]] and calls == ["emptied"]
