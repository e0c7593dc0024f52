"""`normlab reproduce` as a user types it: answers, refusals and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from normlab.cli import main
from normlab.execute import estimate
from normlab.execute.parts import make_plan

TINY = Path(__file__).parent.parent / "execute" / "tiny_plan.py"


def tiny(folder: Path, *options: str, mode: str = "fine") -> subprocess.CompletedProcess[str]:
    """`normlab reproduce` of two tiny studies and two measures, the first of which behaves as `mode` says."""
    words = [sys.executable, str(TINY), "here_and_now", mode, "reproduce", "-o", str(folder), "--jobs", "1", *options]
    return subprocess.run(words, capture_output=True, text=True)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reproduce") / "r"
    done = tiny(folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "   2  reproduced",
        "   1  not run",
        f"report: {folder / 'REPORT.md'} and {folder / 'report.html'}",
    ]
    return folder


def test_a_second_resume_answers_from_what_is_there(results: Path) -> None:
    done = tiny(results, "--resume", "--json")
    assert done.returncode == 0 and done.stderr == f"all 6 runs and 2 measures are already in {results}\n"
    found = json.loads(done.stdout)
    assert found["verdicts"] == {"reproduced": 2, "not run": 1} and found["runs"] == 0


def test_results_are_safe_without_a_flag(results: Path) -> None:
    done = tiny(results)
    assert (done.returncode, done.stdout) == (2, "") and len(done.stderr.splitlines()) == 1
    assert "--resume" in done.stderr and "--overwrite" in done.stderr


def test_another_plan_is_refused(results: Path) -> None:
    done = tiny(results, "--resume", "--quick")
    assert done.returncode == 2 and "quick: false -> true" in done.stderr


def test_what_failed_is_named_with_the_way_on(tmp_path: Path) -> None:
    done = tiny(tmp_path / "r", "--quick", "-q", mode="fails")
    assert done.returncode == 1 and "shortened: less" in done.stdout
    lines = done.stderr.splitlines()
    assert lines[0].startswith("FAILED before: exit code 1: first words: no such luck (")
    again = f"  normlab reproduce --quick -o {tmp_path / 'r'} --jobs 1 --resume"
    assert lines[1:] == ["failed: before; try again what is missing with:", again]


def test_a_report_that_cannot_be_written_is_one_line(results: Path) -> None:
    path = results / "verdicts.json"
    path.unlink()
    path.mkdir()
    try:
        done = tiny(results, "--resume", "-q")
    finally:
        path.rmdir()
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.startswith("normlab: error: tables and report could not be written: Is a directory")


def test_a_dry_run_counts_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = []

    def calibrate(*_: object) -> dict[float, float]:
        told.append(capsys.readouterr().out)
        return {1.0: 1e-12}

    monkeypatch.setattr(estimate, "calibrate", calibrate)
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "--dry-run", "--jobs", "2"]) == 0
    ids = {run.id for part in make_plan().training for run in part.plan}
    assert "training  postln     30 runs, 30 to train\n" in told[0] and "shortened" not in told[0]
    assert told[0].endswith(f"\n{len(ids)} distinct runs, {len(ids)} to train on 2 workers; 5 measures\n")
    rest = capsys.readouterr().out
    assert rest.startswith("about ") and rest.endswith("; nothing written\n") and rest.count("\n") == 1
    assert main(["reproduce", "--quick", "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["output"] == "results/reproduction" and found["to_train"] == found["distinct_runs"] == len(ids) // 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--seeds", "x"], "option '--seeds x': seeds: expected whole numbers"),
        (["--device", "tpu"], "normlab: error: --device: expected auto, cpu"),
        (["--reuse", "nowhere"], "normlab: error: --reuse nowhere: expected the results folder of a study"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *words]) == 2
    err = capsys.readouterr().err
    assert err.startswith(what) and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_status_tells_every_part(tmp_path: Path, results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tiny(tmp_path / "r", "--fail-fast", "-q", mode="fails").returncode == 1
    assert main(["status", str(tmp_path / "r"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {part["name"]: part["state"] for part in found["studies"]} == {
        "before": "failed",
        "one": "missing",
        "two": "missing",
        "after": "missing",
    }
    assert main(["status", str(results)]) == 0
    out = capsys.readouterr().out
    assert "training  one        complete   4 of 4 runs\n" in out and "measure   after      complete\n" in out
