"""The rows of the main table: the plain script, the stacks and the matrix product, measured in turn, round by round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from bench.crew import Crew, default_threads, fastest
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
    "1b": "the same, nothing kept of a step, no evaluation",
    "2": "plain_toy, a process a core",
    "3": "normlab, one run alone",
    "4": "normlab, all cores",
    "5": "the same, engine plain",
    "6a": "matrix product, one core",
    "6b": "matrix product, all cores",
}
# The product that a row is compared with: row 3 has one core.
PEAKS = {"3": "6a"}


def main_table(sizes: Sizes, say: Say) -> dict[str, Any]:
    """Measure all rows; `rows`, `speedup_over_processes`, `speedup_over_naive`, `share_of_gemm_peak`, `threads` and the
    operations of a run-step."""
    size = cores()
    with ExitStack() as open_crews:
        alone, plain, ours = (
            open_crews.enter_context(crew) for crew in (Crew(1, False, limit=None), Crew(size, False), Crew(size, True))
        )
        (threads,) = alone.call(default_threads)
        entries = entries_of(sizes, alone, plain, ours, threads)
        say("warming up")
        for entry in entries:
            entry.measure(sizes.seconds / 2)
        rounds = measured(entries, sizes, say)
        peaks = {entry.key: peak(entry) for entry in entries if entry.recipe.kind == "gemm"}
    return tabled(sizes, entries, rounds, peaks) | {"threads": threads, "processes": size}


def entries_of(sizes: Sizes, alone: Crew, plain: Crew, ours: Crew, threads: int) -> list[Entry]:
    """All rows; those of stacks once for each number of lanes."""
    naive, size = Recipe("naive", sizes.spec), len(ours.processes)
    product = Recipe("gemm", size=sizes.gemm)
    stack, torchs = Recipe("fused", sizes.spec), Recipe("plain", sizes.spec)
    return [
        Entry("1", naive, alone, 1, threads),
        Entry("1b", replace(naive, kind="bare"), alone, 1, threads),
        Entry("2", naive, plain, size),
        Entry("3", stack, ours, 1),
        *(Entry(f"4/{lanes}", replace(stack, lanes=lanes), ours, size) for lanes in sizes.lanes),
        *(Entry(f"5/{lanes}", replace(torchs, lanes=lanes), ours, size) for lanes in sizes.plain_lanes),
        Entry("6a", product, ours, 1),
        Entry("6b", product, ours, size),
    ]


def measured(entries: Sequence[Entry], sizes: Sizes, say: Say) -> dict[str, list[float]]:
    """What each row gave, one value a round; every other round goes backwards, so that no row always follows the
    same one."""
    rounds: dict[str, list[float]] = {entry.key: [] for entry in entries}
    for k in range(sizes.rounds):
        say(f"round {k + 1} of {sizes.rounds}")
        for entry in entries if k % 2 == 0 else entries[::-1]:
            rounds[entry.key].append(entry.measure(sizes.seconds))
    return rounds


def peak(entry: Entry) -> float:
    """Operations a second of the row's processes together, each by the shortest of all its products."""
    taken = entry.crew.call(fastest, entry.recipe, members=entry.members)
    return sum(gemm_flops(entry.recipe.size) / seconds for seconds in taken)


def tabled(
    sizes: Sizes, entries: Sequence[Entry], rounds: Mapping[str, list[float]], peaks: Mapping[str, float]
) -> dict[str, Any]:
    """The rows in their order, and what they say of each other. Ratios are taken round by round, shares of the peak by
    the fastest product of all rounds."""
    flops = run_step_flops(sizes.spec)
    made = {entry.key: row_of(entry, rounds, peaks, flops) for entry in entries if entry.key not in peaks}
    stacks = [row for key, row in made.items() if "/" in key]
    best = {of: the_best([row for row in stacks if row["row"].startswith(of)]) for of in ("4", "5")}
    rows = [made[key] for key in ("1", "1b", "2", "3")] + [best[of] | {"row": of} for of in ("4", "5")]
    rows += [peak_row(entry, peaks[entry.key], rounds[entry.key]) for entry in entries if entry.key in peaks]
    return {
        "rows": rows,
        "stacks": stacks,
        "best_lanes": best["4"]["lanes"],
        "speedup_over_processes": best["4"]["over_processes"]["median"],
        "speedup_over_naive": best["4"]["over_naive"]["median"],
        "share_of_gemm_peak": best["4"]["share_of_gemm_peak"]["median"],
        "flops_per_run_step": flops,
        "rounds": sizes.rounds,
        "window_seconds": sizes.seconds,
    }


def the_best(stacks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The number of lanes with the most run-steps a second."""
    return max(stacks, key=lambda row: row["run_steps_per_second"]["median"])


def row_of(entry: Entry, rounds: Mapping[str, list[float]], peaks: Mapping[str, float], flops: int) -> dict[str, Any]:
    """A row of run-steps."""
    rates, most = rounds[entry.key], peaks[PEAKS.get(entry.key, "6b")]

    def over(row: str) -> dict[str, float]:
        return summary([rate / other for rate, other in zip(rates, rounds[row], strict=True)])

    return {
        "row": entry.key,
        "name": NAMES[entry.key.partition("/")[0]],
        "lanes": entry.recipe.lanes,
        "processes": entry.members,
        "threads": entry.threads,
        "run_steps_per_second": summary(rates),
        "over_processes": over("2"),
        "over_naive": over("1"),
        "share_of_gemm_peak": summary([rate * flops / most for rate in rates]),
        "rounds": rates,
    }


def peak_row(entry: Entry, most: float, rates: Sequence[float]) -> dict[str, Any]:
    """The row of a matrix product: the peak, and what each round did on average."""
    flops = gemm_flops(entry.recipe.size)
    return {
        "row": entry.key,
        "name": f"{NAMES[entry.key]}, {entry.recipe.size} rows",
        "processes": entry.members,
        "threads": entry.threads,
        "peak_gflops": most / 1e9,
        "gflops": summary([rate * flops / 1e9 for rate in rates]),
        "rounds": [rate * flops / 1e9 for rate in rates],
    }
