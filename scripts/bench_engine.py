"""How fast the engine is: against the plain script that a reader would write, and against the machine's matrix product.

    python scripts/bench_engine.py [--json] [--long] [--only rows,depth] [--quick]

Rows, on 20 layers, mean mixer, Pre-LN, Adam: 1 the step of scripts/plain_toy.py, one run after the other with torch's
own threads (1b: the same without what it keeps of a step); 2 one such run a core, one thread each: what a reader could
do instead; 3 normlab, one run alone; 4 normlab on all cores by the fused step, in stacks of S runs, the best S; 5 the
same by torch's operations (--engine plain); 6 a float32 product that fits into the cache.

Every row is measured in every round, in processes that stay; steps of all processes are counted in the same window, and
every row but 1b evaluates. Row 1 ignores OMP_NUM_THREADS and the like; its process and those of row 2 are plain, those
of rows 3 to 5 keep freed memory as normlab's workers do. About 8 minutes on two cores that are idle.
Then: memory by S, time against depth and number of runs, where a run's time goes, start-up; --long adds a sweep of 1000
runs whose memory is watched (10 minutes more). Exit code 1 if a part could not be measured.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from importlib.metadata import version
from typing import Any

from bench.sizes import FULL, QUICK

from normlab.fused.build import CannotCompile

SECTIONS = ("rows", "memory", "depth", "runs", "overhead", "startup", "long")
# What `rows` adds to the result beside the rows.
OF_ROWS = (
    *("stacks", "best_lanes", "speedup_over_processes", "speedup_over_naive", "share_of_gemm_peak"),
    *("flops_per_run_step", "rounds", "window_seconds", "threads", "processes"),
)


def main() -> int:
    """Read the options, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the tables")
    parser.add_argument("--long", action="store_true", help="a long sweep too, its memory watched")
    parser.add_argument("--only", metavar="PARTS", help=f"of {','.join(SECTIONS)}, with commas")
    parser.add_argument("--quick", action="store_true", help="a tiny net and few rounds: the figures say nothing")
    given = parser.parse_args()
    wanted = given.only.split(",") if given.only else [name for name in SECTIONS if name != "long"]
    wanted += ["long"] if given.long and "long" not in wanted else []
    if unknown := [name for name in wanted if name not in SECTIONS]:
        parser.error(f"--only: expected some of {','.join(SECTIONS)}, got {unknown[0]!r}")
    try:
        result = measure(wanted, given.quick)
    except CannotCompile as reason:
        parser.error(f"nothing to measure: {reason}")
    from bench.text import text

    print(json.dumps(result, indent=1, allow_nan=False) if given.json else text(result))
    return 1 if result["failed"] else 0


def measure(wanted: list[str], quick: bool) -> dict[str, Any]:
    """Everything that is wanted, as JSON values; null for what is not."""
    from bench import rows, single, sweeps
    from bench.crew import CannotRun, Crew

    from normlab.execute.manifest import cores, cpu_name
    from normlab.fused.build import load as load_library

    started, load = time.monotonic(), os.getloadavg()
    sizes = QUICK if quick else FULL
    open_crew = ExitStack()
    one = cache(lambda: open_crew.enter_context(Crew(1, as_worker=True)))
    parts: dict[str, Callable[..., dict[str, Any]]] = {
        "rows": rows.main_table,
        "memory": lambda sizes, say: {"memory": single.memory(sizes, say)},
        "depth": lambda sizes, say: {"depth": single.depth(one(), sizes, say)},
        "runs": lambda sizes, say: {"runs": sweeps.runs(sizes, say)},
        "overhead": lambda sizes, say: {"overhead": single.overhead(one(), sizes, say)},
        "startup": lambda sizes, say: {"startup": sweeps.startup(sizes, say)},
        "long": lambda sizes, say: {"long": sweeps.long(sizes, say)},
    }

    def say(words: str) -> None:
        print(f"[{time.monotonic() - started:4.0f} s] {words}", file=sys.stderr, flush=True)

    result: dict[str, Any] = dict.fromkeys((*OF_ROWS, *SECTIONS))
    result |= {"torch": version("torch"), "cpu": cpu_name(), "cores": cores(), "load": load, "quick": quick}
    result |= {"fused": load_library().name}
    result["failed"] = {}
    with open_crew:
        for name in wanted:
            try:
                result |= parts[name](sizes, say)
            except CannotRun as error:  # What was measured before is kept.
                say(f"{name}: {error}")
                result["failed"][name] = str(error)
    return result | {"seconds": time.monotonic() - started}


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
