"""What is timed: one training step of the plain script or of a stack, or one matrix product.

Drawing the batch belongs to a step, and so does what each keeps of it: plain_toy its loss, gradient norm and largest
RMS by layer, a stack its log. Evaluations belong to it too: a quarter of the validation set after a quarter of the
steps that lie between two evaluations of a run.
"""

from __future__ import annotations

import math
import time
from typing import Protocol

import numpy as np
import plain_toy
import torch
from torch import Tensor
from torch.nn import functional as F

from bench.sizes import PARTS, Recipe, changed
from normlab.config.schema import RunSpec
from normlab.fused.build import load
from normlab.train.log import Log
from normlab.train.optim import rate
from normlab.train.program import Eager
from normlab.train.stack import Stack
from normlab.train.tasks import TASKS, TrainingData, validation_set


class Work(Protocol):
    """Something that can be done again and again."""

    def step(self) -> None: ...


class Gemm:
    """The product of two square float32 matrices. `fastest` is the shortest time of one, in seconds: a long series is
    cut by the scheduler, and would understate what the core can do."""

    def __init__(self, size: int) -> None:
        self.a, self.b = torch.randn(size, size), torch.randn(size, size)
        self.out, self.fastest = torch.empty(size, size), math.inf

    def step(self) -> None:
        began = time.perf_counter()
        torch.mm(self.a, self.b, out=self.out)
        self.fastest = min(self.fastest, time.perf_counter() - began)


class Naive:
    """The step of `plain_toy.run`, from its own parts. With `bare` set it keeps nothing of a step: no RMS by layer, no
    gradient norm (and so no clipping), the loss of the last step not read from the device; and it never evaluates."""

    loss: Tensor

    def __init__(self, spec: RunSpec, bare: bool = False, device: str = "cpu") -> None:
        self.s, self.bare, self.device, self.done = settings_of(spec), bare, device, 0
        self.model = plain_toy.build(self.s).to(device)
        self.optimizer = plain_toy.make_optimizer(self.model, self.s)
        self.training = plain_toy.stream_of(self.s.seed, 1)
        self.every, self.count = spec.train.eval_every // PARTS, spec.task.val_size // PARTS
        validation = plain_toy.sequences(plain_toy.stream_of(self.s.task_seed, 2), self.s.val_size, self.s)
        self.held_out = validation[: self.count].to(device)
        self.kept: tuple[float, float] = (math.nan, math.nan)

    def step(self) -> None:
        self.done += 1
        tokens = plain_toy.sequences(self.training, self.s.batch, self.s).to(self.device)
        loss = self.bare_loss(tokens) if self.bare else plain_toy.loss_of(self.model, tokens, self.s)[0]
        self.optimizer.zero_grad()
        loss.backward()
        norm = None if self.bare else torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.s.clip or math.inf)
        self.optimizer.param_groups[0]["lr"] = plain_toy.rate(self.done, self.s)
        self.optimizer.step()
        self.loss = loss.detach()
        if norm is not None:
            self.kept = loss.item(), norm.item()
        if self.done % self.every == 0 and not self.bare:
            with torch.no_grad():
                self.evaluated = plain_toy.loss_of(self.model, self.held_out, self.s)[0].item()

    def bare_loss(self, tokens: Tensor) -> Tensor:
        """The loss of `plain_toy.loss_of`, the stream not looked at."""
        x_BTD = self.model.embedding(tokens[:, :-1])
        for block in self.model.blocks:
            x_BTD = block(x_BTD)
        logits_BTV = self.model.head(self.model.final_norm(x_BTD))
        return F.cross_entropy(logits_BTV.flatten(0, 1), tokens[:, 1:].flatten())


class Lanes:
    """The step of `normlab.train.loop` on a stack: batches drawn and the log fed chunk by chunk."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.specs, self.done = stack, stack.specs, 0
        task = TASKS[self.specs[0].task.name](self.specs[0].task)
        self.data, self.log = [TrainingData(task, spec) for spec in self.specs], Log(len(self.specs))
        self.every, count = self.specs[0].train.eval_every // PARTS, self.specs[0].task.val_size // PARTS
        self.held_out_BT, self.steps = torch.from_numpy(validation_set(task)[:count]), 0
        self.program = Eager(stack)
        self.program.stats = []

    def step(self) -> None:
        k = len(self.program.stats)
        if k == 0:
            self.draw()
        self.program.stats.append(self.stack.step(self.inputs.at(k)))
        if k + 1 == Eager.chunk:
            self.note()
        self.steps += 1
        if self.steps % self.every == 0:
            self.log.add_evaluation(self.steps, *self.stack.evaluate(self.held_out_BT))

    def draw(self) -> None:
        """Batches and rates of the next chunk."""
        tokens_KSBT = np.stack([[lane.next() for lane in self.data] for _ in range(Eager.chunk)])
        # There is no rate after a run's last step, and a benchmark may take more steps; it is the same in all of them.
        rates_KS = np.array([[rate(spec, 1) for spec in self.specs]] * Eager.chunk)
        self.inputs = self.stack.inputs(self.done + 1, tokens_KSBT, rates_KS)

    def note(self) -> None:
        """The chunk's statistics into the log."""
        self.log.add_steps(self.done + 1, *self.program.read())
        self.done += len(self.program.stats)
        self.program.stats = []


def lane_specs(spec: RunSpec, lanes: int) -> list[RunSpec]:
    """The spec with the seeds 0, 1, ..."""
    return [changed(spec, seed=seed) for seed in range(lanes)]


def settings_of(spec: RunSpec) -> plain_toy.Settings:
    """The plain script's settings for the same question."""
    m, t = spec.model, spec.task
    return plain_toy.Settings(
        depth=m.depth,
        placement=m.placement,  # type: ignore[arg-type]  # checked by Settings
        width=m.width,
        hidden=m.hidden,
        vocab=t.vocab,
        length=t.length,
        val_size=t.val_size,
        lr=spec.optim.lr,
        steps=spec.train.steps,
        batch=spec.train.batch,
        seed=spec.seed,
    )


def make(recipe: Recipe) -> Work:
    """The work of a recipe."""
    if recipe.kind == "gemm":
        return Gemm(recipe.size)
    if recipe.kind in ("naive", "bare"):
        return Naive(recipe.spec, recipe.kind == "bare")
    return Lanes(Stack(lane_specs(recipe.spec, recipe.lanes), library=load() if recipe.kind == "fused" else None))
