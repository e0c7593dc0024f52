"""A stack that times the parts of its own steps, and the full record of a run."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from bench.work import Lanes, lane_specs
from normlab.config.schema import RunSpec, Thresholds
from normlab.fused.build import load
from normlab.store import RunRecord
from normlab.train.circumstances import describe_built, describe_machine
from normlab.train.log import Log, due_evaluations, make_record
from normlab.train.program import Eager
from normlab.train.stack import Stack
from normlab.train.tasks import TASKS, validation_set


class TimedLanes(Lanes):
    """Lanes that know how long gradients and update took."""

    def __init__(self, spec: RunSpec, lanes: int) -> None:
        super().__init__(Stack(lane_specs(spec, lanes), library=load()))
        self.seconds = {"gradients": 0.0, "update": 0.0}
        self.watch(self.stack, "gradients", "gradients")
        self.watch(self.stack.optimizer, "update", "update")
        self.whole_set_BT = torch.from_numpy(validation_set(TASKS[spec.task.name](spec.task)))

    def watch(self, owner: object, method: str, name: str) -> None:
        """Add the time that each call of the method takes to `seconds[name]`."""
        inner = getattr(owner, method)

        def timed(*values: Any, **named: Any) -> Any:
            started = time.perf_counter()
            answer = inner(*values, **named)
            self.seconds[name] += time.perf_counter() - started
            return answer

        setattr(owner, method, timed)

    def timed_chunk(self) -> dict[str, float]:
        """Seconds a step of the next chunk, by part."""
        self.seconds = dict.fromkeys(self.seconds, 0.0)
        started = time.perf_counter()
        self.draw()
        drawn = time.perf_counter()
        for k in range(Eager.chunk):
            self.program.stats.append(self.stack.step(self.inputs.at(k)))
        self.note()
        ended = time.perf_counter()
        if not all(self.seconds.values()):
            raise RuntimeError("a step of the stack no longer calls its `gradients` and its optimiser's `update`")
        parts = {"data": drawn - started, **self.seconds}
        parts["checks"] = ended - drawn - sum(self.seconds.values())
        return {name: seconds / Eager.chunk for name, seconds in parts.items()}

    def evaluate(self) -> float:
        """Seconds of one evaluation of the stack, its log included."""
        started = time.perf_counter()
        loss_S, rms_LS = self.stack.evaluate(self.whole_set_BT)
        Log(len(self.specs)).add_evaluation(0, loss_S, rms_LS)
        assert bool(loss_S.isfinite().all())
        return time.perf_counter() - started


def full_log(spec: RunSpec) -> Log:
    """The log of a run that did all its steps; its numbers are drawn, with as many digits as real ones."""
    rng, steps, layers = np.random.default_rng(spec.seed), spec.train.steps, spec.model.depth + 1
    log = Log(1)

    def drawn(*shape: int) -> np.ndarray:
        return rng.uniform(1.0, 4.0, shape).astype(np.float32)

    log.add_steps(1, drawn(steps, 1), drawn(steps, 1), np.ones((steps, 4, 1), dtype=bool))
    for step in (0, *due_evaluations(spec)):
        log.add_evaluation(step, torch.from_numpy(drawn(1)), torch.from_numpy(drawn(layers, 1)))
    return log


def record_of(work: TimedLanes, spec: RunSpec, log: Log) -> RunRecord:
    """The record that the loop makes of a log."""
    built = describe_built(work.stack, np.full(len(work.specs), spec.optim.lr))[0]
    losses = TASKS[spec.task.name](spec.task).losses()
    return make_record(spec, log.lanes[0], built, losses, Thresholds(), describe_machine("cpu", 1.0, 1))
