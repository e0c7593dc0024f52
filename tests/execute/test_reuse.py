"""`--reuse DIR` takes the runs that two studies share, if they were made under the same circumstances."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
from tiny import Runner, tiny_study

from normlab.config.engine import SWITCHES
from normlab.config.plan import expand
from normlab.config.schema import Thresholds
from normlab.execute.manifest import environment
from normlab.execute.reuse import SAME, reusable
from normlab.execute.target import Refused
from normlab.manifests import read_manifest
from normlab.store import finished_ids

SMALL, LARGE = tiny_study(seeds=(0, 1)), tiny_study(seeds=(0, 1, 2))


@pytest.fixture
def source(tmp_path: Path, fake_run: Runner) -> Path:
    """A finished folder whose runs say that they were made here and now, as the real trainer's do."""
    fake_run(SMALL, tmp_path / "source", jobs=1)
    env = environment("cpu", "a cpu")
    facts = {"timing.json": {key: env[key] for key in SAME}, "run.json": {"thresholds": Thresholds().model_dump()}}
    for name, added in facts.items():
        for file in (tmp_path / "source").glob(f"runs/*/{name}"):
            file.write_text(json.dumps({**json.loads(file.read_text()), **added}))
    return tmp_path / "source"


def test_shared_runs_are_copied_and_the_rest_is_trained(tmp_path: Path, fake_run: Runner, source: Path) -> None:
    summary, watcher = fake_run(LARGE, tmp_path / "new", jobs=1, reuse=[source])
    shared = {run.id for run in expand(SMALL)}
    assert set(watcher.todo) == finished_ids(tmp_path / "new") - shared and summary.done == 2
    for id in shared:
        for name in ("run.json", "curve.csv", "timing.json"):
            old, new = (folder / "runs" / id / name for folder in (source, tmp_path / "new"))
            assert old.read_bytes() == new.read_bytes()
    assert watcher.notes == [f"4 of 6 runs taken from {source}"]
    manifest = read_manifest(tmp_path / "new")
    assert manifest and manifest["sessions"][0]["reused"] == 4


def test_all_runs_may_come_from_elsewhere(tmp_path: Path, fake_run: Runner, source: Path) -> None:
    summary, _ = fake_run(SMALL, tmp_path / "new", jobs=1, reuse=[source])
    assert summary.done == 0 and finished_ids(tmp_path / "new") == finished_ids(source)
    manifest = read_manifest(tmp_path / "new")
    assert manifest and manifest["sessions"][0]["reused"] == 4


@pytest.mark.parametrize("key", [*SAME, *SWITCHES])
def test_runs_made_under_other_circumstances_are_trained_again(
    tmp_path: Path, fake_run: Runner, source: Path, key: str
) -> None:
    for timing in source.glob("runs/*/timing.json"):
        timing.write_text(json.dumps({**json.loads(timing.read_text()), key: "another"}))
    summary, _ = fake_run(SMALL, tmp_path / "new", jobs=1, reuse=[source])
    assert summary.done == 4


def test_runs_of_the_fused_step_are_taken_where_it_would_train_them(
    tmp_path: Path, fake_run: Runner, source: Path
) -> None:
    """The source is marked as fused; what the step does not know is made without it anywhere."""
    fused = {**environment("cpu", "a cpu"), "fused": "x86-64-v3, g++ 12"}
    plan = expand(SMALL)
    for run in plan:
        path = source / "runs" / run.id / "timing.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "fused": fused["fused"]}))
    assert set(reusable(plan, [source], SMALL, fused)) == {run.id for run in plan}
    assert not reusable(plan, [source], SMALL, environment("cpu", "a cpu"))
    assert not reusable(plan, [source], SMALL, {**fused, "fused": "x86-64-v4, g++ 12"})
    odd = tiny_study(seeds=(0,), base=SMALL.base.model_validate({"model": {"norm": "scalenorm"}}))
    shutil.copytree(source / "runs" / plan[0].id, source / "runs" / expand(odd)[0].id)
    assert not reusable(expand(odd), [source], odd, fused)


def test_other_thresholds_judge_anew(tmp_path: Path, fake_run: Runner, source: Path) -> None:
    stricter = tiny_study(seeds=(0, 1), thresholds=Thresholds(unsteady_margin=0.1))
    summary, _ = fake_run(stricter, tmp_path / "new", jobs=1, reuse=[source])
    assert summary.done == 4


def test_a_source_without_results_is_refused_before_anything_is_written(tmp_path: Path, fake_run: Runner) -> None:
    with pytest.raises(Refused, match="expected the results folder"):
        fake_run(SMALL, tmp_path / "new", jobs=1, reuse=[tmp_path / "nowhere"])
    assert not (tmp_path / "new").exists()


def test_gzipped_curves_are_taken_whole_and_thinned_ones_are_not(
    tmp_path: Path, fake_run: Runner, source: Path
) -> None:
    curves = {path.parent.name: path.read_text() for path in source.glob("runs/*/curve.csv")}
    for path in source.glob("runs/*/curve.csv"):
        path.with_name("curve.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    summary, _ = fake_run(SMALL, tmp_path / "new", jobs=1, reuse=[source])
    assert summary.done == 0
    assert {path.parent.name: path.read_text() for path in (tmp_path / "new").glob("runs/*/curve.csv")} == curves
    manifest = json.loads((source / "manifest.json").read_text())
    (source / "manifest.json").write_text(json.dumps({**manifest, "curves": "gzipped, thinned to evaluations"}))
    summary, watcher = fake_run(SMALL, tmp_path / "other", jobs=1, reuse=[source])
    assert summary.done == 4 and watcher.notes == [f"0 of 4 runs taken from {source}"]


def test_runs_made_with_another_plugin_are_trained_again(tmp_path: Path, fake_run: Runner, source: Path) -> None:
    (tmp_path / "mine.py").write_text("x = 1\n")
    study = tiny_study(seeds=(0, 1), plugins=(str(tmp_path / "mine.py"),))
    summary, _ = fake_run(study, tmp_path / "new", jobs=1, reuse=[source])
    assert summary.done == 4
