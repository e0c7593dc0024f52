"""`normlab verify`: every kind of damage is found and named, and an untouched folder has none."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import folders
import pytest
import synthetic

from normlab.analysis.verify import verify
from normlab.analysis.verify_findings import differences
from normlab.cli import main
from normlab.config.plan import expand

STUDY = synthetic.study(synthetic.axis("optim.lr", "1e-3", "1e-2"), seeds=(0, 1, 2))
IDS = [run.id for run in expand(STUDY)]
ENDS = ["trained", "better", "unsteady", "nan@37", "stalled", "diverged"]
FIRST = f"runs/{IDS[0]}"


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of six runs, one for each way to end, with tables and hashes."""
    root = tmp_path_factory.mktemp("verify") / "toy"
    synthetic.make_results(root, STUDY, lambda run: ENDS[IDS.index(run.id)])
    folders.write_tables(root)
    folders.record_hashes(root)
    return root


@pytest.fixture
def results(untouched: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(untouched, tmp_path / "toy"))


def found(root: Path) -> list[str]:
    return [finding.line() for finding in verify(root).findings]


def files(root: Path) -> set[str]:
    return {finding.file for finding in verify(root).findings}


def rehash(root: Path) -> None:
    """Cover the traces: the manifest gets the hashes of what lies there now, and the tables follow."""
    folders.write_tables(root)
    folders.record_hashes(root)


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


def test_a_changed_value_of_a_curve(results: Path) -> None:
    curve = results / FIRST / "curve.csv"
    curve.write_text(curve.read_text().replace("\n20,1.51,1.0,1.5,", "\n20,1.51,1.0,1.25,"))
    lines = found(results)
    assert any(line.startswith(f"{FIRST}/curve.csv: sha256: expected ") for line in lines)
    # The tables that follow from the curve now are others than those that lie there.
    assert any(
        line.startswith("tables/loss_by_step.csv: row 2 (optim.lr=1e-3, step=20), column mean: ") for line in lines
    )
    # A value that only the hash knows of.
    curve.write_text(curve.read_text().replace("\n33,1.51,", "\n33,1.49,").replace("1.25", "1.5"))
    assert files(results) == {f"{FIRST}/curve.csv"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"loss__final": 0.3}, "loss.final: expected 0.5 by its curve, found 0.3"),
        ({"loss__best_step": 40}, "loss.best_step: expected 60 by its curve, found 40"),
        ({"loss__initial": None}, "loss.initial: expected 2.1 by its curve, found null"),
        ({"outcome": "stalled"}, "outcome: expected trained by its curve, found stalled"),
        ({"steps": 59}, "steps: expected 60, the curve's last, found 59"),
        ({"spikes": 1}, "spikes: expected 0 by its curve, found 1"),
        ({"onset": {"step": 60, "kind": "loss"}}, "outcome: expected nan by its curve, found trained"),
        ({"task__guess": 0.1}, "task: expected"),
        ({"thresholds__stalled_margin": 0.5}, "thresholds.stalled_margin: expected 0.05, found 0.5"),
        ({"status": "half"}, "status: expected complete, found half"),
        ({"spec__optim__lr": 0.5}, "spec.optim.lr: expected 0.001, found 0.5"),
        ({"spec__model__depth": "six"}, "spec: expected a legal run, found model.depth: "),
        ({"loss": None}, "expected a record and a curve of a run's shape, found another shape"),
    ],
)
def test_a_changed_record(results: Path, change: dict, said: str) -> None:
    folders.edit(results / FIRST / "run.json", **change)
    assert [line for line in found(results) if line.startswith(f"{FIRST}/run.json: {said}")]


def test_a_changed_record_is_found_without_hashes_and_with_the_tables_written_again(results: Path) -> None:
    folders.edit(results / FIRST / "run.json", loss__final=0.3)
    rehash(results)
    assert found(results) == [f"{FIRST}/run.json: loss.final: expected 0.5 by its curve, found 0.3"]


def test_an_edited_seed(results: Path) -> None:
    folders.edit(results / FIRST / "run.json", spec__seed=1)
    lines = found(results)
    assert f"{FIRST}/run.json: spec.seed: expected 0, found 1" in lines
    assert any("one whose SHA-256 begins with the folder's name" in line for line in lines)
    folders.edit(results / FIRST / "run.json", spec__seed=0)
    folders.edit(results / "manifest.json", runs__0__seed=7)
    assert any(line.startswith(f"manifest.json: runs[{IDS[0]}].seed: expected 0, found 7") for line in found(results))


