"""A look at a net before it trains: a few passes over a tiny batch find entries that would give wrong results.

Every parameter is drawn anew at order one, so that a gate that starts closed hides nothing. What is asked: does moving
one lane move another (then lanes are no islands, and one run id would have two results), does moving a later token move
an earlier output, are shape and dtype kept, is the input left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from normlab.catalogue import OPTIMIZERS, TASKS
from normlab.config.schema import ModelSpec, OptimSpec, RunSpec, TaskSpec, TrainSpec
from normlab.model.decoder import Decoder, build
from normlab.model.layers import Linear
from normlab.model.mixers import Mixer
from normlab.model.norms import Norm
from normlab.model.part import Part
from normlab.model.placements import Placement
from normlab.train.optim import Optimizer
from normlab.train.tasks import Task, stream

LEAK = "leaks the future"
VOCAB, LENGTH, BATCH, DEPTH, HIDDEN = 11, 6, 3, 4, 32
LATER = 3  # tokens from this position on are moved
WIDEST = 512
PHASES = (1.0, 1e7)  # steps at which a placement that switches is looked at


class Unsound(ValueError):
    """An entry that would give wrong results; one line that names it."""


class Call(NamedTuple):
    """One call of a part in a pass: lane 0 of what came in and what went out."""

    part: Part
    x_BTD: Tensor
    y_BTD: Tensor


class Pass(NamedTuple):
    """One pass: its calls in the order in which they ended, and lane 0 of the logits."""

    calls: list[Call]
    logits_BTV: Tensor


def inspect(spec: RunSpec) -> list[str]:
    """Clauses to write beside every run of this net: whether it leaks the future, what is unusual about it. Raises
    `Unsound`, or `CannotBuild` for a constructor that does not fit, if it must not be trained; one line each."""
    _check_task(spec.task, TASKS[spec.task.name])
    _check_optimizer(spec.optim, OPTIMIZERS[spec.optim.name])
    entries = tuple(spec.model.entries().values())  # A name may stand for another class later.
    leak = _inspect_net(spec.model, entries, spec.train.precision, spec.train.low_stream)
    return [*([leak] if leak else []), *(f"unusual: {clause}" for clause in spec.model.unusual())]


@lru_cache(maxsize=1024)
def _inspect_net(model: ModelSpec, entries: tuple[type, ...], precision: str, low_stream: bool) -> str | None:
    if low_stream:  # Only shapes and dtypes are asked for there.
        next(_Probe(model, precision, low_stream).passes(PHASES[0]))
    probe = _Probe(model)
    early, late = (next(probe.passes(clock)).logits_BTV for clock in PHASES)
    leak = None
    for clock in PHASES if not torch.equal(early, late) else PHASES[:1]:
        plain = list(probe.passes(clock))
        for one, other in zip(plain, probe.passes(clock, move_lane=True), strict=True):
            _check_lanes(model, one, other)
        leak = leak or _leak(model, plain[0], next(probe.passes(clock, move_later=True)))
    return leak


class _Probe:
    """Two lanes of a net with the entries of `model` and sizes of its own."""

    def __init__(self, model: ModelSpec, precision: str = "float64", low_stream: bool = False) -> None:
        sizes = {"depth": min(model.depth, DEPTH), "width": min(model.width, WIDEST), "hidden": HIDDEN}
        spec = RunSpec(
            task=TaskSpec(vocab=VOCAB, length=LENGTH),
            model=model.model_copy(update=sizes),
            train=TrainSpec.model_validate({"precision": precision, "low_stream": low_stream}),
        )
        self.model = model
        self.decoder = build([spec, spec.model_copy(update={"seed": 1})])
        self.buffers = [buffer.clone() for buffer in self.decoder.buffers()]
        self.parameters = [_order_one(self.decoder, name, seed=0) for name, _ in self.decoder.named_parameters()]
        self.others = [_order_one(self.decoder, name, seed=1) for name, _ in self.decoder.named_parameters()]
        self.tokens_SBT = torch.arange(2 * BATCH * LENGTH).mul(7).remainder(VOCAB).view(2, BATCH, LENGTH)

    def passes(self, clock: float, move_lane: bool = False, move_later: bool = False) -> Iterator[Pass]:
        """Two passes in training, whose state one after the other may change, and one in evaluation. With `move_lane`
        lane 1 has other parameters and tokens; with `move_later` lane 0 has other tokens from position LATER on."""
        tokens_SBT = self.tokens_SBT.clone()
        for parameter, value, other in zip(self.decoder.parameters(), self.parameters, self.others, strict=True):
            parameter.data.copy_(value)
            if move_lane:
                parameter.data[1] = other[1]
        for buffer, value in zip(self.decoder.buffers(), self.buffers, strict=True):
            buffer.copy_(value)
        if move_lane:
            tokens_SBT[1] = (tokens_SBT[1] + 3) % VOCAB
        if move_later:
            tokens_SBT[0, :, LATER:] = (tokens_SBT[0, :, LATER:] + 1) % VOCAB
        self.decoder.clock.fill_(clock)
        for training in (True, True, False):
            yield self._watched(tokens_SBT, training)

    @torch.no_grad()
    def _watched(self, tokens_SBT: Tensor, training: bool) -> Pass:
        calls: list[Call] = []
        handles = []
        running: list[tuple[Part, int]] = []

        def before(part: Any, inputs: Any) -> None:
            running.append((part, inputs[0]._version))

        def after(part: Any, inputs: Any, y_SBTD: Tensor) -> None:
            x_SBTD, who = inputs[0], _who(self.model, part)
            if x_SBTD._version != running[-1][1]:
                raise Unsound(f"{who} writes to its input: work on a copy")
            if y_SBTD.shape != x_SBTD.shape or y_SBTD.dtype != x_SBTD.dtype:
                came, went = (f"{tuple(z.shape)} in {str(z.dtype).removeprefix('torch.')}" for z in (x_SBTD, y_SBTD))
                raise Unsound(f"{who} gives {went} for an input of {came}: expected the same shape and dtype")
            calls.append(Call(part, x_SBTD[0].clone(), y_SBTD[0].clone()))
            running.pop()

        for part in (module for module in self.decoder.modules() if isinstance(module, Part)):
            handles += [part.register_forward_pre_hook(before), part.register_forward_hook(after)]
        try:
            return Pass(calls, self.decoder.train(training)(tokens_SBT)[0].clone())
        except Unsound:
            raise
        except Exception as error:
            who = _who(self.model, running[-1][0]) if running else "the net"
            raise Unsound(f"{who} cannot be run: {_one_line(error)}") from error
        finally:
            for handle in handles:
                handle.remove()


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _order_one(decoder: Decoder, name: str, seed: int) -> Tensor:
    """New values for a parameter, normal; a matrix divided by the root of its input's width."""
    parameter = decoder.get_parameter(name)
    module = decoder.get_submodule(name.rpartition(".")[0])
    generator = torch.Generator().manual_seed(1000 * seed + sum(map(ord, name)))
    value = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return value / parameter.shape[1] ** 0.5 if isinstance(module, Linear) and name.endswith("weight") else value


