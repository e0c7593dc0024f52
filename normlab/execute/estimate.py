"""How long a plan would take: a few real steps of a few of its structures, scaled to all of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from normlab.config.plan import cost_of, structure_of
from normlab.config.schema import RunSpec, Thresholds
from normlab.execute.devices import Device
from normlab.execute.stacks import Stack
from normlab.execute.worker import TRAINER, keep_freed_memory, load_trainer, one_thread

STEPS = 5
# Structures that are measured; the others are scaled from the nearest one by their computed cost.
MEASURED = 4
# Seconds that a worker needs to start and import torch.
START = 3.0


def estimate(stacks: Sequence[Stack], workers: int, thresholds: Thresholds, device: Device) -> float:
    """Seconds that `stacks` will take on `workers` workers, from a calibration in this process."""
    return schedule(stacks, workers, calibrate(stacks, thresholds, device))


def schedule(stacks: Sequence[Stack], workers: int, pace: Mapping[float, float]) -> float:
    """Seconds that `stacks` will take on `workers` workers, at the pace that `calibrate` found."""
    ends = [START] * workers
    for stack in stacks:
        nearest = min(pace, key=lambda cost: abs(cost - _unit(stack)))
        ends[ends.index(min(ends))] += stack.cost * pace[nearest]
    return max(ends)


def _unit(stack: Stack) -> float:
    return cost_of(stack.runs[0].spec)


def calibrate(
    stacks: Sequence[Stack], thresholds: Thresholds, device: Device, measured: int = MEASURED
) -> dict[float, float]:
    """Seconds for a unit of cost, by the cost of a run of the measured structure; real steps in this process, of so
    many structures as `measured`, from the cheapest to the dearest."""
    one_thread()
    keep_freed_memory()
    largest: dict[str, Stack] = {}
    for stack in stacks:
        known = largest.setdefault(structure_of(stack.runs[0].spec), stack)
        if len(stack.runs) > len(known.runs):
            largest[structure_of(stack.runs[0].spec)] = stack
    ranked = sorted(largest.values(), key=_unit)
    count = min(measured, len(ranked))
    picked = [ranked[round(i * (len(ranked) - 1) / max(1, count - 1))] for i in range(count)]
    train = load_trainer(TRAINER)

    def clock(specs: list[RunSpec], steps: int, every: int) -> float:
        start = time.perf_counter()
        train(
            [_shortened(spec, steps, every) for spec in specs],
            thresholds=thresholds,
            device=device.name,
            engine=device.engine,
        )
        return time.perf_counter() - start

    pace = {}
    for stack in picked:
        specs = [run.spec for run in stack.runs]
        clock(specs, 1, 1)  # The first pass pays for what torch sets up once.
        short, plain, judged = clock(specs, 1, 1), clock(specs, 1 + STEPS, 1 + STEPS), clock(specs, 1 + STEPS, 1)
        step = max(plain - short, 1e-6) / STEPS
        evaluation = max(judged - plain, 0.0) / STEPS
        steps, every = specs[0].train.steps, specs[0].train.eval_every
        seconds = short + step * (steps - 1) + evaluation * (steps // every)
        pace[_unit(stack)] = seconds / stack.cost
    return pace


def _shortened(spec: RunSpec, steps: int, every: int) -> RunSpec:
    train = spec.train.model_copy(update={"steps": steps, "eval_every": every})
    return spec.model_copy(update={"train": train, "optim": spec.optim.model_copy(update={"warmup": 0})})
