"""Specs of small nets that the fused step knows, and stacks of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from normlab.config.schema import ModelSpec, RunSpec
from normlab.fused.build import Library
from normlab.fused.cover import MIXERS, NORMS, PLACEMENTS
from normlab.train.optim import rate
from normlab.train.stack import Stack, StepStats
from normlab.train.tasks import TASKS, TrainingData

# Sizes that fill vectors, sizes that do not, one of each, and more tokens than a tile.
SIZES: dict[str, dict[str, Any]] = {
    "odd": {"width": 12, "hidden": 20, "vocab": 13, "length": 7, "batch": 5},
    "whole": {"width": 64, "hidden": 128, "vocab": 64, "length": 16, "batch": 9},
    "least": {"width": 17, "hidden": 33, "vocab": 5, "length": 2, "batch": 1},
    "long": {"width": 35, "hidden": 70, "vocab": 31, "length": 50, "batch": 3, "loss_on": "last"},
    "narrow": {"width": 5, "hidden": 1, "vocab": 2, "length": 2, "batch": 2},
}


def allowed(norm: str, placement: str, mixer: str) -> bool:
    """Whether the package builds such a net."""
    try:
        ModelSpec(norm=norm, placement=placement, mixer=mixer)
    except ValueError:
        return False
    return True


NETS = [net for net in itertools.product(NORMS, PLACEMENTS, MIXERS) if allowed(*net)]


def spec_of(
    net: tuple[str, str, str] = ("layernorm", "pre", "mean"),
    precision: str = "float64",
    size: str = "odd",
    seed: int = 0,
    model: dict[str, Any] | None = None,
    **optim: Any,
) -> RunSpec:
    """A run of two layers with that norm, placement and mixer; `model` adds fields."""
    s = SIZES[size]
    fields = dict(zip(("norm", "placement", "mixer"), net, strict=True))
    fields |= {"depth": 2, "width": s["width"], "hidden": s["hidden"], "init": "torch", **(model or {})}
    task = {"vocab": s["vocab"], "length": s["length"], "loss_on": s.get("loss_on", "all"), "val_size": 70}
    train = {"steps": 50, "batch": s["batch"], "precision": precision}
    return RunSpec.model_validate({"task": task, "model": fields, "train": train, "optim": optim, "seed": seed})


def pair(specs: Sequence[RunSpec], library: Library, spread: float = 0.1) -> tuple[Stack, Stack]:
    """The same lanes by torch's operations and by the fused step, their weights moved away from the start."""
    plain, fused = Stack(specs), Stack(specs, library=library)
    generator = torch.Generator().manual_seed(1)
    noise_SP = spread * torch.randn(plain.params_SP.shape, generator=generator, dtype=torch.float64)
    for stack in (plain, fused):
        stack.params_SP.add_(noise_SP.to(stack.params_SP.dtype))
    return plain, fused


def tokens_of(specs: Sequence[RunSpec]) -> Tensor:
    """A batch of drawn tokens for every lane (S, B, T + 1)."""
    task, batch = specs[0].task, specs[0].train.batch
    generator = torch.Generator().manual_seed(2)
    return torch.randint(0, task.vocab, (len(specs), batch, task.length + 1), generator=generator)


def steps(stack: Stack, count: int = 20, ruined: int | None = None) -> list[StepStats]:
    """Train a stack by hand; lane 1 gets a NaN before step `ruined`."""
    task = TASKS[stack.specs[0].task.name](stack.specs[0].task)
    data, found = [TrainingData(task, spec) for spec in stack.specs], []
    for step in range(1, count + 1):
        if step == ruined:
            stack.params_SP[1, 5] = float("nan")
        rates = np.array([[rate(spec, step) for spec in stack.specs]])
        inputs = stack.inputs(step, np.stack([[lane.next() for lane in data]]), rates)
        found.append(stack.step(inputs.at(0)))
    return found


def apart(one: Tensor, two: Tensor) -> float:
    """Largest difference, of the largest entry of all."""
    return float((one - two).abs().max() / one.abs().max())
