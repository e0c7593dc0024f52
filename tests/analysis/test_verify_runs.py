"""`normlab verify` of changed curves, records and seeds: each is found and named."""

from __future__ import annotations

import shutil
from pathlib import Path

import folders
import pytest
from six_runs import FIRST, IDS, files, found, rehash


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


def test_a_truncated_record_is_a_finding(results: Path) -> None:
    path = results / FIRST / "run.json"
    path.write_text(path.read_text()[:100])
    lines = found(results)
    assert any(line.startswith(f"{FIRST}/run.json: expected the run's record, found ") for line in lines)
    assert any(
        line.startswith("tables: expected tables that can be computed again, found none, for ") for line in lines
    )
