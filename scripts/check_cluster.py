"""Does a sweep on a dask cluster survive what befalls one? Real processes on this machine, a line a check, exit 1 if
one fails. A few minutes on two idle cores.

    python scripts/check_cluster.py

The 24 runs of a tiny study, one of which becomes NaN, are trained without any incident first; after each incident the
records, curves and tables must be the same bytes.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from cluster_processes import PATIENCE, RUNS, STUDY, command, ended, result_bytes, sweeping, write_study

from normlab.manifests import find_manifest
from normlab.store import failed_ids, finished_ids

DEADLY = """
# A plugin that has the run of seed 1 kill its worker.
import os, signal
import normlab.train.loop as loop

train = loop.train_stack

def train_stack(specs, **options):
    if any(spec.seed == 1 for spec in specs):
        print("last words", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return train(specs, **options)

loop.train_stack = train_stack
"""


class Failed(Exception):
    """A check found something else than it should."""


def expect(true: object, what: str) -> None:
    """Fail the check unless it is so."""
    if not true:
        raise Failed(what)


@dataclass
class Bench:
    """What the checks share: a place, the study, and its results without any incident."""

    place: Path
    study: Path
    reference: dict[str, bytes]

    def expect_same(self, folder: Path) -> None:
        """The bytes are those without incident, and no run failed."""
        expect(not failed_ids(folder), f"failed runs: {failed_ids(folder)}")
        found = result_bytes(folder)
        differing = sorted(
            name for name in self.reference.keys() | found.keys() if self.reference.get(name) != found.get(name)
        )
        expect(not differing, f"other bytes in {differing[:3]}")


def one_worker_killed(bench: Bench) -> str:
    """One of two workers is killed while it trains; the other one does the rest."""
    with sweeping(bench.study, bench.place / "one") as sweep:
        first = sweep.dask.workers[0]
        first.kill()
        expect(first.wait() == -signal.SIGKILL, "the worker still lives")
        code, stderr = ended(sweep.client)
    expect(code == 0, f"exit code {code}: {stderr}")
    expect("once more, each alone" in stderr, f"no stack was tried again: {stderr}")
    bench.expect_same(sweep.folder)
    return "its stack was split, all runs are there"


def both_workers_killed(bench: Bench) -> str:
    """Both workers are killed; a new one joins and finishes the sweep."""
    with sweeping(bench.study, bench.place / "both") as sweep:
        for worker in sweep.dask.workers:
            worker.kill()
            worker.wait()
        kept = len(finished_ids(sweep.folder))
        time.sleep(3)
        expect(sweep.client.poll() is None, "the client did not wait")
        expect(len(finished_ids(sweep.folder)) == kept, "somebody else trains")
        sweep.dask.add_worker()
        code, stderr = ended(sweep.client)
    expect(code == 0, f"exit code {code}: {stderr}")
    expect("waiting for one" in stderr, f"it does not say that it waits: {stderr}")
    bench.expect_same(sweep.folder)
    return f"{kept} runs were kept, the new worker made {RUNS - kept}"


def scheduler_killed(bench: Bench) -> str:
    """The scheduler is killed; the client says how to go on, and the local executor does."""
    with sweeping(bench.study, bench.place / "scheduler") as sweep:
        killed = time.monotonic()
        sweep.dask.scheduler.kill()
        code, stderr = ended(sweep.client)
        seconds = time.monotonic() - killed
        expect(code == 1, f"exit code {code}: {stderr}")
        options = f"--executor dask --scheduler-file {sweep.dask.file} --resume"
        again = f"normlab run {bench.study} -o {sweep.folder} {options}"
        expect(again in stderr and "lost the scheduler" in stderr, f"no resume command: {stderr}")
        expect("Traceback" not in stderr, stderr)
        kept = len(finished_ids(sweep.folder))
        for worker in sweep.dask.workers:
            worker.wait(PATIENCE)
    arguments = command(bench.study, sweep.folder, "--resume", "--executor", "local")
    resumed = subprocess.run(arguments, capture_output=True, text=True)
    expect(resumed.returncode == 0, resumed.stderr)
    bench.expect_same(sweep.folder)
    return f"told after {seconds:.1f} s, the workers ended too, {kept} runs were kept"


def client_killed(bench: Bench) -> str:
    """The client is killed; its workers give up what they train, and a new client goes on with them."""
    with sweeping(bench.study, bench.place / "client") as sweep:
        sweep.client.kill()
        sweep.client.wait()
        kept = len(finished_ids(sweep.folder))
        resumed = subprocess.run([*sweep.arguments, "--resume"], capture_output=True, text=True)
        expect(resumed.returncode == 0, resumed.stderr)
        expect(all(worker.poll() is None for worker in sweep.dask.workers), "a worker died of it")
    bench.expect_same(sweep.folder)
    return f"{kept} runs were kept, the same workers made the rest"


def deadly_run(bench: Bench) -> str:
    """On a cluster of the command's own: one run kills its worker, whatever stack it is in; only that one fails."""
    study, folder = bench.place / "deadly.yaml", bench.place / "deadly"
    (bench.place / "deadly.py").write_text(DEADLY)
    text = STUDY.replace("STEPS", "50").replace("RATES", "1e-3").replace("[0]", "[0, 1, 2]")
    study.write_text(text + "plugins: [deadly.py]\n")
    done = subprocess.run(command(study, folder, "--executor", "dask", "--jobs", "2"), capture_output=True, text=True)
    expect(done.returncode == 1, f"exit code {done.returncode}: {done.stderr}")
    plan = (find_manifest(folder) or {})["runs"]
    deadly = {run["id"] for run in plan if run["seed"] == 1}
    expect(failed_ids(folder) == deadly, f"failed: {failed_ids(folder)}")
    expect(finished_ids(folder) == {run["id"] for run in plan} - deadly, "not all others are there")
    (told,) = folder.glob("failed/*/error.txt")
    expect("worker died (signal 9)" in told.read_text() and "last words" in told.read_text(), told.read_text())
    return "its stack was split; 2 others trained, 1 failed"


CHECKS = (one_worker_killed, both_workers_killed, scheduler_killed, client_killed, deadly_run)


def main() -> int:
    """Run all checks; 1 if one failed."""
    failures = 0
    with tempfile.TemporaryDirectory(prefix="check-cluster-") as place:
        study = write_study(Path(place))
        folder = Path(place) / "reference"
        subprocess.run(command(study, folder, "--jobs", "1", "-q"), check=True, stdout=subprocess.DEVNULL)
        bench = Bench(Path(place), study, result_bytes(folder))
        for check in CHECKS:
            start = time.monotonic()
            try:
                word, what = "ok    ", check(bench)
            except (Failed, RuntimeError, subprocess.SubprocessError) as error:
                word, what = "FAILED", str(error)
                failures += 1
            print(f"{word} {check.__name__.replace('_', ' ')} ({time.monotonic() - start:.0f} s): {what}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
