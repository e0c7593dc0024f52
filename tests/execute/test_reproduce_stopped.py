"""A reproduction that is stopped or killed leaves no child, loses nothing and is resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_plan import HERE, Run, manifest, tiny_plan

from normlab.execute.target import Refused
from normlab.store import finished_ids

PATIENCE = 300.0


def wait_until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def children(parent: int) -> str:
    """Ids of the processes that `parent` has started."""
    return Path(f"/proc/{parent}/task/{parent}/children").read_text()


def start(trainer: str, mode: str, folder: Path) -> subprocess.Popen[str]:
    program = [sys.executable, str(HERE / "tiny_plan.py"), trainer, mode]
    words = [*program, "reproduce", "-o", str(folder), "--jobs", "1"]
    return subprocess.Popen(words, start_new_session=True, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_stop_while_it_measures_leaves_no_child_and_is_resumed(
    tmp_path: Path, run: Run, signum: int, code: int
) -> None:
    folder = tmp_path / "r"
    process = start("here_and_now", "hangs", folder)
    note = folder / "studies" / "before" / ".tmp-pid"
    wait_until(lambda: note.exists() and note.read_text())
    child = int(note.read_text())
    with pytest.raises(Refused, match=f"process {process.pid}"):
        run(folder, resume=True)
    os.kill(process.pid, signum)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    wait_until(lambda: not alive(child))
    if code > 0:
        assert f"normlab reproduce -o {folder} --jobs 1 --resume" in stderr and "Traceback" not in stderr
        assert not (folder / "failed").exists() and len(manifest(folder)["sessions"]) == 1
    assert not run(folder, resume=True).failed
    assert len(finished_ids(folder / "studies" / "two")) == 6 and not list(folder.rglob(".*"))


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_stop_while_it_trains_keeps_what_is_done(tmp_path: Path, run: Run, signum: int, code: int) -> None:
    folder = tmp_path / "r"
    process = start("never_ends", "fine", folder)
    wait_until(lambda: (folder / "studies" / "one" / "manifest.json").exists())
    wait_until(lambda: children(process.pid))
    os.killpg(process.pid, signum)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    kept = (folder / "studies" / "before" / "measure.json").read_bytes()
    done = run(folder, tiny_plan(mode="fails"), resume=True)
    assert not done.failed  # The measure that would fail is not tried again.
    assert (folder / "studies" / "before" / "measure.json").read_bytes() == kept
    assert len(finished_ids(folder / "studies" / "two")) == 6
