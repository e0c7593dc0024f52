"""The result as text: one table, and a small one for each of the other questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

HEAD = ("row", "what", "S", "processes x threads", "run-steps/s", "ms", "x row 2", "x row 1", "% of peak")


def text(result: Mapping[str, Any]) -> str:
    """Everything that was measured."""
    parts = {
        "rows": main_text,
        "memory": memory_text,
        "depth": depth_text,
        "runs": runs_text,
        "overhead": overhead_text,
        "startup": startup_text,
        "long": long_text,
    }
    load = ", ".join(f"{value:.1f}" for value in result["load"])
    lines = [
        f"{result['cpu']}, {result['cores']} cores, torch {result['torch']}; load before: {load}",
        "median [20th-80th percentile]",
    ]
    for part, to_lines in parts.items():
        if result[part]:
            lines += ["", *to_lines(result)]
    lines += [f"{part}: not measured: {why}" for part, why in result["failed"].items()]
    lines += ["", f"{result['seconds']:.0f} s in all"]
    return "\n".join(lines)


def spread(found: Mapping[str, float], scale: float = 1.0, digits: int = 1) -> str:
    """`median [low-high]`."""
    low, median, high = (f"{scale * found[name]:.{digits}f}" for name in ("low", "median", "high"))
    return f"{median} [{low}-{high}]"


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def main_text(result: Mapping[str, Any]) -> Iterator[str]:
    """The main table."""
    yield f"{result['rounds']} rounds of {result['window_seconds']:g} s a row, evaluations included"
    yield from aligned([HEAD, *map(cells, result["rows"])])
    others = (f"row {row['row']} {spread(row['run_steps_per_second'])}" for row in result["stacks"])
    yield "run-steps/s by row and S: " + "; ".join(others)
    gigaflops = result["flops_per_run_step"] / 1e9
    yield f"{gigaflops:.3g} GFLOP a run-step (linear maps, forward and backward); row 3 against 6a, all else against 6b"
    yield "peak: the fastest of all products of each core; what rows 6 show beside it is their average"


def cells(row: Mapping[str, Any]) -> list[str]:
    """One line of the main table."""
    head = [row["row"], row["name"], str(row.get("lanes", "")), f"{row['processes']} x {row['threads']}"]
    if "gflops" in row:
        average = spread(row["gflops"], digits=0)
        return [*head, f"peak {row['peak_gflops']:.0f} GFLOP/s, {average}", "", "", "", "100"]
    rate = row["run_steps_per_second"]
    ratios = [spread(row[name], digits=2) for name in ("over_processes", "over_naive")]
    return [*head, spread(rate), f"{1e3 / rate['median']:.1f}", *ratios, spread(row["share_of_gemm_peak"], 100)]


def memory_text(result: Mapping[str, Any]) -> Iterator[str]:
    yield "memory of a fresh process, peak MB"
    points = result["memory"]
    yield from aligned([["S", *(str(p["lanes"]) for p in points)], ["MB", *(f"{p['peak_mb']:.0f}" for p in points)]])
    yield f"of which {points[0]['imported_mb']:.0f} MB before a stack is built"


def depth_text(result: Mapping[str, Any]) -> Iterator[str]:
    found = result["depth"]
    yield f"time against depth, one thread, S={found['lanes']}"
    shown = [(p["depth"], p["ms_a_run_step"]) for p in found["points"]]
    yield from aligned([["depth", *(str(d) for d, _ in shown)], ["ms a run-step", *(spread(ms) for _, ms in shown)]])
    yield f"ms = c depth^p with p = {spread(found['exponent'], digits=2)}"


def runs_text(result: Mapping[str, Any]) -> Iterator[str]:
    found = result["runs"]
    yield f"time against the number of runs ({found['steps']} steps of a tiny net), `normlab run`"
    points = found["points"]
    yield from aligned(
        [
            ["runs", *(str(p["runs"]) for p in points), "p of a + b runs^p"],
            ["sweep, s", *(f"{p['sweep_seconds']:.1f}" for p in points), number(found["sweep_exponent"], 2)],
            [
                "whole command, s",
                *(f"{p['command_seconds']:.1f}" for p in points),
                number(found["command_exponent"], 2),
            ],
        ]
    )


def overhead_text(result: Mapping[str, Any]) -> Iterator[str]:
    found = result["overhead"]
    run = f"a run of {found['steps']} steps spends its {number(found['run_seconds'])} s"
    yield f"where {run} (S={found['lanes']}, one thread)"
    names = {
        "data": "drawing batches",
        "gradients": "forward and backward",
        "update": "optimiser",
        "checks": "finiteness checks and statistics",
        "evaluation": f"evaluation every {found['eval_every']} steps",
        "store": "record and store",
    }
    yield from aligned([(label, spread(found["percent"][name], digits=2) + " %") for name, label in names.items()])
    yield f"checks, statistics and store together {spread(found['checks_and_store_percent'], digits=2)} %"


def startup_text(result: Mapping[str, Any]) -> Iterator[str]:
    found = result["startup"]
    yield f"start of `normlab run` to the first step done in a worker: {spread(found['seconds'])} s"


def long_text(result: Mapping[str, Any]) -> Iterator[str]:
    found = result["long"]
    yield f"a sweep of {found['runs']} runs of {found['steps']} steps: {found['seconds']:.0f} s"
    yield (
        f"memory from run {found['from_run']} to {found['to_run']}: parent {number(found['parent_growth_mb'])} MB,"
        f" worker {number(found['worker_growth_mb'])} MB; largest together {number(found['peak_mb'], 0)} MB"
    )


def number(value: float | None, digits: int = 1) -> str:
    """A number, or that there is none."""
    return "not known" if value is None else f"{value:.{digits}f}"
