"""A real dask cluster on this machine: a killed worker never shows in the bytes, and nobody else can connect."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from test_processes import group, started, wait_until

from normlab.cli import main
from normlab.config.load import load_study
from normlab.config.plan import expand
from normlab.store import failed_ids, finished_ids, read_run

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def cluster() -> Iterator[ModuleType]:
    """The processes of the long script."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        yield importlib.import_module("cluster_processes")


def test_the_reader_of_sockets_tells_loopback_from_the_rest(cluster: ModuleType) -> None:
    assert cluster.is_loopback("0100007F") and cluster.is_loopback("00000000000000000000000001000000")
    for other in ("00000000", "0100000A", "0" * 32, "0000000000000000FFFF00000100000A"):
        assert not cluster.is_loopback(other), other


def test_a_killed_worker_costs_its_stack_only_and_every_socket_is_on_loopback(
    cluster: ModuleType, tmp_path: Path
) -> None:
    study, serial, folder = cluster.write_study(tmp_path), tmp_path / "serial", tmp_path / "dask"
    quiet = {"stdout": subprocess.DEVNULL, "check": True}
    subprocess.run(cluster.command(study, serial, "--jobs", "1", "-q"), **quiet)
    with cluster.sweeping(study, folder) as sweep:
        dask, workers = sweep.dask, sweep.dask.workers
        heard = {pid: cluster.listening(pid) for pid in (dask.scheduler.pid, *(worker.pid for worker in workers))}
        assert all(heard.values()) and all(map(cluster.is_loopback, set().union(*heard.values())))
        assert not cluster.listening(sweep.client.pid)
        os.kill(workers[0].pid, signal.SIGKILL)
        assert workers[0].wait() == -signal.SIGKILL
        code, stderr = cluster.ended(sweep.client)
    assert code == 0, stderr
    assert "died: trying" in stderr and "once more, each alone" in stderr
    planned = {run.id for run in expand(load_study(study))}
    assert len(planned) == 24 and finished_ids(folder) == planned and not failed_ids(folder)
    assert stderr.count(": trained, ") + stderr.count(": stalled, ") + stderr.count(": nan, ") == 24
    assert [read_run(folder / "runs" / run)["outcome"] for run in planned].count("nan") == 1
    found = cluster.result_bytes(folder)
    assert found == cluster.result_bytes(serial) and any(name.startswith("tables/") for name in found)


def test_a_cluster_of_its_own_listens_on_loopback_and_ends_with_ctrl_c(cluster: ModuleType, tmp_path: Path) -> None:
    study, folder = tmp_path / "endless.yaml", tmp_path / "r"
    text = cluster.STUDY.replace(", steps: STEPS", "").replace("RATES", "1e-3")
    study.write_text(text.replace("seeds:", "  train.steps: [50, 9000000]\nseeds:"))
    with started(cluster.command(study, folder, "--executor", "dask", "--jobs", "2")) as process:
        wait_until(lambda: len(finished_ids(folder)) == 1)
        children = [pid for pid in group(process.pid) if pid != process.pid]
        heard = [cluster.listening(pid) for pid in children]
        assert len(children) == 3 and all(heard) and all(map(cluster.is_loopback, set().union(*heard)))
        os.killpg(process.pid, signal.SIGINT)
        _, stderr = process.communicate(timeout=300)
        assert process.returncode == 130 and group(process.pid) == []
    assert f"normlab run {study} -o {folder} --jobs 2 --engine plain --executor dask --resume" in stderr
    assert "Traceback" not in stderr and "once more" not in stderr
    assert len(finished_ids(folder)) == 1


REFUSED = {
    "--executor slurm": "--executor: expected local or dask, got 'slurm'",
    "--scheduler tcp://127.0.0.1:1": "--scheduler needs --executor dask",
    "--listen 0.0.0.0": "--listen needs --executor dask",
    "--executor dask --scheduler 127.0.0.1": "--scheduler: expected tcp://HOST:PORT, got '127.0.0.1'",
    "--executor dask --scheduler tcp://h:1 --scheduler-file f": "name a scheduler each: give one of them",
    "--executor dask --scheduler tcp://h:1 --listen 0.0.0.0": "leave out --scheduler and its file",
    "--executor dask --listen no.such.host.invalid": "--listen no.such.host.invalid: cannot listen there: ",
    "--executor dask --listen 127.0.0.1:x": "--listen: expected ADDRESS or ADDRESS:PORT, as 10.0.0.5:8786",
    "--executor dask": "--executor dask needs dask.distributed: pip install 'normlab[cluster]'",
}


@pytest.mark.parametrize("options", REFUSED)
def test_what_cannot_be_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: str
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)  # As if it were not installed.
    assert main(["run", "smoke", "-o", str(tmp_path / "r"), *options.split()]) == 2
    stderr = capsys.readouterr().err
    assert REFUSED[options] in stderr and len(stderr.splitlines()) == 1
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("options", ["--scheduler tcp://127.0.0.1:1", "--scheduler-file {0}/none.json"])
def test_a_scheduler_that_cannot_be_reached_is_one_line(tmp_path: Path, options: str) -> None:
    code = "import sys, normlab.execute.cluster as cluster; cluster.PATIENCE = 0.5;"
    code += "from normlab.cli import main; sys.exit(main())"
    words = ["run", "smoke", "-o", str(tmp_path / "r"), "--executor", "dask", *options.format(tmp_path).split()]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and not (tmp_path / "r").exists()
    assert ("no dask scheduler can be reached at tcp://127.0.0.1:1" in done.stderr) or ("no such file" in done.stderr)
