"""The rows of the main table: the plain loop, the stacks and the matrix product, measured in turn, round by round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from bench.crew import CannotRun, Crew, default_threads, first_steps
from bench.flops import gemm_flops, run_step_flops
from bench.sizes import Recipe, Sizes
from normlab.execute.manifest import cores
from normlab.studies.speed_clock import summary

Say = Callable[[str], None]


@dataclass(frozen=True)
class Entry:
    """What one row measures: the recipe, on the first `members` processes of a crew with `threads` each."""

    key: str
    recipe: Recipe
    crew: Crew
    members: int
    threads: int = 1

    def measure(self, seconds: float) -> float:
        """Run-steps a second of all processes together (products a second of a matrix product)."""
        return self.crew.rate(self.recipe, seconds, self.members) * self.recipe.lanes


NAMES = {
    "1": "plain_toy, torch's own threads",
    "1b": "the same, nothing kept of a step",
    "2": "plain_toy, a process a core",
    "3": "normlab, one run alone",
    "4": "normlab, stacks on all cores",
    "5": "the same, blocks compiled",
    "6a": "matrix product, one core",
    "6b": "matrix product, all cores",
}
# The product that a row is compared with: row 3 has one core.
PEAKS = {"3": "6a"}


def main_table(sizes: Sizes, compile_too: bool, say: Say) -> dict[str, Any]:
    """Measure all rows; `rows`, `best_lanes`, `speedup_over_naive`, `share_of_gemm_peak`, `compile`, `threads` and the
    operations of a run-step."""
    size = cores()
    with ExitStack() as open_crews:
        alone, plain, ours = (
            open_crews.enter_context(crew) for crew in (Crew(1, False, limit=None), Crew(size, False), Crew(size, True))
        )
        (threads,) = alone.call(default_threads)
        entries = eager_entries(sizes, alone, plain, ours, threads)
        say("warming up")
        first = {entry.key: entry.measure(sizes.seconds / 2) for entry in entries}
        stacks = [entry for entry in entries if entry.key.startswith("4/")]
        lanes = max(stacks, key=lambda entry: first[entry.key]).recipe.lanes
        compiled: dict[str, Any] = {"lanes": lanes, "tried": compile_too, "works": False}
        if compile_too:
            say(f"compiling the blocks for {lanes} lanes")
            entry, found = compiled_entry(sizes, ours, size, lanes)
            compiled |= found
            entries += [entry] if entry else []
        rounds = measured(entries, sizes, say)
    return tabled(sizes, entries, rounds, compiled) | {"threads": threads, "processes": size}


def eager_entries(sizes: Sizes, alone: Crew, plain: Crew, ours: Crew, threads: int) -> list[Entry]:
    """All rows but the compiled one."""
    naive, size = Recipe("naive", sizes.spec), len(ours.processes)
    product = Recipe("gemm", size=sizes.gemm)
    stack = Recipe("ours", sizes.spec)
    return [
        Entry("1", naive, alone, 1, threads),
        Entry("1b", replace(naive, kind="bare"), alone, 1, threads),
        Entry("2", naive, plain, size),
        Entry("3", stack, ours, 1),
        *(Entry(f"4/{lanes}", replace(stack, lanes=lanes), ours, size) for lanes in sizes.lanes),
        Entry("6a", product, ours, 1),
        Entry("6b", product, ours, size),
    ]


def compiled_entry(sizes: Sizes, ours: Crew, size: int, lanes: int) -> tuple[Entry | None, dict[str, Any]]:
    """The compiled row, and what compiling took; no row where it does not work, and why."""
    recipe = Recipe("compiled", sizes.spec, lanes)
    try:
        taken = ours.call(first_steps, recipe)
    except CannotRun as error:
        return None, {"reason": str(error)}
    # Every process compiles, all at the same time, from an empty cache: the slowest counts.
    seconds = max(first - later for first, later in taken)
    return Entry("5", recipe, ours, size), {"works": True, "seconds": seconds}


def measured(entries: Sequence[Entry], sizes: Sizes, say: Say) -> dict[str, list[float]]:
    """What each row gave, one value a round; every other round goes backwards, so that no row always follows the
    same one."""
    rounds: dict[str, list[float]] = {entry.key: [] for entry in entries}
    for k in range(sizes.rounds):
        say(f"round {k + 1} of {sizes.rounds}")
        for entry in entries if k % 2 == 0 else entries[::-1]:
            rounds[entry.key].append(entry.measure(sizes.seconds))
    return rounds


def tabled(
    sizes: Sizes, entries: Sequence[Entry], rounds: Mapping[str, list[float]], compiled: dict[str, Any]
) -> dict[str, Any]:
    """The rows in their order, and what they say of each other; ratios are taken round by round."""
    flops = run_step_flops(sizes.spec)
    stacks = [row_of(entry, rounds, sizes, flops) for entry in entries if entry.key.startswith("4/")]
    best = max(stacks, key=lambda row: row["run_steps_per_second"]["median"])
    by_key = {entry.key: entry for entry in entries}
    rows = [row_of(by_key[key], rounds, sizes, flops) for key in ("1", "1b", "2", "3")]
    rows += [best | {"row": "4"}]
    if "5" in by_key:
        rows.append(row_of(by_key["5"], rounds, sizes, flops))
        compiled |= paid(compiled["seconds"], by_key["5"], rounds)
    else:
        reason = compiled.get("reason", "not tried (see --compile)")
        rows.append({"row": "5", "name": NAMES["5"], "lanes": compiled["lanes"], "missing": reason})
    rows += [peak_row(by_key[key], rounds[key], sizes.gemm) for key in ("6a", "6b")]
    return {
        "rows": rows,
        "stacks": stacks,
        "best_lanes": best["lanes"],
        "speedup_over_naive": best["over_naive"]["median"],
        "share_of_gemm_peak": best["share_of_gemm_peak"]["median"],
        "compile": compiled,
        "flops_per_run_step": flops,
        "rounds": sizes.rounds,
        "window_seconds": sizes.seconds,
    }


def row_of(entry: Entry, rounds: Mapping[str, list[float]], sizes: Sizes, flops: int) -> dict[str, Any]:
    """A row of run-steps."""
    rates, peaks = rounds[entry.key], rounds[PEAKS.get(entry.key, "6b")]
    product = gemm_flops(sizes.gemm)
    shares = [rate * flops / (peak * product) for rate, peak in zip(rates, peaks, strict=True)]
    over = [rate / naive for rate, naive in zip(rates, rounds["1"], strict=True)]
    return {
        "row": entry.key,
        "name": NAMES[entry.key.partition("/")[0]],
        "lanes": entry.recipe.lanes,
        "processes": entry.members,
        "threads": entry.threads,
        "run_steps_per_second": summary(rates),
        "over_naive": summary(over),
        "share_of_gemm_peak": summary(shares),
        "rounds": rates,
    }


def peak_row(entry: Entry, rates: Sequence[float], size: int) -> dict[str, Any]:
    """The row of a matrix product."""
    gflops = [rate * gemm_flops(size) / 1e9 for rate in rates]
    return {
        "row": entry.key,
        "name": f"{NAMES[entry.key]}, {size} rows",
        "processes": entry.members,
        "threads": entry.threads,
        "gflops": summary(gflops),
        "rounds": gflops,
    }


def paid(seconds: float, entry: Entry, rounds: Mapping[str, list[float]]) -> dict[str, Any]:
    """How the compiled blocks compare with the same stack not compiled, and after how many run-steps of one process
    the time to compile has come back (None: never); `of_a_stack` is what one stack of whole runs has."""
    eager = rounds[f"4/{entry.recipe.lanes}"]
    gains = summary([a / b for a, b in zip(rounds["5"], eager, strict=True)])
    # Seconds a run-step of one process.
    saved = summary([entry.members * (1 / a - 1 / b) for a, b in zip(eager, rounds["5"], strict=True)])
    steps = seconds / saved["median"] if saved["median"] > 0 else None
    of_a_stack = entry.recipe.lanes * entry.recipe.spec.train.steps
    within = steps is not None and steps < of_a_stack
    return {"over_eager": gains, "paid_after_run_steps": steps, "of_a_stack": of_a_stack, "within_a_stack": within}
