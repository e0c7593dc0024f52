from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from normlab.execute.lease import LOCK, Held, holder, lease

HOLD = """
import sys, time
from pathlib import Path
from normlab.execute.lease import lease
with lease(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_process_is_told_who_holds_the_folder_until_it_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout and other.stdout.readline() == "held\n"
            with pytest.raises(Held, match=f"process {other.pid} on {os.uname().nodename}"):
                with lease(tmp_path, patience=0):
                    pass
            assert holder(tmp_path) == {"pid": other.pid, "host": os.uname().nodename}
        finally:
            other.send_signal(signal.SIGKILL)
    # No stored state: the lock of a killed process holds nobody up.
    assert holder(tmp_path) is None
    with lease(tmp_path, patience=0):
        pass
    assert not (tmp_path / LOCK).exists()


def test_of_twenty_simultaneous_starts_one_goes_on(tmp_path: Path) -> None:
    together, all_tried = Barrier(20), Barrier(20)

    def start(_: int) -> bool:
        together.wait()
        try:
            with lease(tmp_path, patience=0):
                all_tried.wait()
                return True
        except Held:
            all_tried.wait()
            return False

    with ThreadPoolExecutor(20) as pool:
        assert sum(pool.map(start, range(20))) == 1


def test_released_when_the_block_raises(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), lease(tmp_path):
        assert (holder(tmp_path) or {})["pid"] == os.getpid()
        raise ZeroDivisionError
    assert holder(tmp_path) is None
