"""Real processes, real training: how they are cut, killed and resumed never shows in the bytes."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tiny import Recorder

from normlab.config.load import load_study
from normlab.config.plan import expand
from normlab.execute import stacks, sweep
from normlab.execute.devices import Device
from normlab.execute.signals import catching
from normlab.execute.status import read_status
from normlab.manifests import read_manifest
from normlab.store import finished_ids, read_curve, read_run

STUDY = """
question: Do the bytes stay?
base:
  task: {vocab: 8, length: 4, val_size: 8}
  model: {depth: 1, width: 8, hidden: 8}
  train: {batch: 4, eval_every: 5}
axes:
  model.placement: [post, pre]
  optim.lr: [1e-2, 1e+30]
  train.steps: [STEPS]
seeds: [0, 1]
"""
# Only to end a test that hangs: a busy machine may take this long.
PATIENCE = 300.0


def command(study: Path, folder: Path, *options: str) -> list[str]:
    code = "import sys; from normlab.cli import main; sys.exit(main())"
    return [sys.executable, "-c", code, "run", str(study), "-o", str(folder), *options]


def compared(folder: Path) -> dict[str, bytes]:
    """Every file that may depend on the plan only."""
    names = [*folder.glob("runs/*/run.json"), *folder.glob("runs/*/curve.csv"), *folder.glob("tables/*")]
    # The captions name the commit, which may move while the tests run in a checkout that is being worked in.
    commit = str((read_manifest(folder) or {}).get("commit")).encode()
    return {str(path.relative_to(folder)): path.read_bytes().replace(commit, b"COMMIT") for path in names}


def group(pgid: int) -> list[int]:
    """Live processes of a process group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(pgrp) == pgid and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


def wait_until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@contextmanager
def started(arguments: list[str]) -> Any:
    """The command in a process group of its own; nothing of the group survives the block."""
    process = subprocess.Popen(arguments, start_new_session=True, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        for pid in group(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "bytes.yaml"
    path.write_text(STUDY.replace("STEPS", "12, 400"))
    return path


@pytest.fixture(scope="module")
def straight(study: Path) -> Path:
    """The study without any incident, on two workers."""
    folder = study.parent / "straight"
    done = subprocess.run(command(study, folder, "--jobs", "2"), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_one_worker_other_order_and_other_stacks_give_the_same_bytes(
    study: Path, straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = sweep.make_stacks
    monkeypatch.setattr(stacks, "FUSED_LANES", 3)
    monkeypatch.setattr(sweep, "make_stacks", lambda runs, *how: cut(list(runs)[::-1], *how)[::-1])
    plan = expand(load_study(study))
    with catching() as interrupts:
        options = sweep.Options(tmp_path / "r", jobs=1)
        job = sweep.Job(load_study(study), plan, options, Device("cpu", "").switched("auto", False, print), "")
        sweep.run_study(job, interrupts, Recorder())
    reference = {name: data for name, data in compared(straight).items() if name.startswith("runs/")}
    assert len(reference) == 2 * len(plan) and compared(tmp_path / "r") == reference
    outcomes = {read_run(straight / "runs" / run.id)["outcome"] for run in plan}
    assert "nan" in outcomes and len(outcomes) > 1


def test_every_worker_flushed_subnormals_and_manifest_and_runs_say_so(straight: Path) -> None:
    said = [json.loads(path.read_text())["flush_subnormals"] for path in straight.glob("runs/*/timing.json")]
    assert (read_manifest(straight) or {})["flush_subnormals"] is True and said
    assert all(said) or platform.machine() not in ("x86_64", "AMD64", "aarch64", "arm64")


def test_killed_and_resumed_gives_the_same_bytes_and_leaves_no_orphan(
    study: Path, straight: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "r"
    with started(command(study, folder, "--jobs", "1", "-q")) as process:
        wait_until(lambda: finished_ids(folder))
        process.kill()
        wait_until(lambda: not group(process.pid))
    kept = finished_ids(folder)
    for run in kept:
        assert read_run(folder / "runs" / run)["id"] == run and read_curve(folder / "runs" / run)["step"][0] == 0
    status = read_status(folder)
    assert status and status["finished"] == len(kept) < status["planned"] and status["writer"] is None
    done = subprocess.run(command(study, folder, "--jobs", "2", "-q", "--resume"), capture_output=True)
    assert done.returncode == 0
    assert compared(folder) == compared(straight) and any(name.startswith("tables/") for name in compared(folder))
    assert not list(folder.rglob(".*"))


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that ends at once and one that never does."""
    path = tmp_path_factory.mktemp("endless") / "endless.yaml"
    path.write_text(
        STUDY.replace("STEPS", "12, 9000000")
        .replace("post, pre", "post")
        .replace("1e-2, 1e+30", "1e-2")
        .replace("[0, 1]", "[0]")
    )
    return path


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_the_group_keeps_finished_runs_and_leaves_no_child(
    endless: Path, tmp_path: Path, signum: int, code: int
) -> None:
    folder = tmp_path / "r"
    with started(command(endless, folder, "--jobs", "2")) as process:
        wait_until(lambda: finished_ids(folder))
        status = read_status(folder)
        assert status and (status["finished"], status["missing"]) == (1, 1)
        assert status["writer"]["pid"] == process.pid
        os.killpg(process.pid, signum)
        _, stderr = process.communicate(timeout=PATIENCE)
        assert process.returncode == code and group(process.pid) == []
    assert f"normlab run {endless} -o {folder} --jobs 2 --resume" in stderr
    assert "Traceback" not in stderr and "failed" not in stderr
    status = read_status(folder)
    assert status and (status["finished"], status["failed"], status["writer"]) == (1, [], None)


def test_a_second_ctrl_c_does_not_wait_and_a_second_start_is_told_who_writes(endless: Path, tmp_path: Path) -> None:
    folder = tmp_path / "r"
    arguments = command(endless, folder, "--jobs", "2", "-q")
    # A parent that would wait for its workers for ever.
    arguments[2] = f"import normlab.execute.local as local; local.GRACE = 1e6; {arguments[2]}"
    with started(arguments) as process:
        wait_until(lambda: (folder / "manifest.json").exists())
        wait_until(lambda: len(group(process.pid)) == 3)
        other = subprocess.run(command(endless, folder, "--resume"), capture_output=True, text=True)
        assert other.returncode == 2 and f"process {process.pid}" in other.stderr
        workers = [pid for pid in group(process.pid) if pid != process.pid]
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: all(status_of(pid)["State"].startswith("T") for pid in workers))
        process.send_signal(signal.SIGINT)
        # The parent has asked its workers to end, who cannot hear it.
        wait_until(lambda: all(int(status_of(pid)["ShdPnd"], 16) >> (signal.SIGTERM - 1) & 1 for pid in workers))
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130 and "--resume" not in stderr
        wait_until(lambda: not group(process.pid))


def status_of(pid: int) -> dict[str, str]:
    """The fields of /proc/PID/status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)
