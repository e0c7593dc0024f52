"""Does a sweep on a dask cluster survive what befalls one? Real processes on this machine, a line a check, exit 1 if
one fails. A few minutes on two idle cores.

    python scripts/check_cluster.py

The 24 runs of a tiny study, one of which becomes NaN, are trained without any incident first; after each incident the
records, curves and tables must be the same bytes.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from normlab.manifests import find_manifest
from normlab.store import failed_ids, finished_ids

STUDY = """
question: Do the bytes stay on a cluster?
base:
  task: {vocab: 8, length: 4, val_size: 8}
  model: {depth: 1, width: 8, hidden: 8}
  train: {batch: 4, eval_every: 50, steps: STEPS}
axes:
  optim.lr: [RATES]
seeds: [0]
"""
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
STEPS, RUNS = 150, 24
# Seconds: only to end a check that hangs; and how long nothing must have been published for all workers to be busy.
PATIENCE, STILL = 600.0, 0.1


def write_study(folder: Path, steps: int = STEPS) -> Path:
    """A study of `RUNS` runs of one structure, the last of them at a rate that makes NaN at once."""
    rates = [f"{1e-4 * 1.1**i:.3e}" for i in range(RUNS - 1)] + ["1e+30"]
    path = folder / "tiny.yaml"
    path.write_text(STUDY.replace("STEPS", str(steps)).replace("RATES", ", ".join(rates)))
    return path


def command(study: Path, folder: Path, *options: str) -> list[str]:
    """`normlab run` in this Python."""
    return [sys.executable, "-m", "normlab", "run", str(study), "-o", str(folder), *options]


def wait_until(true: Callable[[], object], what: str) -> None:
    """Wait for it; RuntimeError after a long time."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited in vain: {what}")
        time.sleep(0.02)


def wait_until_busy(folder: Path, published: int) -> None:
    """Wait until so many runs are published and no other follows for a moment: then every worker has a stack."""
    wait_until(lambda: len(finished_ids(folder)) >= published, f"{published} runs in {folder}")
    count, since = len(finished_ids(folder)), time.monotonic()
    while time.monotonic() - since < STILL:
        time.sleep(0.02)
        if (now := len(finished_ids(folder))) != count:
            count, since = now, time.monotonic()
    if count == RUNS:
        raise RuntimeError("the sweep was over before anything could befall it")


def result_bytes(folder: Path) -> dict[str, bytes]:
    """Every file of a results folder that may depend on the plan only, by name."""
    names = [*folder.glob("runs/*/run.json"), *folder.glob("runs/*/curve.csv"), *folder.glob("tables/*")]
    # The captions name the commit, which may move meanwhile in a checkout that is being worked in.
    commit = str((find_manifest(folder) or {}).get("commit")).encode()
    return {str(path.relative_to(folder)): path.read_bytes().replace(commit, b"COMMIT") for path in names}