def _who(model: ModelSpec, part: Part) -> str:
    """`norm 'mine'`: a part as messages name it."""
    if isinstance(part, Norm):
        return f"norm '{model.final_norm_name() if part.site.sublayer == 'final' else model.norm}'"
    if isinstance(part, Placement):
        return f"placement '{model.placement}'"
    return f"mixer '{model.mixer}'" if isinstance(part, Mixer) else type(part).__name__


def _check_lanes(model: ModelSpec, one: Pass, other: Pass) -> None:
    for call, moved in zip(one.calls, other.calls, strict=True):
        if torch.equal(call.x_BTD, moved.x_BTD) and not torch.equal(call.y_BTD, moved.y_BTD):
            what = "keep sums inside the lane's own (B, T, D), and state in rows of its own"
            raise Unsound(f"{_who(model, call.part)}: moving one lane moved another: {what}")
    if not torch.equal(one.logits_BTV, other.logits_BTV):
        raise Unsound("moving one lane moved another, outside of norms, placements and mixers")


def _leak(model: ModelSpec, one: Pass, other: Pass) -> str | None:
    if torch.equal(one.logits_BTV[:, :LATER], other.logits_BTV[:, :LATER]):
        return None
    for call, moved in zip(one.calls, other.calls, strict=True):
        same = torch.equal(call.x_BTD[:, :LATER], moved.x_BTD[:, :LATER])
        if same and not torch.equal(call.y_BTD[:, :LATER], moved.y_BTD[:, :LATER]):
            return f"{LEAK} ({_who(model, call.part)})"
    return LEAK


@lru_cache(maxsize=256)
def _check_task(spec: TaskSpec, entry: type[Task]) -> None:
    """Raise `Unsound` if a user's task gives sequences of another shape or other tokens than its spec says."""
    if spec.name not in TASKS.added:
        return
    who = f"task '{spec.name}'"
    try:
        task = entry(spec)
        tokens, losses = np.asarray(task.draw(stream(0, 0), 2)), task.losses()
    except Exception as error:
        raise Unsound(f"{who} cannot be drawn from: {_one_line(error)}") from error
    if tokens.shape != (2, spec.length + 1) or tokens.dtype != np.int64:
        raise Unsound(
            f"{who}: expected sequences (2, {spec.length + 1}) in int64, got {tokens.shape} in {tokens.dtype}"
        )
    if tokens.min() < 0 or tokens.max() >= spec.vocab:
        raise Unsound(f"{who}: expected tokens 0 to {spec.vocab - 1}, got {tokens.min()} to {tokens.max()}")
    if not all(np.isfinite(losses[name]) for name in ("uniform", "guess", "floor")):
        raise Unsound(f"{who}: expected finite losses, got {losses}")


@lru_cache(maxsize=256)
def _check_optimizer(spec: OptimSpec, entry: type[Optimizer]) -> None:
    """Raise `Unsound` if a user's optimizer cannot be called, or mixes lanes."""
    if spec.name not in OPTIMIZERS.added:
        return
    who = f"optimizer '{spec.name}'"
    try:
        plain, moved = (_updated(spec, entry, factor) for factor in (1.0, -3.0))
    except Exception as error:
        raise Unsound(f"{who} cannot be used: {_one_line(error)}") from error
    if not torch.equal(plain[0], moved[0]):
        raise Unsound(f"{who}: moving one lane moved another: its sums must keep to a row each")


def _updated(spec: OptimSpec, entry: type[Optimizer], factor: float) -> Tensor:
    """Parameters (2, 16) after three steps; lane 1's gradient is multiplied by `factor`."""
    params_SP = torch.linspace(-1, 1, 32).view(2, 16).clone()
    optimizer = entry([spec, spec], params_SP, True)
    for step in range(1, 4):
        grad_SP = torch.linspace(1, 2, 32).view(2, 16) * torch.tensor([[1.0], [factor]])
        corrections_2 = torch.tensor(optimizer.corrections(step))
        optimizer.update(params_SP, grad_SP, torch.full((2, 1), spec.lr), corrections_2)
    return params_SP
