"""Folders of one study joined: what agrees once, what does not is refused, and what is missing is told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny import Runner, counted_runs, tiny_study

from normlab.config.plan import expand
from normlab.config.schema import Outputs, Study, Thresholds
from normlab.execute import merge as merging
from normlab.execute.lease import lease, shard_lease
from normlab.execute.merge import merge
from normlab.execute.shards import Shard
from normlab.execute.target import Refused
from normlab.manifests import ResultsError, read_manifest
from normlab.store import finished_ids

STUDY = tiny_study(seeds=(0, 1))  # four runs
PLAN = expand(STUDY)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def change(folder: Path, **facts: Any) -> None:
    """Change the manifest of `folder`."""
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("merge")


@pytest.fixture
def here(made: Path, tmp_path: Path, fake_run: Runner) -> Path:
    """A folder with the study's `whole` and its halves `one` and `two`."""
    if not (made / "two").exists():
        fake_run(STUDY, made / "whole", jobs=1)
        for i, name in enumerate(("one", "two")):
            fake_run(STUDY, made / name, jobs=1, shard=Shard(i + 1, 2))
    shutil.copytree(made, tmp_path / "here")
    return tmp_path / "here"


def refused(here: Path, names: str = "one two", out: str = "out") -> str:
    """Why the merge is refused; nothing has changed then."""
    before = contents(here)
    with pytest.raises((Refused, ResultsError)) as caught:
        merge([here / name for name in names.split()], here / out)
    assert contents(here) == before and (out in names.split() or not (here / "out").exists())
    return str(caught.value).replace(f"{here}/", "")


@pytest.mark.parametrize("names", ["one two", "two one", "whole one two", "one whole"])
def test_the_whole_is_what_one_run_gives(here: Path, names: str) -> None:
    joined = merge([here / name for name in names.split()], here / "out")
    circumstances = ("timing.json", "manifest.json")
    one, two = (
        {n: b for n, b in contents(here / f).items() if not n.endswith(circumstances)} for f in ("whole", "out")
    )
    assert one == two and len(one) == 1 + 4 * 2 and joined.missing == [] and joined.warnings == []
    manifests = [read_manifest(here / name) for name in ("whole", "out")]
    parts = [{k: v for k, v in m.items() if k not in ("sessions", "files")} for m in manifests]
    assert parts[0] == parts[1] and not list((here / "out").rglob(".*"))
    # Timing is that of the first folder that has the run; the hashes are those that were recorded there.
    first = here / names.split()[0]
    run = sorted(finished_ids(first))[0]
    assert (here / "out/runs" / run / "timing.json").read_bytes() == (first / "runs" / run / "timing.json").read_bytes()
    assert len(manifests[1]["files"]) == 1 + 4 * 3


def test_sessions_of_all_once_and_in_order(here: Path) -> None:
    for name, start in (("one", "2026-01-02"), ("two", "2026-01-01")):
        change(here / name, sessions=[{"started": start}, {"started": "2026-01-03"}])
    merge([here / "one", here / "two"], here / "out")
    starts = [session["started"] for session in read_manifest(here / "out")["sessions"]]
    assert starts == ["2026-01-01", "2026-01-02", "2026-01-03"]


def test_missing_runs_are_told_and_can_be_resumed(here: Path, fake_run: Runner) -> None:
    gone = sorted(finished_ids(here / "two"))[0]
    shutil.rmtree(here / "two" / "runs" / gone)
    joined = merge([here / "one", here / "two"], here / "out")
    assert joined.missing == [run.label for run in PLAN if run.id == gone]
    summary, _ = fake_run(STUDY, here / "out", jobs=1, resume=True)
    assert summary.done == 1 and finished_ids(here / "out") == {run.id for run in PLAN}


def test_a_finished_run_wins_over_a_failure_and_a_failure_alone_is_kept(tmp_path: Path, fake_run: Runner) -> None:
    for name, trainer in (("bad", "raises_for_seed_1"), ("good", "quick"), ("worse", "dies_for_seed_1")):
        fake_run(STUDY, tmp_path / name, trainer, jobs=1, shard=Shard(2, 2) if name == "good" else None)
    joined = merge([tmp_path / "bad", tmp_path / "good", tmp_path / "worse"], tmp_path / "out")
    lost = {run.id for run in PLAN if run.spec.seed == 1} - finished_ids(tmp_path / "good")
    assert joined.failed.keys() == lost == {path.name for path in (tmp_path / "out" / "failed").iterdir()}
    assert lost and counted_runs(tmp_path / "out") == {
        "planned": 4,
        "finished": 4 - len(lost),
        "failed": len(lost),
        "missing": 0,
    }
    for run in lost:
        assert "no such luck" in (tmp_path / "out" / "failed" / run / "error.txt").read_text()


@pytest.mark.parametrize("file", ["run.json", "curve.csv"])
def test_a_run_that_differs_is_a_conflict(here: Path, file: str) -> None:
    run = PLAN[2]
    path = here / "whole" / "runs" / run.id / file
    path.write_text(path.read_text().replace("1.0", "1.5"))
    name = "one" if run.id in finished_ids(here / "one") else "two"
    lines = refused(here, "one two whole").splitlines()
    assert lines[0] == "1 conflict; nothing was written:"
    assert lines[1:] == [f"  run {run.id} ({run.label}): {file} differs in {name} and whole"]


