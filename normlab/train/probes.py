"""Who made the first non-finite value: a lane's onset step run again, alone and watched.

A module is the producer if what came in was finite and what it gave out was not; one that passes a NaN on is not. In
the forward pass that is looked for among outputs, in the backward pass among gradients, of the innermost module first.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from normlab.config.schema import RunSpec
from normlab.fused.build import Library
from normlab.fused.step import Fused
from normlab.fused.watch import Watch
from normlab.model.placements import Placement
from normlab.train.stack import EVALUATION_CHUNK, LaneState, Stack
from normlab.train.subnormals import flushing

NOBODY: dict[str, Any] = {"phase": None, "producer": None, "nan": 0, "inf": 0}
MADE_BY_LOSS: dict[str, Any] = {"phase": "backward", "producer": "loss", "nan": 0, "inf": 0}


@flushing()
def find_producer(
    spec: RunSpec,
    state: LaneState,
    tokens_BT: Tensor,
    device: str,
    train: bool = True,
    library: Library | None = None,
) -> dict[str, Any]:
    """`phase`, `producer`, and the numbers of `nan` and `inf` in what it produced, for one lane in the state `state`.

    `tokens_BT` is the batch of the onset step. With `train` false only the forward pass is watched. `producer` is None
    if the re-run stays finite (the fault hung on something that is not in the state). `library`: the fused step, if the
    lane was trained by it; then its own numbers are looked at.
    """
    stack = Stack([spec], device, library)
    stack.load(0, state)
    if stack.fused:
        return _find_in_fused(stack.fused, tokens_BT, train)
    stack.model.train(train)
    watch = _Watch(stack.model)
    handles = watch.attach(backward=train)
    try:
        # A validation set is watched in the chunks in which it was evaluated, a batch as a whole.
        for chunk_BT in [tokens_BT] if train else tokens_BT.split(EVALUATION_CHUNK):
            with torch.set_grad_enabled(train):
                loss_S = stack.losses(chunk_BT.unsqueeze(0))
            if not watch.forward and not bool(loss_S.isfinite().all()):
                watch.forward.append(_found("forward", "loss", [loss_S]))
        if not watch.forward and train:
            with warnings.catch_warnings():
                # Tokens need no gradient; the hook of the embedding still gets the one of its output.
                warnings.filterwarnings("ignore", "Full backward hook is firing")
                (loss_S * spec.train.loss_scale).sum().backward()
    finally:
        for handle in handles:
            handle.remove()
    found = watch.forward or watch.backward_producers()
    scale = spec.train.loss_scale
    if not found and train and scale != 1:
        grads = [leaf.grad / scale for leaf in stack.leaves if leaf.grad is not None]
        found = [] if _fine(grads) else [_found("backward", "loss_scale", grads)]
    return found[0] if found else NOBODY


def _find_in_fused(fused: Fused, tokens_BT: Tensor, train: bool) -> dict[str, Any]:
    """The same answer from a fused step: the boundaries of its modules, one after the other."""
    for chunk_BT in [tokens_BT] if train else tokens_BT.split(EVALUATION_CHUNK):
        watch = Watch(fused, len(chunk_BT))
        loss_S, grad_SP = fused.gradients(chunk_BT.unsqueeze(0), watch)
        for module, came, went in watch.forward():
            if _fine(came) and not _fine(went):
                return _found("forward", module, went)
        if not _fine([loss_S]):
            return _found("forward", "loss", [loss_S])
    if not train:
        return NOBODY
    if not _fine([watch.slope["head"]]):
        return MADE_BY_LOSS
    for module, came, went in watch.backward(grad_SP[0]):
        if _fine(came) and not _fine(went):
            return _found("backward", module, went)
    return NOBODY


def find_in_parameters(model: nn.Module, optimizer: object, lane: int) -> dict[str, Any]:
    """The same answer for an update that turned finite gradients into a non-finite parameter: the optimiser made it."""
    for name, parameter in model.named_parameters():
        if not _fine([parameter[lane]]):
            return _found("update", f"optim.{type(optimizer).__name__} at {name}", [parameter[lane]])
    raise AssertionError("a lane with a non-finite parameter has one")


class _Watch:
    """Hooks on every module that note, in the order of execution, what came in and went out finite."""

    def __init__(self, model: nn.Module) -> None:
        self.modules = [(name or "decoder", module) for name, module in model.named_modules()]
        self.forward: list[dict[str, Any]] = []
        self.backward: list[tuple[str, nn.Module, bool, list[Tensor]]] = []

    def attach(self, backward: bool) -> list[torch.utils.hooks.RemovableHandle]:
        handles = []
        for name, module in self.modules:
            # A placement without parameters is the equation of its block, which stands for it.
            if isinstance(module, nn.ModuleList) or (isinstance(module, Placement) and not list(module.parameters())):
                continue
            handles.append(module.register_forward_hook(self._on_forward(name)))
            if backward:
                handles.append(module.register_full_backward_hook(self._on_backward(name)))
        return handles

    def _on_forward(self, name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Tensor) -> None:
            # The modules inside one end before it does, so the innermost guilty one comes first.
            if not self.forward and not _fine([output]) and _fine([*_tensors(inputs), *module.parameters(False)]):
                self.forward.append(_found("forward", name, [output]))

        return hook

    def _on_backward(self, name: str) -> Any:
        def hook(module: nn.Module, grad_inputs: Any, grad_outputs: Any) -> None:
            self.backward.append((name, module, _fine(_tensors(grad_outputs)), _tensors(grad_inputs)))

        return hook

    def backward_producers(self) -> list[dict[str, Any]]:
        """Modules that got finite gradients and gave non-finite ones, to their input or to their own parameters.

        Every module got a non-finite gradient already if the loss itself made it."""
        if self.backward and not self.backward[0][2]:
            return [MADE_BY_LOSS]
        found = []
        for name, module, got_finite, grad_inputs in self.backward:
            own = [p.grad for p in module.parameters(recurse=False) if p.grad is not None]
            if got_finite and not _fine([*grad_inputs, *own]):
                found.append(_found("backward", name, [*grad_inputs, *own]))
        return found


def _tensors(values: Any) -> list[Tensor]:
    return [value for value in values if isinstance(value, Tensor) and value.is_floating_point()]


def _fine(tensors: Iterable[Tensor]) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in tensors)


def _found(phase: str, name: str, tensors: list[Tensor]) -> dict[str, Any]:
    nan = sum(int(tensor.isnan().sum()) for tensor in tensors)
    inf = sum(int(tensor.isinf().sum()) for tensor in tensors)
    return {"phase": phase, "producer": name, "nan": nan, "inf": inf}
