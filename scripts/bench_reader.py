"""How long and how much memory the reading commands take, by the number of runs in a results folder.

    python scripts/bench_reader.py                        # 100, 1,000 and 10,000 runs
    python scripts/bench_reader.py --runs 100,1000 --rates 100 --json

Each folder is made by `scripts/many_runs.py` (copies of real runs) and read by one process a command. `cpu` is the
processor's time of that process: on a machine that does something else beside, it says more than `seconds`. `growth` is
the exponent g in `cpu ~ runs^g` from one size to the next: 1 is linear, start-up makes it smaller, and what lies above
1.15 grows faster than the number of runs and is told below the table.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from normlab.execute.manifest import cores, cpu_name

COMMANDS = {
    "status": ("status",),
    "tables": ("tables", "-q"),
    "report": ("report", "-q"),
    "verify": ("verify", "-q"),
}
LINEAR = 1.15  # exponents above it are told: a quadratic step of a tenth of the time at 1,000 runs makes 1.28 at 10,000
MAKER = Path(__file__).resolve().parent / "many_runs.py"


@dataclass(frozen=True)
class Row:
    """One command on one folder: wall-clock and processor seconds, peak resident memory in MB, size of the derived
    files in MB, and the exponent of growth since the next smaller folder (None for the smallest)."""

    runs: int
    command: str
    seconds: float
    cpu: float
    peak_mb: float
    written_mb: float
    growth: float | None


def measure(arguments: Sequence[str]) -> tuple[float, float, float]:
    """Run a command to its end: seconds, processor seconds, peak MB; RuntimeError where it fails."""
    started = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - started
        if child.returncode:
            said.seek(0)
            raise RuntimeError(f"{' '.join(arguments)}: exit code {child.returncode}: {said.read().decode()[-500:]}")
    scale = 1e6 if sys.platform == "darwin" else 1e3  # ru_maxrss: bytes there, kilobytes on Linux
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / scale


def bench(sizes: Sequence[int], rates: int, nan: float, folder: Path) -> Iterator[Row]:
    """All commands on a folder of each size, the smallest first."""
    before: dict[str, Row] = {}
    for runs in sorted(sizes):
        target = folder / f"many-{runs}"
        if not target.exists():
            told = [f"--rates={rates}", f"--nan={nan}"]
            measure([sys.executable, str(MAKER), str(runs), str(target), *told])
        for name, command in COMMANDS.items():
            seconds, cpu, peak = measure([sys.executable, "-m", "normlab", *command, str(target)])
            earlier = before.get(name)
            growth = None if earlier is None else math.log(cpu / earlier.cpu) / math.log(runs / earlier.runs)
            before[name] = row = Row(runs, name, seconds, cpu, peak, written(target), growth)
            yield row


def written(target: Path) -> float:
    """MB of tables, figures and report."""
    files = [*target.glob("tables/*"), *target.glob("figures/*"), *target.glob("*.html"), *target.glob("REPORT.md")]
    return sum(file.stat().st_size for file in [*files, *target.glob("verdicts.json")]) / 1e6


def verdict(rows: Sequence[Row]) -> str:
    """Whether a command grows faster than the number of runs between the two largest sizes."""
    largest = max(row.runs for row in rows)
    last = {row.command: row.growth for row in rows if row.runs == largest and row.growth is not None}
    if not last:
        return "one size only: no growth to tell"
    fast = [f"{name} (runs^{growth:.2f})" for name, growth in last.items() if growth > LINEAR]
    if fast:
        return f"grows faster than linearly: {', '.join(fast)}"
    return f"no command grows faster than linearly (exponents up to {max(last.values()):.2f})"


def main() -> int:
    """Command line; exit code 1 where a command failed or grows faster than linearly."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default="100,1000,10000", help="sizes, with commas (default 100,1000,10000)")
    parser.add_argument("--rates", type=int, default=0, help="learning rates (default: the five of the source)")
    parser.add_argument("--nan", type=float, default=0.05, help="share of runs that pass for NaN (default 0.05)")
    parser.add_argument("--folder", type=Path, help="make the results here and keep them; those there are read again")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    given = parser.parse_args()
    sizes = [int(text) for text in given.runs.split(",")]
    rows: list[Row] = []
    started, load = time.perf_counter(), os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="normlab-bench-") as scratch:
        folder = given.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        if not given.json:
            print(
                f"{'runs':>7} {'command':8} {'seconds':>8} {'cpu':>8} {'peak MB':>8} {'written MB':>10} {'growth':>7}"
            )
        try:
            for row in bench(sizes, given.rates, given.nan, folder):
                rows.append(row)
                if not given.json:
                    growth = "" if row.growth is None else f"{row.growth:.2f}"
                    numbers = f"{row.seconds:8.1f} {row.cpu:8.1f} {row.peak_mb:8.0f} {row.written_mb:10.1f} {growth:>7}"
                    print(f"{row.runs:7} {row.command:8} {numbers}", flush=True)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return 1
    said = verdict(rows)
    found = {"rows": [asdict(row) for row in rows], "verdict": said, "cpu": cpu_name(), "cores": cores(), "load": load}
    found |= {"pandas": version("pandas"), "seconds": time.perf_counter() - started}
    print(json.dumps(found, indent=1) if given.json else said)
    return int(said.startswith("grows"))


if __name__ == "__main__":
    raise SystemExit(main())