def listening(pid: int) -> set[str]:
    """Addresses, as the kernel prints them, of the TCP sockets that a process listens on."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(link)
        except OSError:
            continue
        inodes |= set(re.findall(r"socket:\[(\d+)\]", target))
    rows = [
        line.split() for kind in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()
    ]
    return {row[1].partition(":")[0] for row in rows if row[3] == "0A" and row[9] in inodes}


def is_loopback(address: str) -> bool:
    """Whether an address of /proc/net/tcp or tcp6 is 127.x.x.x or ::1 (32-bit words, least byte first)."""
    return len(address) == 8 and address.endswith("7F") or address == "0" * 24 + "01000000"


@dataclass
class DaskProcesses:
    """A scheduler and workers, each a process of its own; nothing survives the `with` block."""

    folder: Path
    scheduler: subprocess.Popen[bytes] = field(init=False)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    count: int = 0

    @property
    def file(self) -> Path:
        return self.folder / "scheduler.json"

    def __enter__(self) -> DaskProcesses:
        self.folder.mkdir()
        self.scheduler = self._start("dask_scheduler", "--port=0")
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self.workers, self.scheduler]:
            process.kill()
            process.wait()

    def add_worker(self) -> subprocess.Popen[bytes]:
        """Start a worker that no nanny restarts."""
        options = ["--no-nanny", "--nthreads=1", "--memory-limit=0", "--death-timeout=60"]
        worker = self._start("dask_worker", *options, f"--local-directory={self.folder}")
        self.workers.append(worker)
        return worker

    def _start(self, program: str, *options: str) -> subprocess.Popen[bytes]:
        self.count += 1
        options = (*options, "--host=127.0.0.1", "--dashboard-address=127.0.0.1:0", f"--scheduler-file={self.file}")
        with open(self.folder / f"{self.count}.log", "wb") as log:
            arguments = [sys.executable, "-m", f"distributed.cli.{program}", *options]
            return subprocess.Popen(arguments, stdout=log, stderr=log)


@contextmanager
def started(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A command that is killed at the end of the block if it is still there."""
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and stderr of a command, once it has ended."""
    _, stderr = process.communicate(timeout=PATIENCE)
    return process.returncode, stderr


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
    folder = bench.place / "one"
    with DaskProcesses(bench.place / "one-dask") as dask:
        first = dask.add_worker()
        dask.add_worker()
        with started(command(bench.study, folder, "--executor", "dask", "--scheduler-file", str(dask.file))) as client:
            wait_until_busy(folder, 3)
            first.kill()
            expect(first.wait() == -signal.SIGKILL, "the worker still lives")
            code, stderr = ended(client)
    expect(code == 0, f"exit code {code}: {stderr}")
    expect("once more, each alone" in stderr, f"no stack was tried again: {stderr}")
    bench.expect_same(folder)
    return "its stack was split, all runs are there"


def both_workers_killed(bench: Bench) -> str:
    """Both workers are killed; a new one joins and finishes the sweep."""
    folder = bench.place / "both"
    with DaskProcesses(bench.place / "both-dask") as dask:
        workers = [dask.add_worker(), dask.add_worker()]
        with started(command(bench.study, folder, "--executor", "dask", "--scheduler-file", str(dask.file))) as client:
            wait_until_busy(folder, 3)
            for worker in workers:
                worker.kill()
                worker.wait()
            kept = len(finished_ids(folder))
            time.sleep(3)
            expect(client.poll() is None, "the client did not wait")
            expect(len(finished_ids(folder)) == kept, "somebody else trains")
            dask.add_worker()
            code, stderr = ended(client)
    expect(code == 0, f"exit code {code}: {stderr}")
    expect("waiting for one" in stderr, f"it does not say that it waits: {stderr}")
    bench.expect_same(folder)
    return f"{kept} runs were kept, the new worker made {RUNS - kept}"


def scheduler_killed(bench: Bench) -> str:
    """The scheduler is killed; the client says how to go on, and the local executor does."""
    folder = bench.place / "scheduler"
    with DaskProcesses(bench.place / "scheduler-dask") as dask:
        workers = [dask.add_worker(), dask.add_worker()]
        with started(command(bench.study, folder, "--executor", "dask", "--scheduler-file", str(dask.file))) as client:
            wait_until_busy(folder, 3)
            killed = time.monotonic()
            dask.scheduler.kill()
            code, stderr = ended(client)
            seconds = time.monotonic() - killed
        expect(code == 1, f"exit code {code}: {stderr}")
        again = f"normlab run {bench.study} -o {folder} --executor dask --scheduler-file {dask.file} --resume"
        expect(again in stderr and "lost the scheduler" in stderr, f"no resume command: {stderr}")
        expect("Traceback" not in stderr, stderr)
        kept = len(finished_ids(folder))
        for worker in workers:
            worker.wait(PATIENCE)
    resumed = subprocess.run(
        command(bench.study, folder, "--resume", "--executor", "local"), capture_output=True, text=True
    )
    expect(resumed.returncode == 0, resumed.stderr)
    bench.expect_same(folder)
    return f"told after {seconds:.1f} s, the workers ended too, {kept} runs were kept"


def client_killed(bench: Bench) -> str:
    """The client is killed; its workers give up what they train, and a new client goes on with them."""
    folder = bench.place / "client"
    with DaskProcesses(bench.place / "client-dask") as dask:
        workers = [dask.add_worker(), dask.add_worker()]
        arguments = command(bench.study, folder, "--executor", "dask", "--scheduler-file", str(dask.file))
        with started(arguments) as client:
            wait_until_busy(folder, 3)
            client.kill()
            client.wait()
        kept = len(finished_ids(folder))
        resumed = subprocess.run([*arguments, "--resume"], capture_output=True, text=True)
        expect(resumed.returncode == 0, resumed.stderr)
        expect(all(worker.poll() is None for worker in workers), "a worker died of it")
    bench.expect_same(folder)
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
