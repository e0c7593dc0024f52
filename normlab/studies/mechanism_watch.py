"""One training run, several lanes, with a look inside between updates. The training code is used as it is.

Shapes: S lanes (seeds), L layers, B batch, T time, D width, F hidden.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from normlab.config.schema import RunSpec
from normlab.model.decoder import FeedForward
from normlab.train.optim import rate
from normlab.train.stack import Stack, StepStats
from normlab.train.tasks import TASKS, TrainingData, validation_set

SATURATED = 3.0  # |x| from which GELU'(x) is within 0.012 of 0 or 1
SEQUENCES = 64  # of the validation set
PROFILE_STEPS = (0, 100, 300, 1000, 3000)
SAY_EVERY = 20.0


@dataclass
class Watched:
    """What was seen: a row a watched step and lane, norms by layer at a few steps, and over all steps the largest
    gradient norm and the first step with something non-finite, a value a lane (None: never)."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    profiles: list[dict[str, Any]] = field(default_factory=list)
    largest_grad_norm: list[float | None] = field(default_factory=list)
    onset: list[int | None] = field(default_factory=list)
    losses: list[list[float]] = field(default_factory=list)  # training loss by step and lane


def watched_steps(steps: int) -> list[int]:
    """0, 10, 20, ... 500, 550, 600, ... and the last step."""
    return sorted({*range(0, min(steps, 500) + 1, 10), *range(550, steps + 1, 50), steps})


def watch(specs: Sequence[RunSpec], say: Callable[[str], None]) -> Watched:
    """Train `specs` (one structure, a lane each) as `train_stack` does, and look inside at `watched_steps`.

    Loss and gradient norm of a row are those of the batch which follows: they belong to the weights that the row is
    about.
    """
    task = TASKS[specs[0].task.name](specs[0].task)
    data = [TrainingData(task, spec) for spec in specs]
    stack, steps = Stack(specs), specs[0].train.steps
    seen_BT = torch.from_numpy(validation_set(task))[:SEQUENCES, :-1]
    due, found = set(watched_steps(steps)), Watched(onset=[None] * len(specs))
    largest_S, said = torch.zeros(len(specs)), time.monotonic()
    for step in range(steps + 1):
        tokens_SBT = np.stack([lane.next() for lane in data])
        inside = look(stack, seen_BT) if step in due else None
        if step < steps:
            rates_S = np.array([rate(spec, step + 1) for spec in specs])
            stats = stack.step(stack.inputs(step + 1, tokens_SBT[None], rates_S[None]).at(0))
            found.losses.append(stats.loss_S.tolist())
            _note_onset(found, step + 1, stats)
            loss_S, norm_S = stats.loss_S, stats.norm_S
            largest_S = torch.fmax(largest_S, norm_S.masked_fill(~norm_S.isfinite(), 0.0))
        else:
            loss_S, grad_SP = stack.gradients(torch.from_numpy(tokens_SBT))
            norm_S = torch.linalg.vector_norm(grad_SP, dim=1)
        if inside is not None:
            _note_rows(found, step, specs, inside, loss_S, norm_S)
        if time.monotonic() - said > SAY_EVERY:
            said = time.monotonic()
            say(f"step {step} of {steps}")
    found.largest_grad_norm = [number(value) for value in largest_S]
    return found


@torch.no_grad()
def look(stack: Stack, tokens_BT: Tensor) -> dict[str, Tensor]:
    """One forward pass, watched: mean and largest token norm by layer (L + 1, S), and the shares (S,) of the GELU's
    inputs that are saturated and switched off."""
    model, lanes = stack.model, len(stack.specs)
    mean_LS = torch.zeros(stack.specs[0].model.depth + 1, lanes)
    largest_LS = torch.zeros_like(mean_LS)
    counts = torch.zeros(3, lanes, dtype=torch.float64)  # saturated, off, all

    def tap(layer: int, x_SBTD: Tensor) -> None:
        norm_SN = torch.linalg.vector_norm(x_SBTD.double(), dim=-1).flatten(1)
        mean_LS[layer], largest_LS[layer] = norm_SN.mean(1), norm_SN.amax(1)

    def count(module: nn.Module, inputs: Any, output_SBTF: Tensor) -> None:
        x_SN = output_SBTF.flatten(1)
        counts[0] += (x_SN.abs() > SATURATED).sum(1)
        counts[1] += (x_SN < -SATURATED).sum(1)
        counts[2] += x_SN.shape[1]

    inner = [module.inner for module in model.modules() if isinstance(module, FeedForward)]
    handles = [module.register_forward_hook(count) for module in inner]
    try:
        model(tokens_BT.expand(lanes, -1, -1), tap)
    finally:
        for handle in handles:
            handle.remove()
    shares = {"saturated_share": counts[0] / counts[2], "off_share": counts[1] / counts[2]}
    return {"mean_LS": mean_LS, "largest_LS": largest_LS, **shares}


def number(value: Tensor | float) -> float | None:
    """Six digits, which is what float32 holds; None for what is not finite."""
    plain = float(value)
    return float(f"{plain:.6g}") if math.isfinite(plain) else None


def _note_rows(
    found: Watched, step: int, specs: Sequence[RunSpec], inside: dict[str, Tensor], loss_S: Tensor, norm_S: Tensor
) -> None:
    mean_LS, depth = inside["mean_LS"], len(inside["mean_LS"]) - 1
    growth_S = (mean_LS[-1] / mean_LS[0]) ** (1 / depth) - 1
    # amax hands a NaN on: a norm that is not finite never hides behind the finite ones.
    largest_S, token_S = mean_LS.amax(0), inside["largest_LS"].amax(0)
    for lane, spec in enumerate(specs):
        row: dict[str, Any] = {"seed": spec.seed, "step": step, "largest_forward_norm": number(largest_S[lane])}
        row |= {"largest_token_norm": number(token_S[lane])}
        row |= {"train_loss": number(loss_S[lane]), "grad_norm": number(norm_S[lane])}
        row |= {share: number(inside[share][lane]) for share in ("saturated_share", "off_share")}
        found.rows.append(row | {"growth_per_layer": number(growth_S[lane])})
        if step in PROFILE_STEPS or step == spec.train.steps:
            norms = [number(value) for value in mean_LS[:, lane]]
            found.profiles.append({"seed": spec.seed, "step": step, "norms": norms})


def _note_onset(found: Watched, step: int, stats: StepStats) -> None:
    fine_S = stats.loss_fine_S & stats.grad_fine_S & stats.params_fine_S
    for lane, fine in enumerate(fine_S.tolist()):
        if not fine and found.onset[lane] is None:
            found.onset[lane] = step
