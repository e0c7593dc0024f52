"""The pool with instant trainers: nothing is lost, the guilty run is found, its neighbours are not blamed."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from tiny import Recorder, Runner, tiny_study

from normlab.config.plan import expand
from normlab.execute import hold, sweep
from normlab.execute.children import CannotStart
from normlab.execute.events import Failed, Retried
from normlab.execute.target import Refused
from normlab.manifests import read_manifest
from normlab.store import failed_ids, finished_ids, read_run

STUDY = tiny_study()
IDS = {run.id for run in expand(STUDY)}
SEED_1 = {run.id for run in expand(STUDY) if run.spec.seed == 1}


def children() -> set[str]:
    """Ids of the processes whose parent is this one."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found.add(stat.parent.name)
    return found


def test_every_run_is_published_and_the_sitting_is_noted(tmp_path: Path, fake_run: Runner) -> None:
    before = children()
    summary, watcher = fake_run(STUDY, tmp_path / "r", jobs=2)
    assert finished_ids(tmp_path / "r") == IDS and not failed_ids(tmp_path / "r")
    assert (summary.planned, summary.done, summary.failed) == (6, 6, [])
    manifest = read_manifest(tmp_path / "r")
    assert manifest and [run["id"] for run in manifest["runs"]] == [run.id for run in expand(STUDY)]
    assert [(s["done"], s["failed"]) for s in manifest["sessions"]] == [(6, 0)]
    assert watcher.ended and children() <= before


def test_a_worker_that_dies_costs_one_more_try(
    tmp_path: Path, fake_run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MARKER", str(tmp_path / "marker"))
    summary, watcher = fake_run(STUDY, tmp_path / "r", "dies_once", jobs=1)
    assert (tmp_path / "marker").exists()
    assert finished_ids(tmp_path / "r") == IDS and not summary.failed
    assert [event.reason for event in watcher.events if isinstance(event, Retried)] == ["worker died (signal 9)"]


@pytest.mark.parametrize("lanes", [1, 6])
def test_a_run_that_kills_its_worker_is_failed_alone(
    tmp_path: Path, fake_run: Runner, monkeypatch: pytest.MonkeyPatch, lanes: int
) -> None:
    monkeypatch.setattr(sweep, "MAX_LANES", lanes)
    summary, _ = fake_run(STUDY, tmp_path / "r", "dies_for_seed_1", jobs=2)
    assert finished_ids(tmp_path / "r") == IDS - SEED_1
    assert failed_ids(tmp_path / "r") == SEED_1 == {failed.id for failed in summary.failed}
    for run in SEED_1:
        text = (tmp_path / "r" / "failed" / run / "error.txt").read_text()
        assert text.startswith("worker died (signal 9)\n") and "last words" in text


@pytest.mark.parametrize("lanes", [1, 6])
def test_an_exception_fails_its_run_and_keeps_the_traceback(
    tmp_path: Path, fake_run: Runner, monkeypatch: pytest.MonkeyPatch, lanes: int
) -> None:
    monkeypatch.setattr(sweep, "MAX_LANES", lanes)
    _, watcher = fake_run(STUDY, tmp_path / "r", "raises_for_seed_1", jobs=1)
    assert finished_ids(tmp_path / "r") == IDS - SEED_1
    failures = [event for event in watcher.events if isinstance(event, Failed)]
    assert [failure.reason for failure in failures] == ["RuntimeError: no such luck"] * 2
    for run in SEED_1:
        text = (tmp_path / "r" / "failed" / run / "error.txt").read_text()
        assert "raises_for_seed_1" in text and "second line" in text
    # An exception of a run that is alone would come again: it is not retried.
    retried = [run for event in watcher.events if isinstance(event, Retried) for run in event.ids]
    assert len(retried) == (6 if lanes == 6 else 0)


def test_resume_tries_failed_runs_again_and_forgets_the_failure(tmp_path: Path, fake_run: Runner) -> None:
    fake_run(STUDY, tmp_path / "r", "raises_for_seed_1", jobs=1)
    summary, watcher = fake_run(STUDY, tmp_path / "r", "quick", jobs=1, resume=True)
    assert set(watcher.todo) == SEED_1 and summary.done == 2
    assert finished_ids(tmp_path / "r") == IDS and not failed_ids(tmp_path / "r")
    manifest = read_manifest(tmp_path / "r")
    assert manifest and [(s["done"], s["failed"]) for s in manifest["sessions"]] == [(4, 2), (2, 0)]


def test_fail_fast_stops_at_the_first_failure(
    tmp_path: Path, fake_run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "MAX_LANES", 1)
    summary, watcher = fake_run(STUDY, tmp_path / "r", "raises_always", jobs=1, fail_fast=True)
    assert len(summary.failed) == 1 == len(failed_ids(tmp_path / "r")) and watcher.ended


def test_a_full_disk_stops_the_sweep_and_leaves_finished_runs(
    tmp_path: Path, fake_run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "MAX_LANES", 1)
    with pytest.raises(OSError, match="No space left") as caught:
        fake_run(STUDY, tmp_path / "r", "fills_the_disk", jobs=1)
    assert caught.value.errno == errno.ENOSPC
    assert str(caught.value) == "[Errno 28] No space left on device: 'r/run.json'"
    kept = finished_ids(tmp_path / "r")
    assert kept and kept < IDS
    assert all(read_run(tmp_path / "r" / "runs" / run)["id"] == run for run in kept)


def test_a_worker_that_cannot_start_says_why(tmp_path: Path, fake_run: Runner) -> None:
    with pytest.raises(CannotStart, match="has no attribute 'missing'"):
        fake_run(STUDY, tmp_path / "r", "missing", jobs=1)


def test_workers_never_outnumber_stacks(tmp_path: Path, fake_run: Runner) -> None:
    fake_run(tiny_study(seeds=[0]), tmp_path / "r", jobs=50)
    manifest = read_manifest(tmp_path / "r")
    assert manifest and manifest["sessions"][0]["jobs"] == 2


def test_a_resume_under_other_circumstances_is_told(tmp_path: Path, fake_run: Runner) -> None:
    fake_run(tiny_study(seeds=[0]), tmp_path / "r", jobs=1)
    path = tmp_path / "r" / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "threads": 4, "dirty": "unknown"}))
    watcher: Recorder
    _, watcher = fake_run(tiny_study(seeds=[0, 1]), tmp_path / "r", jobs=1, resume=True)
    assert len(watcher.warnings) == 1 and "threads 4 -> 1" in watcher.warnings[0]
    assert "dirty unknown -> " in watcher.warnings[0]


@pytest.mark.parametrize("step", ["lease", "write_manifest", "write_file"])
def test_a_folder_that_cannot_be_written_is_refused_in_one_line(
    tmp_path: Path, fake_run: Runner, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", "a/temporary/name")

    monkeypatch.setattr(hold if step == "lease" else sweep, step, refuse)
    with pytest.raises(Refused) as caught:
        fake_run(tiny_study(seeds=[0]), tmp_path / "r", jobs=1)
    text = f"{tmp_path / 'r'} cannot be written: Read-only file system; choose another folder with -o"
    assert str(caught.value) == text


def test_workers_import_nothing_from_the_users_folder(
    tmp_path: Path, fake_run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "random.py").write_text("raise SystemExit('the user's own file')")
    (tmp_path / "errno.py").write_text("raise SystemExit('the user's own file')")
    monkeypatch.chdir(tmp_path)
    summary, _ = fake_run(tiny_study(seeds=[0]), tmp_path / "r", jobs=1)
    assert summary.done == 2
