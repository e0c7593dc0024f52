"""`normlab verify` of a whole study: silent where nothing was touched; missing, doubled and foreign files are found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import folders
import pytest
import synthetic
from six_runs import FIRST, IDS, STUDY, files, found

from normlab.analysis.verify import verify
from normlab.analysis.verify_findings import differences
from normlab.cli import main


def test_an_untouched_folder_is_as_it_should_be(untouched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(untouched)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{untouched}: checked 6 runs, 19 hashes, 18 tables: everything is as it should be\n" and not err


def test_a_folder_as_the_command_line_leaves_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "smoke"
    words = ["run", "smoke", "train.steps=20", "train.eval_every=8", "--seeds", "0,1", "-o", str(root), "-q"]
    assert main([*words, "--jobs", "1"]) == 0
    capsys.readouterr()
    assert main(["verify", str(root), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] and answer["checked"] == {"runs": 8, "hashes": 25, "tables": 18} and not answer["notes"]


@pytest.mark.parametrize("again", [False, True])
def test_a_missing_run(results: Path, again: bool) -> None:
    shutil.rmtree(results / FIRST)
    if again:
        folders.write_tables(results)
    lines = found(results)
    assert f"{FIRST}: expected the run lr=1e-3 seed=0, found no such run" in lines
    assert any(line.startswith("tables/runs.csv") for line in lines) != again


def test_a_doubled_run(results: Path) -> None:
    shutil.copytree(results / FIRST, results / "runs" / "0123456789ab")
    double = f"a double of {FIRST} (its run.json has that id)"
    assert f"runs/0123456789ab: expected only what the study plans, found {double}" in found(results)
    folders.edit(results / "runs" / "0123456789ab" / "run.json", id="0123456789ab")
    assert any(f"a double of {FIRST} (the same curve)" in line for line in found(results))


def test_strays(results: Path) -> None:
    (results / FIRST / "notes.txt").touch()
    (results / "runs" / "README").touch()
    (results / "tables" / "mine.csv").touch()
    assert files(results) == {f"{FIRST}/notes.txt", "runs/README", "tables/mine.csv"}


def test_a_changed_plan(results: Path) -> None:
    folders.edit(results / "manifest.json", study__base__train__batch=99)
    lines = found(results)
    assert sum("found no such run" in line for line in lines) == 6
    assert any(line.startswith("config.yaml: line ") for line in lines)


def test_a_crashed_run_is_told_and_no_fault(tmp_path: Path) -> None:
    root = synthetic.make_results(tmp_path / "toy", STUDY, lambda run: "failed" if run.id == IDS[0] else "trained")
    folders.write_tables(root)
    report = verify(root)
    assert not report.findings and report.notes[0].startswith("lr=1e-3 seed=0 crashed; its traceback is failed/")
    assert "no file hashes were recorded" in report.notes[1]


def test_a_run_without_a_hash_where_others_have_one(results: Path) -> None:
    manifest = json.loads((results / "manifest.json").read_text())
    del manifest["files"][f"{FIRST}/curve.csv"]
    (results / "manifest.json").write_text(json.dumps(manifest))
    assert files(results) == {f"{FIRST}/curve.csv"}


def test_all_findings_in_json(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (results / "tables" / "runs.md").unlink()
    folders.edit(results / FIRST / "run.json", spikes=1)
    assert main(["verify", str(results), "--json"]) == 3
    answer = json.loads(capsys.readouterr().out)
    assert not answer["ok"] and answer["kind"] == "study"
    assert {f["file"] for f in answer["findings"]} >= {"tables/runs.md", f"{FIRST}/run.json"}
    assert main(["verify", str(results), "-v"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(answer["findings"]) + 1 and lines[-1].endswith(f"{len(answer['findings'])} differences")


def _no_manifest(root: Path) -> None:
    (root / "manifest.json").unlink()


def _list_for_a_study(root: Path) -> None:
    folders.edit(root / "manifest.json", study=[1])


def _later_format(root: Path) -> None:
    folders.edit(root / "manifest.json", format=2)


def _later_field(root: Path) -> None:
    folders.edit(root / "manifest.json", study__base__model__heads=8)


def _truncated(root: Path) -> None:
    (root / "manifest.json").write_text("{")


@pytest.mark.parametrize("damage", [_no_manifest, _list_for_a_study, _later_format, _later_field, _truncated])
def test_what_is_no_results_folder_is_one_line(
    results: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None]
) -> None:
    damage(results)
    for command in ("verify", "tables"):
        assert main([command, str(results)]) == 2
        out, err = capsys.readouterr()
        assert not out and err.count("\n") == 1 and str(results) in err


def test_differences_name_what_they_are_in() -> None:
    old = {"claims": [{"id": "a", "cells": [{"row": "1", "column": "x", "n": 3}]}], "n": 1, "yes": True}
    new = {"claims": [{"id": "a", "cells": [{"row": "1", "column": "x", "n": 2}]}, {"id": "b"}], "yes": 1}
    assert [(at, str(a), str(b)) for at, a, b in differences(old, new)] == [
        ("claims[a].cells[1, x].n", "3", "2"),
        ("claims[b]", "nothing", "{'id': 'b'}"),
        ("n", "1", "nothing"),
        ("yes", "True", "1"),
    ]
