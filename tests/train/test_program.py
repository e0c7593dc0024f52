"""The captured step on the CPU: the same code as on a GPU, with the capture replaced by a plain call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from stateful_norm import running
from tiny_nets import tiny, train
from torch.utils._python_dispatch import TorchDispatchMode

from normlab.config.schema import RunSpec
from normlab.store import curve_csv, strict_json
from normlab.train import loop, program
from normlab.train.stack import Stack, StepInputs

ADAM = {"optim__warmup": 3, "optim__schedule": "cosine"}
FIELDS = [
    {"optim__name": "adam", **ADAM},
    {"optim__name": "adamw", "optim__weight_decay": 0.1, **ADAM},
    {"optim__name": "sgd", "optim__momentum": 0.9},
    {"train__precision": "bfloat16", "train__loss_scale": 128.0},
    {"model__norm": "running", "model__final_norm": "same"},
    {"model__norm": "running", "model__placement": "pre-then-post", "model__placement_options": {"step": 9}},
]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with running():
        yield


def lanes(fields: dict[str, Any]) -> list[RunSpec]:
    """A calm lane, one that blows up in training, one that is clipped; more than one chunk of steps for both ways."""
    shared = {"train__steps": 25, "train__eval_every": 12, "model__norm": "none", "model__final_norm": "none", **fields}
    return [tiny(**shared), tiny(**shared, seed=1, optim__lr=1e25), tiny(**shared, seed=2, optim__clip=0.01)]


def written(records) -> list[str]:  # noqa: ANN001
    return [strict_json(record.run) + curve_csv(record.curve) for record in records]


def called(call, state):  # noqa: ANN001, ANN201
    return call


@pytest.mark.parametrize("fields", FIELDS)
def test_replayed_steps_equal_called_ones_bit_by_bit(fields, monkeypatch) -> None:  # noqa: ANN001
    monkeypatch.setattr(loop, "Stack", partial(Stack, looks=False))
    monkeypatch.setattr(loop, "program_for", program.Eager)
    one_by_one = written(train(*lanes(fields)))
    assert '"outcome": "nan"' in one_by_one[1] and '"outcome": "nan"' not in one_by_one[0] + one_by_one[2]
    monkeypatch.setattr(program.Captured, "chunk", 7)
    monkeypatch.setattr(loop, "program_for", lambda stack: program.Captured(stack, called))
    assert written(train(*lanes(fields))) == one_by_one


@pytest.mark.parametrize("fields", FIELDS)
def test_steps_that_look_differ_in_rounding_only(fields, monkeypatch) -> None:  # noqa: ANN001
    fields = {"train__precision": "float64", **fields}
    looking = train(*lanes(fields))
    monkeypatch.setattr(loop, "Stack", partial(Stack, looks=False))
    monkeypatch.setattr(loop, "program_for", program.Eager)
    # In bfloat16 the last bit of a product is large, so a rounding of the update shows.
    tolerance = 2e-2 if fields["train__precision"] == "bfloat16" else 1e-9
    for ours, theirs in zip(train(*lanes(fields)), looking, strict=True):
        assert ours.run["outcome"] == theirs.run["outcome"] and ours.run["onset"] == theirs.run["onset"]
        for name in ("train_loss", "grad_norm", "val_loss"):
            a, b = (np.array(record.curve[name], dtype=float) for record in (ours, theirs))
            np.testing.assert_allclose(a[1:], b[1:], rtol=tolerance)


class NoLooking(TorchDispatchMode):
    """Refuses every operation that would make the host wait for a GPU."""

    waiting = ("aten._local_scalar_dense", "aten.nonzero", "aten.is_nonzero", "aten.equal", "aten.masked_select")

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
        assert not str(function).startswith(self.waiting), f"{function} waits for the device"
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("fields", FIELDS)
def test_a_step_that_is_captured_waits_for_nothing(fields) -> None:  # noqa: ANN001
    specs = lanes(fields)
    for looks in (False, True):
        stack = Stack(specs, looks=looks)
        inputs = stack.inputs(1, np.zeros((1, 3, 4, 6), dtype=np.int64), np.full((1, 3), 1e-3)).at(0)
        with NoLooking() if not looks else pytest.raises(AssertionError, match="waits"), NoLooking():
            stack.step(inputs)


def test_a_capture_puts_back_what_its_warm_up_changed(monkeypatch) -> None:  # noqa: ANN001
    calls: list[str] = []

    @contextmanager
    def graph(of):  # noqa: ANN001, ANN202
        calls.append("capture")
        yield

    stream = SimpleNamespace(wait_stream=lambda other: None)
    for name, fake in {"Stream": lambda: stream, "current_stream": lambda: stream, "stream": nullcontext,
                       "graph": graph, "CUDAGraph": lambda: SimpleNamespace(replay=lambda: calls.append("replay"))
                       }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, fake)
    stack = Stack(lanes({}), looks=False)
    before = [tensor.clone() for tensor in stack.state()]
    inputs = stack.inputs(1, np.zeros((1, 3, 4, 6), dtype=np.int64), np.full((1, 3), 1e-3)).at(0)

    def step() -> None:
        calls.append("step")
        stack.step(inputs)

    replay = program.capture_cuda(step, stack.state())
    assert calls == ["step"] * program.WARM_UP + ["capture", "step"]
    replay()
    assert calls[-1] == "replay"
    for tensor, kept in zip(stack.state(), before, strict=True):
        assert torch.equal(tensor, kept)
    stack.step(inputs)
    assert not torch.equal(stack.params_SP, before[0])


def test_a_capture_that_runs_out_of_memory_says_so(monkeypatch) -> None:  # noqa: ANN001
    @contextmanager
    def graph(of):  # noqa: ANN001, ANN202
        try:
            yield
        finally:
            raise RuntimeError("capture_end: the capture was invalidated")

    calls: list[int] = []

    def step() -> None:
        calls.append(1)
        if len(calls) > program.WARM_UP:
            raise torch.OutOfMemoryError("CUDA out of memory")

    stream = SimpleNamespace(wait_stream=lambda other: None)
    for name, fake in {"Stream": lambda: stream, "current_stream": lambda: stream, "stream": nullcontext,
                       "graph": graph, "CUDAGraph": lambda: None}.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, fake)
    with pytest.raises(torch.OutOfMemoryError):
        program.capture_cuda(step, [])


def test_every_tensor_that_a_step_changes_is_in_the_state() -> None:
    for fields in FIELDS:
        stack = Stack(lanes(fields), looks=False)
        owners = [stack, stack.model, stack.optimizer]
        tensors = {id(t): t for owner in owners for t in vars(owner).values() if isinstance(t, torch.Tensor)}
        tensors |= {id(buffer): buffer for buffer in stack.model.buffers()}
        before = {key: tensor.clone() for key, tensor in tensors.items()}
        stack.step(stack.inputs(1, np.ones((1, 3, 4, 6), dtype=np.int64), np.full((1, 3), 1e-3)).at(0))
        known = {id(tensor) for tensor in stack.state()} | {id(getattr(stack.optimizer, "scratch_SP", None))}
        changed = {key for key, tensor in tensors.items() if not torch.equal(tensor, before[key])}
        assert changed and changed <= known and id(stack.model.clock) in changed
        assert {id(buffer) for buffer in stack.model.buffers()} <= changed


@pytest.mark.parametrize("looks", [True, False])
@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_a_frozen_lane_stays_as_it_was_though_it_is_clipped(looks: bool, name: str) -> None:
    wild = {"optim__lr": 1e30, "optim__clip": 0.01, "model__norm": "none", "model__final_norm": "none"}
    momentum = {"optim__momentum": 0.9} if name == "sgd" else {}
    specs = [tiny(seed=seed, optim__name=name, **{**wild, **momentum, **more}) for seed, more in
             enumerate(({}, {"optim__lr": 1e-3}))]  # fmt: skip
    stack = Stack(specs, looks=looks)
    tokens = np.ones((9, 2, 4, 6), dtype=np.int64)
    inputs = stack.inputs(1, tokens, np.array([[spec.optim.lr for spec in specs]] * 9))
    before = stack.params_SP.clone()
    for k in range(9):
        if not bool(stack.alive_S[0]):
            break
        before = stack.params_SP.clone()
        stack.step(inputs.at(k))
    assert stack.alive_S.tolist() == [False, True] and 0 < k < 6
    frozen = stack.params_SP.clone()
    assert torch.equal(frozen[0], before[0]) and bool(frozen.isfinite().all())
    for rest in range(k, 9):
        stack.step(inputs.at(rest))
    assert torch.equal(stack.params_SP[0], frozen[0]) and not torch.equal(stack.params_SP[1], frozen[1])


def test_inputs_of_several_steps_hold_each_steps_own() -> None:
    stack = Stack([tiny(), tiny(seed=1)])
    inputs = stack.inputs(5, np.arange(2 * 2 * 4 * 6).reshape(2, 2, 4, 6), np.array([[1e-3, 1e-2], [2e-3, 3e-2]]))
    second = inputs.at(1)
    assert isinstance(second, StepInputs) and second.rate_S1.flatten().tolist() == pytest.approx([2e-3, 3e-2])
    assert second.corrections_2.tolist() == pytest.approx(stack.optimizer.corrections(6))
    assert second.tokens_SBT[0, 0, 0] == 48
