"""Memory by the number of lanes, time against depth, and where a run's time goes."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.crew import Crew, Member
from bench.sizes import Recipe, Sizes, changed
from normlab.config.schema import RunSpec
from normlab.execute.manifest import cores
from normlab.execute.stacks import FUSED_LANES
from normlab.studies.speed_clock import summary

Say = Callable[[str], None]
MEMORY_STEPS = 12  # more than a chunk of the loop


def memory(sizes: Sizes, say: Say) -> list[dict[str, Any]]:
    """Peak resident memory in MB of a fresh process that trains a stack for some steps and evaluates it once, by the
    number of lanes; `imported_mb` is what the process holds before it builds anything."""
    say("memory by lanes")
    waiting, found = list(sizes.lanes), []
    while waiting:  # As many at a time as there are cores: memory does not care.
        now, waiting = waiting[: cores()], waiting[cores() :]
        crews = [Crew(1, True) for _ in now]
        for crew, lanes in zip(crews, now, strict=True):
            with crew:
                ((before, peak),) = crew.call(peak_memory, Recipe("fused", sizes.spec, lanes))
            found.append({"lanes": lanes, "peak_mb": peak, "imported_mb": before})
    return found


def peak_memory(member: Member, recipe: Recipe) -> tuple[float, float]:
    """Peak resident memory in MB with everything imported, and after training and an evaluation."""
    import torch

    from bench.work import make
    from normlab.train.circumstances import describe_machine
    from normlab.train.tasks import TASKS, validation_set

    def peak() -> float:
        return describe_machine("cpu", 0.0, 1)["peak_memory_mb"]

    before = peak()
    work: Any = make(recipe)
    for _ in range(MEMORY_STEPS):
        work.step()
    task = TASKS[recipe.spec.task.name](recipe.spec.task)
    work.stack.evaluate(torch.from_numpy(validation_set(task)))
    return before, peak()


def depth(crew: Crew, sizes: Sizes, say: Say) -> dict[str, Any]:
    """Milliseconds of a run-step by depth, in stacks as the engine makes them on one thread, and the exponent p of
    the fit ms = c depth^p."""
    recipes = {d: Recipe("fused", changed(sizes.spec, depth=d), FUSED_LANES) for d in sizes.depths}
    taken: dict[int, list[float]] = {d: [] for d in sizes.depths}
    for k in range(sizes.depth_rounds):
        say(f"depth, round {k + 1} of {sizes.depth_rounds}")
        for d, recipe in recipes.items():
            taken[d].append(1e3 / (crew.rate(recipe, sizes.seconds / 2, 1) * recipe.lanes))
    points = [{"depth": d, "ms_a_run_step": summary(taken[d])} for d in sizes.depths]
    fits = [fitted_exponent(sizes.depths, [taken[d][k] for d in sizes.depths]) for k in range(sizes.depth_rounds)]
    return {"lanes": FUSED_LANES, "points": points, "exponent": summary(fits)}


def fitted_exponent(x: tuple[int, ...], y: list[float]) -> float:
    """p of the least-squares fit log y = log c + p log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def overhead(crew: Crew, sizes: Sizes, say: Say) -> dict[str, Any]:
    """Shares of a whole run's time, in percent; see `run_parts`."""
    say("where a run's time goes")
    (rounds,) = crew.call(run_parts, sizes.spec, FUSED_LANES, sizes.overhead_rounds, members=1)
    totals = [sum(parts.values()) for parts in rounds]
    names = list(rounds[0])
    shares = {name: summary([100 * p[name] / t for p, t in zip(rounds, totals, strict=True)]) for name in names}
    # The target speaks of them together.
    extra = [100 * (p["checks"] + p["store"]) / t for p, t in zip(rounds, totals, strict=True)]
    return {
        "lanes": FUSED_LANES,
        "steps": sizes.spec.train.steps,
        "eval_every": sizes.spec.train.eval_every,
        "percent": shares,
        "checks_and_store_percent": summary(extra),
        "run_seconds": statistics.median(totals),
    }


def run_parts(member: Member, spec: RunSpec, lanes: int, rounds: int) -> list[dict[str, float]]:
    """Seconds that the parts of a run of `spec` take, a dict a round. The parts of a step are timed inside real steps,
    not as a difference of two noisy times:

    `data` draws the batches, `gradients` is forward and backward, `update` the optimiser; `checks` is all else in a
    step and its log: gradient norm, finiteness, frozen lanes, statistics kept. `evaluation` and `store` (the record
    made and published, durably, in a temporary folder) are timed once a round.
    """
    from bench.parts import TimedLanes, full_log, record_of
    from normlab.store import publish
    from normlab.train.log import due_evaluations

    work = TimedLanes(spec, lanes)
    steps, evaluations = spec.train.steps, len(due_evaluations(spec)) + 1
    work.timed_chunk(), work.evaluate()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for k in range(rounds):
            per_step = work.timed_chunk()
            parts = {name: seconds * steps / lanes for name, seconds in per_step.items()}
            parts["evaluation"] = work.evaluate() * evaluations / lanes
            once = changed(spec, seed=k)
            log = full_log(once)
            started = time.monotonic()
            publish(Path(folder), record_of(work, once, log))
            found.append(parts | {"store": time.monotonic() - started})
    return found
