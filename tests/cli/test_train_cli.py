"""The training commands as a user types them, mostly in this process; every answer and every refusal."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from registered import only_here
from tiny_study import STUDY

from normlab.cli import main
from normlab.execute.status import read_status
from normlab.store import finished_ids

# A norm of the user's own that crashes: a plugin, as the config allows it.
BROKEN = """
from normlab.model.norms import NORMS, Norm


class Broken(Norm):
    def normalise(self, x_SBTD):
        if x_SBTD.requires_grad:
            raise RuntimeError("broken norm")
        return x_SBTD


NORMS["broken"] = Broken
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Path]:
    """A plugin that registers the norm `broken`; what it registers in this process is forgotten again."""
    path = tmp_path / "broken.py"
    path.write_text(BROKEN)
    with only_here():
        yield path


def test_run_writes_manifest_tables_figures_and_the_canonical_command(results: Path, study: Path) -> None:
    manifest = json.loads((results / "manifest.json").read_text())
    assert manifest["command"] == f"normlab run {study}"
    assert len(finished_ids(results)) == 2 == len(manifest["runs"])
    assert list((results / "tables").glob("*.csv")) and list((results / "figures").glob("*.svg"))


def test_results_are_safe_without_a_flag(results: Path, study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(study), "-o", str(results)]) == 2
    out, err = capsys.readouterr()
    assert not out and "--resume" in err and "--overwrite" in err and len(err.splitlines()) == 1


def test_a_second_resume_runs_nothing_and_answers_in_json(
    results: Path, study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(study), "-o", str(results), "--resume", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) and "all 2 runs are already in" in err


def test_a_dry_run_onto_results_says_how_many_are_there(
    results: Path, study: Path, capsys: pytest.CaptureFixture[str], no_calibration: None
) -> None:
    command = ["run", str(study), "--seeds", "0,1", "-o", str(results), "--jobs", "1", "--dry-run"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert out.count("seed=") == 4 and f"\n2 of 4 runs already in {results}\n4 runs in " in out
    assert main([*command, "--resume"]) == 0
    out = capsys.readouterr().out
    assert out.count("seed=1") == 2 == out.count("seed=") and f"2 of 4 runs already in {results}\n2 runs in " in out
    assert main([*command, "model.norm=none", "--seeds", "0"]) == 0
    assert f"1 of 1 run already in {results}\n1 run in 1 stack on 1 worker, about" in capsys.readouterr().out


def test_runs_taken_by_reuse_are_not_called_already_there(
    results: Path, study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(study), "-o", str(tmp_path / "r"), "--reuse", str(results)]) == 0
    err = capsys.readouterr().err
    assert f"2 of 2 runs taken from {results}" in err and "already" not in err


@pytest.mark.parametrize("place", ["file/below", "/proc/foo"])
def test_an_output_that_cannot_be_made_is_one_line(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    (tmp_path / "file").touch()
    assert main(["run", str(study), "-o", str(tmp_path / place)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"normlab: error: {tmp_path / place} cannot be written: ")
    assert err.endswith("; choose another folder with -o\n") and err.count("\n") == 1


def test_the_answer_is_told_where_its_files_cannot_be_written(
    results: Path, study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "r"
    shutil.copytree(results, folder)
    shutil.rmtree(folder / "tables")
    (folder / "tables").touch()
    for command in (["tables", str(folder)], ["run", str(study), "-o", str(folder), "--resume", "-q"]):
        assert main(command) == 1
        out, err = capsys.readouterr()
        assert "Does the command line work?" in out and err.count("\n") == 1
        assert err.startswith("normlab: error: tables and figures could not be written: File exists (")


def test_a_changed_key_under_resume_is_named(results: Path, study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(study), "train.steps=7", "-o", str(results), "--resume"]) == 2
    assert "train.steps: 6 -> 7" in capsys.readouterr().err


def test_status_in_words_and_in_json(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(results)]) == 0
    assert "2 runs planned" in capsys.readouterr().out
    assert main(["status", str(results), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["planned"], found["finished"], found["missing"], found["writer"]) == (2, 2, 0, None)
    assert main(["status", str(tmp_path)]) == 2
    assert "no manifest.json" in capsys.readouterr().err


def test_a_crashing_norm_fails_its_runs_only_and_exits_1(
    plugin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = STUDY.replace("[layernorm, none]", "[broken, none]") + f"plugins: [{plugin.name}]\n"
    (tmp_path / "mine.yaml").write_text(text)
    folder = tmp_path / "r"
    command = ["run", str(tmp_path / "mine.yaml"), "-o", str(folder), "--jobs", "1"]
    assert main(command) == 1
    err = capsys.readouterr().err
    status = read_status(folder)
    assert status and status["finished"] == 1 and len(status["failed"]) == 1
    assert status["failed"][0]["error"] == "RuntimeError: broken norm"
    path = status["failed"][0]["path"]
    assert "in normalise" in Path(path).read_text()
    assert f"FAILED norm=broken: RuntimeError: broken norm ({path})" in err and "--jobs 1 --resume" in err
    assert (folder / "tables").is_dir()
    # All failed, and --fail-fast: still exit 1, also without any run to make a table of.
    alone = tmp_path / "alone"
    assert main([*command[:2], "model.norm=broken", "-o", str(alone), "--jobs", "1", "--fail-fast"]) == 1


def test_a_file_size_limit_is_told_in_one_line_and_leaves_earlier_runs(study: Path, tmp_path: Path) -> None:
    folder = tmp_path / "r"
    code = (
        "import resource, sys; from normlab.cli import main;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384)); sys.exit(main())"
    )
    words = ["run", str(study), "model.norm=none", "train.steps=400,6", "-o", str(folder), "--jobs", "1", "-q"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert f"no room to write results: File too large: {folder}; the runs" in done.stderr and "--resume" in done.stderr
    assert not (folder / "runs").exists() or not list((folder / "runs").iterdir())


def test_dry_run_writes_nothing_and_calibrates_on_real_steps(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", str(study), "--dry-run", "--json", "--jobs", "2", "--seeds", "0-2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["runs"]) == 6 and found["stacks"] >= 2 and found["seconds"] > 0
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_standard_streams_works(study: Path, tmp_path: Path) -> None:
    shut = "import os, sys; os.close(0); os.close(2); os.execv(sys.executable, [sys.executable, '-m', *sys.argv[1:]])"
    words = ["normlab", "run", str(study), "-o", str(tmp_path / "r"), "--jobs", "1"]
    done = subprocess.run([sys.executable, "-c", shut, *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and len(finished_ids(tmp_path / "r")) == 2


def test_the_default_folder_is_named_after_the_study(
    study: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    no_calibration: None,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", str(study), "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["output"] == "results/tiny"


@pytest.mark.parametrize("device", ["tpu", "cuda:99"])
def test_a_device_that_is_not_there_is_a_usage_error(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], device: str
) -> None:
    assert main(["run", str(study), "--device", device, "-o", str(tmp_path / "r")]) == 2
    assert "--device" in capsys.readouterr().err and not (tmp_path / "r").exists()
