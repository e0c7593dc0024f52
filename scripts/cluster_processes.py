"""Sweeps on a dask cluster, made of real processes on this machine: for `check_cluster.py` and the tests.

The study has 24 runs of one structure, one of which becomes NaN.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from normlab.manifests import find_manifest
from normlab.store import finished_ids

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
    """`normlab run` in this Python. By torch's operations: their stacks have several lanes, and live long enough."""
    return [sys.executable, "-m", "normlab", "run", str(study), "-o", str(folder), "--engine", "plain", *options]


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


@dataclass
class Sweep:
    """A sweep that is being trained on the workers of a cluster, and the command that trains it."""

    folder: Path
    dask: DaskProcesses
    arguments: list[str]
    client: subprocess.Popen[str]


@contextmanager
def sweeping(study: Path, folder: Path) -> Iterator[Sweep]:
    """A sweep on a cluster of two workers, both of which train once three runs are published; all processes are killed
    at the end of the block."""
    with DaskProcesses(folder.with_name(f"{folder.name}-dask")) as dask:
        for _ in range(2):
            dask.add_worker()
        arguments = command(study, folder, "--executor", "dask", "--scheduler-file", str(dask.file))
        with started(arguments) as client:
            wait_until_busy(folder, 3)
            yield Sweep(folder, dask, arguments, client)
