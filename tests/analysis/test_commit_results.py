"""`scripts/commit_results.py`: the committed copy gives the same tables and figures."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import folders
import pytest

from normlab.analysis import write_outputs
from normlab.analysis.verify import verify

SCRIPT = Path(__file__).parents[2] / "scripts" / "commit_results.py"


def commit(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True)


def derived(root: Path) -> dict[str, bytes]:
    files = [file for folder in ("tables", "figures") for file in (root / folder).iterdir()]
    return {f"{file.parent.name}/{file.name}": file.read_bytes() for file in files}


@pytest.mark.parametrize("options", [[], ["--thin"]])
def test_the_copy_reads_like_the_original(every_ending: Path, tmp_path: Path, options: list[str]) -> None:
    write_outputs(every_ending)
    copy = tmp_path / "copy"
    done = commit(every_ending, copy, *options)
    assert done.returncode == 0, done.stderr
    assert derived(copy) == derived(every_ending)
    for folder in ("tables", "figures"):
        for file in (copy / folder).iterdir():
            file.unlink()
    write_outputs(copy)
    assert derived(copy) == derived(every_ending)
    assert not list(copy.glob("runs/*/curve.csv"))
    assert ("thinned" in json.loads((copy / "manifest.json").read_text())["curves"]) == bool(options)


def test_the_same_bytes_each_time_and_from_a_copy(every_ending: Path, tmp_path: Path) -> None:
    for source, target in (("toy", "a"), ("toy", "b"), ("a", "c")):
        assert commit(tmp_path / source, tmp_path / target).returncode == 0
    names = sorted(file.relative_to(tmp_path / "a") for file in (tmp_path / "a").rglob("*") if file.is_file())
    assert any(name.name == "curve.csv.gz" for name in names) and any(name.name == "error.txt" for name in names)
    for other in ("b", "c"):
        assert [(tmp_path / other / name).read_bytes() for name in names] == [
            (tmp_path / "a" / name).read_bytes() for name in names
        ]


def test_thinning_keeps_evaluations_every_tenth_step_and_the_onset(every_ending: Path, tmp_path: Path) -> None:
    assert commit(every_ending, tmp_path / "copy", "--thin").returncode == 0
    texts = [gzip.decompress(file.read_bytes()).decode() for file in (tmp_path / "copy").glob("runs/*/curve.csv.gz")]
    steps = {tuple(int(line.split(",")[0]) for line in text.splitlines()[1:]) for text in texts}
    assert (0, 10, 20, 30, 37) in steps and (0, 10, 20, 30, 40, 50, 60) in steps


def test_thin_keeps_an_evaluation_between_tenth_steps() -> None:
    spec = importlib.util.spec_from_file_location("commit_results", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = "step,train_loss,val_loss\n0,,2.0\n" + "".join(f"{k},1.5,{'1.0' if k == 7 else ''}\n" for k in range(1, 13))
    assert module.thin(text) == "step,train_loss,val_loss\n0,,2.0\n7,1.5,1.0\n10,1.5,\n12,1.5,\n"


def test_refuses_an_existing_target_and_a_wrong_source(every_ending: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    existing, wrong = commit(every_ending, tmp_path / "there"), commit(tmp_path / "there", tmp_path / "new")
    assert (existing.returncode, wrong.returncode) == (2, 2)
    assert "exists: remove it first" in existing.stderr and "expected the results folder" in wrong.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("options", [[], ["--thin"]])
def test_the_copy_verifies_with_hashes_of_its_own(every_ending: Path, tmp_path: Path, options: list[str]) -> None:
    folders.write_tables(every_ending)
    assert commit(every_ending, tmp_path / "copy", *options).returncode == 0
    report = verify(tmp_path / "copy")
    # One run is missing, as in the original; nothing else is to be found.
    assert [finding.found for finding in report.findings] == ["no such run"]
    assert report.checked["hashes"] == 1 + 3 * 27
    assert any("were not shipped" in note for note in report.notes) == bool(options)
    curve = next((tmp_path / "copy").glob("runs/*/curve.csv.gz"))
    text = gzip.decompress(curve.read_bytes()).decode()
    curve.write_bytes(gzip.compress(re.sub("\n(30|37),[0-9.]*,", r"\n\1,1.125,", text).encode()))
    name = curve.relative_to(tmp_path / "copy").as_posix()
    assert name in {finding.file for finding in verify(tmp_path / "copy").findings}


def test_a_thinned_curve_that_lacks_more_than_thinning_takes(every_ending: Path, tmp_path: Path) -> None:
    assert commit(every_ending, tmp_path / "copy", "--thin").returncode == 0
    curve = next((tmp_path / "copy").glob("runs/*/curve.csv.gz"))
    text = gzip.decompress(curve.read_bytes()).decode()
    curve.write_bytes(gzip.compress(re.sub("\n10,.*\n", "\n", text).encode()))
    name = curve.relative_to(tmp_path / "copy").as_posix()
    lines = [finding.line() for finding in verify(tmp_path / "copy").findings]
    assert f"{name}: steps: expected a row for step 10, found none" in lines


def test_a_changed_file_is_not_copied(every_ending: Path, tmp_path: Path) -> None:
    folders.record_hashes(every_ending)
    curve = next(every_ending.glob("runs/*/curve.csv"))
    curve.write_text(curve.read_text().replace("\n20,", "\n20,9"))
    done = commit(every_ending, tmp_path / "copy")
    assert done.returncode == 2 and done.stderr.startswith(f"{curve}: not the file that was recorded")
    assert not (tmp_path / "copy").exists()