def test_two_seeds_that_changed_places(results: Path) -> None:
    one, two = (results / "runs" / run_id for run_id in IDS[:2])
    one.rename(results / "runs" / "x")
    two.rename(one)
    (results / "runs" / "x").rename(two)
    lines = found(results)
    assert f"{FIRST}/run.json: id: expected {IDS[0]}, found {IDS[1]}" in lines
    assert f"{FIRST}/run.json: spec.seed: expected 0, found 1" in lines
    assert any(line.startswith(f"{FIRST}/curve.csv: sha256: ") for line in lines)


def test_one_seeds_curve_under_another_seed(results: Path) -> None:
    for name in ("curve.csv", "run.json"):
        shutil.copy(results / FIRST / name, results / "runs" / IDS[1] / name)
    folders.edit(results / "runs" / IDS[1] / "run.json", id=IDS[1], spec__seed=1)
    rehash(results)
    assert found(results) == [f"runs/{IDS[1]}: expected a curve of its own, found that of {FIRST}, another seed"]


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


def test_an_edited_cell_of_a_table(results: Path) -> None:
    path = results / "tables" / "outcome.csv"
    rows = list(csv.reader(path.read_text().splitlines()))
    column = rows[0].index("text")
    old, rows[1][column] = rows[1][column], "0.1"
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    (line,) = found(results)
    assert line == f"tables/outcome.csv: row 1 (optim.lr=1e-3), column text: expected {old}, found 0.1"


@pytest.mark.parametrize("suffix", ["md", "tex"])
def test_an_edited_table_in_text(results: Path, suffix: str) -> None:
    path = results / "tables" / f"runs.{suffix}"
    path.write_text(path.read_text().replace("unsteady", "unstaedy", 1))
    (line,) = found(results)
    assert line.startswith(f"tables/runs.{suffix}: line ") and "unstaedy" in line


def test_a_deleted_table(results: Path) -> None:
    (results / "tables" / "runs.md").unlink()
    assert found(results) == ["tables/runs.md: expected the file, found no such file"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("\n31,", "\n30,", "steps: expected each once, in order, found 30 again or too late"),
        ("\n31,1.51,1.0,,,,\n", "\n", "steps: expected a row for step 31, found none"),
        ("\n40,1.01,1.0,1.0,", "\n40,1.01,1.0,,", "val_loss: expected an evaluation at step 40, found none at step 40"),
        ("act_rms_2", "act_rms_9", "columns: expected step,train_loss,"),
        ("\n31,1.51", "\n31,nan", ""),
        ("\n31,1.51", "\n31,what", "expected the run's curve, found one that cannot be read: "),
    ],
)
def test_a_curve_of_another_shape_even_with_its_hash_renewed(results: Path, old: str, new: str, said: str) -> None:
    curve = results / FIRST / "curve.csv"
    assert old in curve.read_text()
    curve.write_text(curve.read_text().replace(old, new))
    folders.record_hashes(results)
    file = "curve.csv" if said else "run.json"
    said = said or "onset: expected at step 31, where the curve's loss is not finite, found null"
    assert [line for line in found(results) if line.startswith(f"{FIRST}/{file}: {said}")]


def test_the_onset_follows_from_the_curve(results: Path) -> None:
    run = f"runs/{IDS[3]}"
    folders.edit(results / run / "run.json", onset__step=36)
    assert f"{run}/run.json: onset.step: expected 37, the curve's last, found 36" in found(results)


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
    assert main(["verify", str(results)]) == 3
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


def test_a_truncated_record_is_a_finding(results: Path) -> None:
    path = results / FIRST / "run.json"
    path.write_text(path.read_text()[:100])
    lines = found(results)
    assert any(line.startswith(f"{FIRST}/run.json: expected the run's record, found ") for line in lines)
    assert any(
        line.startswith("tables: expected tables that can be computed again, found none, for ") for line in lines
    )


def test_differences_name_what_they_are_in() -> None:
    old = {"claims": [{"id": "a", "cells": [{"row": "1", "column": "x", "n": 3}]}], "n": 1, "yes": True}
    new = {"claims": [{"id": "a", "cells": [{"row": "1", "column": "x", "n": 2}]}, {"id": "b"}], "yes": 1}
    assert [(at, str(a), str(b)) for at, a, b in differences(old, new)] == [
        ("claims[a].cells[1, x].n", "3", "2"),
        ("claims[b]", "nothing", "{'id': 'b'}"),
        ("n", "1", "nothing"),
        ("yes", "True", "1"),
    ]