def test_many_conflicts_are_not_all_told(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "SHOWN", 2)
    for path in (here / "whole").glob("runs/*/*.*"):
        path.write_text(path.read_text().replace("1.0", "1.5"))
    lines = refused(here, "one two whole").splitlines()
    assert lines[0] == "4 conflicts; nothing was written:" and lines[-1] == "  and 2 more" and len(lines) == 4
    assert "run.json and curve.csv differ in" in lines[1]


@pytest.mark.parametrize(
    ("other", "line"),
    [
        (tiny_study((0, 1, 2)), "seeds: [0, 1] -> [0, 1, 2]"),
        (tiny_study((0, 1), thresholds=Thresholds(spike_margin=1.0)), "thresholds.spike_margin: 0.5 -> 1"),
        (tiny_study((0, 1), outputs=Outputs(steps=(0,))), "outputs.steps"),
        (tiny_study((0, 1), name="other"), "name: tiny -> other"),
    ],
)
def test_another_study_is_refused_key_by_key(here: Path, fake_run: Runner, other: Study, line: str) -> None:
    fake_run(other, here / "other", jobs=1, shard=Shard(1, 7))
    lines = refused(here, "one other").splitlines()
    assert lines[0] == "one and other cannot be joined: in their studies these keys differ:"
    assert len(lines) == 2 and lines[1].startswith(f"  {line}")


def test_other_plugins_are_refused_and_moved_ones_are_not(tmp_path: Path, fake_run: Runner) -> None:
    for name, text in (("a", "x = 1\n"), ("b", "x = 1\n"), ("c", "x = 2\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").write_text(text)
        study = tiny_study((0, 1), plugins=(str(tmp_path / name / "mine.py"),))
        fake_run(study, tmp_path / f"r{name}", jobs=1, shard=Shard(1, 2))
    merge([tmp_path / "ra", tmp_path / "rb"], tmp_path / "out")
    with pytest.raises(Refused, match=r"plugins: mine\.py: sha256 \w{12} -> \w{12}"):
        merge([tmp_path / "ra", tmp_path / "rc"], tmp_path / "none")


def test_shortened_runs_are_not_mixed_with_whole_ones(here: Path) -> None:
    change(here / "two", shortened=["3 of 10 training steps"])
    assert "shortened: none -> ['3 of 10 training steps']" in refused(here)


def test_thinned_curves_are_not_mixed_with_whole_ones(here: Path) -> None:
    change(here / "two", curves="thinned to 200 rows")
    assert refused(here).splitlines()[1:] == ["  curves: none -> thinned to 200 rows"]


def test_a_plan_of_another_version_is_refused(here: Path) -> None:
    runs = read_manifest(here / "two")["runs"]
    change(here / "two", runs=[*runs, {**runs[0], "id": "0123456789ab"}], normlab="0.0")
    assert "runs: planned by normlab 0.1.0 -> 0.0" in refused(here)


def test_other_circumstances_are_told(here: Path) -> None:
    change(here / "two", torch="1.0")
    (warning,) = merge([here / "one", here / "two"], here / "out").warnings
    assert "torch" in warning and warning.endswith("-> 1.0")


def test_what_is_no_input_and_what_is_no_output(here: Path) -> None:
    assert refused(here, "one") == "merge: expected two results folders or more"
    assert "are the same folder" in refused(here, "one two one")
    assert refused(here, out="two") == "-o two: one of the folders to join; expected another one, new or empty"
    inside = "-o one/all: lies inside one, one of the folders to join; expected one outside of them"
    assert refused(here, out="one/all") == inside
    assert refused(here, out="whole") == "-o whole: expected a folder that is new or empty"
    assert "none: does not exist" in refused(here, "one none")
    (here / "stray").mkdir()
    assert "has no manifest.json" in refused(here, "one stray")
    shutil.copytree(here / "one" / "runs" / sorted(finished_ids(here / "one"))[0], here / "two/runs/0123456789ab")
    assert refused(here).startswith("two: runs/0123456789ab not in manifest.json")


def test_a_run_that_cannot_be_read_is_refused(here: Path) -> None:
    run = sorted(finished_ids(here / "two"))[0]
    (here / "two" / "runs" / run / "curve.csv").unlink()
    assert refused(here).startswith(f"two/runs/{run}: the curve cannot be read: ")
    (here / "two" / "runs" / run / "run.json").write_text("{")
    assert refused(here).startswith(f"two/runs/{run}/run.json: cannot be read: ")


def test_a_folder_that_is_being_written_is_not_joined(here: Path) -> None:
    with lease(here / "two"):
        assert refused(here).startswith("two is being written by process ")
    with shard_lease(here / "one", Shard(1, 2)):
        assert refused(here).startswith("one is being written by shard 1/2 (process ")


def test_a_changed_file_is_still_found_out_afterwards(here: Path) -> None:
    run = sorted(finished_ids(here / "two"))[0]
    before = read_manifest(here / "two")["files"][f"runs/{run}/curve.csv"]
    with (here / "two" / "runs" / run / "curve.csv").open("a") as curve:
        curve.write("2,1.0,1.0,1.0\n")
    merge([here / "one", here / "two"], here / "out")
    assert read_manifest(here / "out")["files"][f"runs/{run}/curve.csv"] == before


def test_a_full_disk_leaves_nothing_half_done(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = []

    def full(root: Path, run: Path) -> bool:
        copied.append(run)
        if len(copied) == 3:
            raise OSError(28, "No space left on device")
        return publish(root, run)

    publish = merging.publish_copy
    monkeypatch.setattr(merging, "publish_copy", full)
    with pytest.raises(OSError, match="No space"):
        merge([here / "one", here / "two"], here / "out")
    assert len(copied) == 3 and not (here / "out").exists()
