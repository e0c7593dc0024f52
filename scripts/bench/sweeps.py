"""Whole sweeps through `normlab run`: time against the number of runs, start-up, and memory in a long one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

import normlab
from bench.crew import CannotRun, environment
from bench.sizes import Sizes
from normlab.config.schema import RunSpec
from normlab.execute.manifest import cores
from normlab.manifests import read_manifest
from normlab.studies.speed_clock import summary

Say = Callable[[str], None]
STAMP = Path(__file__).with_name("stamp.py")
FROM_RUN = 100  # the memory of a long sweep is compared from this run on
SAMPLES_KEPT = 60
TINY = {
    "task": {"vocab": 16, "length": 8, "val_size": 32},
    "model": {"depth": 2, "width": 16, "hidden": 16},
    "train": {"batch": 4},
}


def runs(sizes: Sizes, say: Say) -> dict[str, Any]:
    """Seconds of sweeps of few tiny steps by the number of runs: `sweep_seconds` of the executor with its workers'
    start, `command_seconds` of the whole command with tables and figures, each the smallest of some tries, since
    a busy machine only adds. `exponent` is p of seconds = a + b runs^p through the three points, so that the start does
    not count."""
    tried: dict[int, list[tuple[float, float]]] = {count: [] for count in sizes.sweeps}
    for k in range(sizes.sweep_tries):
        for count in sizes.sweeps:
            say(f"a sweep of {count} runs, try {k + 1} of {sizes.sweep_tries}")
            tried[count].append(timed_sweep(count, sizes))
    points = [
        dict(
            zip(("runs", "sweep_seconds", "command_seconds"), (count, *map(min, zip(*found, strict=True))), strict=True)
        )
        for count, found in tried.items()
    ]
    exponents = {
        f"{name}_exponent": exponent_of(sizes.sweeps, [point[f"{name}_seconds"] for point in points])
        for name in ("sweep", "command")
    }
    return {"steps": sizes.sweep_steps, "points": points, **exponents}


def timed_sweep(count: int, sizes: Sizes) -> tuple[float, float]:
    """Seconds of a sweep of `count` runs: of the executor, and of the whole command."""
    base = {**TINY, "train": TINY["train"] | {"steps": sizes.sweep_steps, "eval_every": sizes.sweep_steps}}
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        with sweep(Path(folder), base, count, sizes.jobs) as process:
            check(process.wait(), Path(folder))
        seconds = time.monotonic() - started
        return read_manifest(Path(folder) / "out")["sessions"][-1]["seconds"], seconds


def exponent_of(counts: Sequence[int], seconds: Sequence[float]) -> float | None:
    """p of seconds = a + b count^p through three points; None if they do not rise, or bend beyond 0.05 < p < 4."""
    (x0, x1, x2), (y0, y1, y2) = counts, seconds
    if not y0 < y1 < y2:
        return None
    wanted = (y2 - y0) / (y1 - y0)

    def ratio(p: float) -> float:
        return (x2**p - x0**p) / (x1**p - x0**p)

    low, high = 0.05, 4.0
    if not ratio(low) <= wanted <= ratio(high):
        return None
    while high - low > 1e-6:  # The ratio grows with p.
        middle = (low + high) / 2
        low, high = (middle, high) if ratio(middle) < wanted else (low, middle)
    return low


def startup(sizes: Sizes, say: Say) -> dict[str, Any]:
    """Seconds from the start of `normlab run` to the first step done in a worker: both imports, the stack, and the
    evaluation at step 0 lie between."""
    taken, count = [], 2 * (sizes.jobs or cores())
    for k in range(sizes.starts):
        say(f"start {k + 1} of {sizes.starts}")
        with tempfile.TemporaryDirectory() as folder:
            stamp = Path(folder) / "stamp"
            started = time.monotonic()
            variables: dict[str, str | None] = {"NORMLAB_BENCH_STAMP": str(stamp)}
            with environment(variables), sweep(Path(folder), tree(sizes.spec), count, sizes.jobs, True) as process:
                while not (stamp.exists() and stamp.read_text().endswith("\n")) and process.poll() is None:
                    time.sleep(0.02)
            if not stamp.exists():
                check(process.returncode, Path(folder))
                raise CannotRun("a sweep ended without a step of a stack")
            # Every worker writes a line; the first one counts.
            taken.append(min(map(float, stamp.read_text().split())) - started)
    return {"seconds": summary(taken), "runs": count}


def long(sizes: Sizes, say: Say) -> dict[str, Any]:
    """Resident memory of parent and workers in a sweep of many short runs of the benchmark's net, over time."""
    base = tree(sizes.spec)
    base["train"] |= {"steps": sizes.long_steps, "eval_every": sizes.long_steps}
    samples: list[dict[str, Any]] = []
    said = 0
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        published = Path(folder) / "out" / "runs"
        with sweep(Path(folder), base, sizes.long_runs, sizes.jobs) as process:
            while process.poll() is None:
                done = count_folders(published)
                samples.append({"seconds": time.monotonic() - started, "done": done, **resident(process.pid)})
                if done >= said + sizes.long_runs // 10:
                    say(f"the long sweep: {(said := done)} of {sizes.long_runs} runs")
                time.sleep(0.2)
        check(process.returncode, Path(folder))
        done = count_folders(published)
    every = max(1, len(samples) // SAMPLES_KEPT)
    facts = {"runs": done, "steps": sizes.long_steps, "seconds": time.monotonic() - started}
    return facts | growth(samples) | {"samples": samples[::every]}


def growth(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Megabytes that parent and workers (the one that grew most) gained from the sample with the 100th run done to the
    last one with workers at work; None where the memory could not be watched. What the parent takes afterwards for
    tables and figures is not the sweep's."""
    watched = [sample for sample in samples if sample["workers_mb"] and sample["done"] >= FROM_RUN]
    if len(watched) < 2:
        return {"from_run": None, "to_run": None, "parent_growth_mb": None, "worker_growth_mb": None, "peak_mb": None}
    first, pids = watched[0], watched[0]["workers_mb"].keys()
    # Afterwards the parent may have other children for a moment, as matplotlib's search for fonts.
    watched = [sample for sample in watched if pids & sample["workers_mb"].keys()]
    last = watched[-1]
    grown = [last["workers_mb"][pid] - first["workers_mb"][pid] for pid in pids & last["workers_mb"].keys()]
    return {
        "from_run": first["done"],
        "to_run": last["done"],
        "parent_growth_mb": last["parent_mb"] - first["parent_mb"],
        "worker_growth_mb": max(grown, default=None),
        "peak_mb": max(s["parent_mb"] + sum(s["workers_mb"].values()) for s in watched),
    }


def tree(spec: RunSpec) -> dict[str, Any]:
    """Task, model and training of a spec, as a config has them."""
    return {part: getattr(spec, part).model_dump(exclude_defaults=True) for part in ("task", "model", "train")}


@contextmanager
def sweep(
    folder: Path, base: Mapping[str, Any], count: int, jobs: int | None, plugin: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """`normlab run` of one structure with `count` seeds into `folder/out`, started; stopped if it still runs after."""
    config: dict[str, Any] = {"question": "How long does this take?", "base": base, "seeds": list(range(count))}
    if plugin:
        shutil.copy(STAMP, folder / STAMP.name)
        config["plugins"] = [STAMP.name]
    (folder / "bench.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    command = [sys.executable, "-m", "normlab", "run", "bench.yaml", "-o", "out", "-q"]
    command += ["--jobs", str(jobs)] if jobs else []
    paths = [str(Path(normlab.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with open(folder / "said", "wb") as said:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=said, stderr=said, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def check(code: int, folder: Path) -> None:
    """CannotRun with the end of what the command said, if it failed."""
    if code:
        words = (folder / "said").read_text(encoding="utf-8", errors="replace").strip()[-2000:]
        raise CannotRun(f"normlab run ended with exit code {code}:\n{words}")


def count_folders(folder: Path) -> int:
    """Published runs in a folder of runs."""
    try:
        return sum(not name.startswith(".") for name in os.listdir(folder))
    except OSError:
        return 0


def resident(pid: int) -> dict[str, Any]:
    """Resident memory in MB of a process and of its children, by pid; empty where there is no /proc."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return {"parent_mb": resident_of(str(pid)), "workers_mb": {}}
    workers = {child: mb for child in children if (mb := resident_of(child)) > 0}
    return {"parent_mb": resident_of(str(pid)), "workers_mb": workers}


def resident_of(pid: str) -> float:
    """Resident memory of a process in MB; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) * 1.024e-3 for line in lines if line.startswith("VmRSS:")), 0.0)
