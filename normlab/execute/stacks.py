"""Which runs train together: stacks of one structure, cut so that the workers end together (no torch).

How the runs are cut changes the time only, never a result: a lane is the same in every stack.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from normlab.config.engine import PLAIN, Engine
from normlab.config.plan import PlannedRun, cost_of, structure_of
from normlab.fused.cover import engine_for

# On a CPU: on a core with 2 MiB of L2 more lanes gain little, and smaller stacks share out better among workers.
MAX_LANES = 3
FUSED_LANES = 1  # of the fused step: it is as fast with one, and a run is kept as soon as it ends
# Share of a single run's cost that a stack pays once, however many lanes it has (Python and small kernels).
SHARED_COST = 0.5
FASTER = 2.0  # the fused step than torch's operations, about


@dataclass(frozen=True)
class Stack:
    """Runs of one structure that train as lanes of one program, by the fused step or not; `attempt` counts from 0."""

    runs: tuple[PlannedRun, ...]
    attempt: int = 0
    fused: bool = False

    @cached_property
    def cost(self) -> float:
        """Relative time that the stack takes."""
        costs = [cost_of(run.spec) for run in self.runs]
        return sum(costs) / FASTER if self.fused else sum(costs) + SHARED_COST * max(costs)

    def retries(self, lost: Sequence[PlannedRun], died: bool) -> list[Stack]:
        """How the runs `lost` with this stack are tried once more: each alone, so that the guilty one is found. Nothing
        is if it was alone and raised, which it would again, or has died (`died`) with two workers."""
        if len(self.runs) > 1 or (died and self.attempt == 0):
            return [replace(self, runs=(run,), attempt=1) for run in lost]
        return []

    def split(self, parts: int) -> list[Stack]:
        """The same runs in `parts` stacks whose sizes differ by one at most."""
        size, larger = divmod(len(self.runs), parts)
        ends = [(i + 1) * size + min(i + 1, larger) for i in range(parts)]
        return [replace(self, runs=self.runs[a:b]) for a, b in zip([0, *ends], ends, strict=False)]


def make_stacks(
    runs: Sequence[PlannedRun], workers: int, max_lanes: int | None = MAX_LANES, engine: Engine = PLAIN
) -> list[Stack]:
    """Cut `runs` into stacks of at most `max_lanes` lanes (None: any number), those of the engine's fused step into
    single runs; the longest first.

    Starting from the fewest stacks, the longest that can be split is halved again and again; of all these cuts the one
    with the earliest end on `workers` workers is taken. Deterministic.
    """
    by_structure: dict[str, list[PlannedRun]] = {}
    for run in runs:
        by_structure.setdefault(structure_of(run.spec), []).append(run)
    stacks: list[Stack] = []
    for group in by_structure.values():
        fused = bool(engine_for(engine, group[0].spec).fused)
        lanes = FUSED_LANES if fused else max_lanes
        stacks += Stack(tuple(group), fused=fused).split(-(-len(group) // lanes) if lanes else 1)
    best = stacks = _longest_first(stacks)
    # Past a few more stacks a worker nothing is gained any more.
    most = len(stacks) + 4 * workers
    while max_lanes is not None and len(stacks) < most:
        splittable = next((stack for stack in stacks if len(stack.runs) > 1), None)
        if splittable is None:
            break
        stacks = _longest_first([s for s in stacks if s is not splittable] + splittable.split(2))
        if makespan(stacks, workers) < makespan(best, workers):
            best = stacks
    return best


def _longest_first(stacks: list[Stack]) -> list[Stack]:
    return sorted(stacks, key=lambda stack: -stack.cost)


def makespan(stacks: Sequence[Stack], workers: int) -> float:
    """When the last of `workers` workers ends if each takes the next stack as soon as it is free."""
    ends = [0.0] * max(workers, 1)
    for stack in stacks:
        heapq.heapreplace(ends, ends[0] + stack.cost)
    return max(ends)
