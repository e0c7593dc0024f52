"""A whole reproduction: shared runs trained once, resumed exactly, refused where it must be."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from tiny_plan import CPU, Run, everything, manifest, tiny_plan

from normlab.execute import estimate, parts
from normlab.execute.outstanding import find_sources, preview
from normlab.execute.parts import Plan
from normlab.execute.sweep import Options
from normlab.execute.target import Refused
from normlab.measures import read_measure
from normlab.store import finished_ids


def test_runs_that_two_studies_share_are_trained_once(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "r"
    tally = run(folder)
    assert (tally.planned, tally.runs, tally.measures, tally.failed) == (6, 6, ["before", "after"], False)
    one, two = (folder / "studies" / name for name in ("one", "two"))
    assert (len(finished_ids(one)), len(finished_ids(two))) == (4, 6)
    for id in finished_ids(one):
        for name in ("run.json", "curve.csv", "timing.json"):
            assert (one / "runs" / id / name).read_bytes() == (two / "runs" / id / name).read_bytes()
    assert manifest(two)["sessions"][0]["reused"] == 4
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"6 runs on 1 worker -> {folder}"
    assert lines[1].startswith("6 runs and 2 measures: about ") and "before, after as stated" in lines[1]
    ended = [line for line in lines if line.startswith("[")]
    assert [line.partition("]")[0] for line in ended] == [f"[{n}/8" for n in range(1, 9)]
    assert ended[0].startswith("[1/8] before: measured") and "[2/8] one lr=" in ended[1]
    assert "two (3 of 4): 2 to train, 4 runs taken from other results" in lines


def test_the_plan_is_told_before_the_time_is_estimated(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Estimating(Exception):
        pass

    def calibrate(*_: object) -> None:
        raise Estimating

    monkeypatch.setattr(estimate, "calibrate", calibrate)
    with pytest.raises(Estimating):
        run(tmp_path / "r")
    assert capsys.readouterr().err == f"6 runs on 1 worker -> {tmp_path / 'r'}\n"


def test_the_manifest_names_the_parts_and_hashes_their_records(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "r"
    run(folder, tiny_plan(quick=True, seeds=(0,)))
    found = manifest(folder)
    assert (found["kind"], found["quick"], found["seeds"]) == ("reproduction", True, [0])
    assert found["command"] == "normlab reproduce --quick --seeds 0"
    assert [(part["name"], part["kind"]) for part in found["studies"]] == [
        ("before", "measure"),
        ("one", "training"),
        ("two", "training"),
        ("after", "measure"),
    ]
    assert "less" in found["shortened"] and manifest(folder / "studies" / "one")["shortened"] == ["less"]
    assert [session["runs"] for session in found["sessions"]] == [3] and found["device"] == "cpu"
    expected = [*(folder / "studies").glob("*/manifest.json"), *(folder / "studies").glob("*/measure.json")]
    hashes = {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in expected}
    assert found["files"] == hashes and len(hashes) == 4
    assert all(part["folder"] == f"studies/{part['name']}" for part in found["studies"])
    assert read_measure(folder / "studies" / "after").quick


def test_a_second_resume_runs_nothing_and_changes_no_byte(whole: Path, run: Run) -> None:
    before = everything(whole)
    tally = run(whole, resume=True)
    assert (tally.todo, tally.runs, tally.measures) == (0, 0, [])
    assert everything(whole) == before


def test_a_part_that_is_complete_keeps_its_hash(part: Path, run: Run) -> None:
    """Else a record that somebody changed would pass for ours after the next resume."""
    before = manifest(part)["files"]
    changed = part / "studies" / "after" / "measure.json"
    changed.write_text(changed.read_text().replace("1.0", "2.0"))
    run(part, resume=True)
    after = manifest(part)["files"]
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"studies/before/measure.json"}


@pytest.mark.parametrize(
    ("mode", "reason"), [("fails", "exit code 1: first words: no such luck"), ("empty", "it ended without a measure")]
)
def test_a_failed_measure_is_told_and_tried_again_alone(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str], mode: str, reason: str
) -> None:
    folder = tmp_path / "r"
    tally = run(folder, tiny_plan(mode=mode))
    assert tally.failed and (tally.failed_measures, tally.runs, tally.measures) == (["before"], 6, ["after"])
    path = folder / "failed" / "before" / "error.txt"
    err = capsys.readouterr().err
    assert f"FAILED before: {reason}" in err and str(path) in err
    assert reason.partition(":")[0] in path.read_text()
    again = run(folder, resume=True)
    assert (again.measures, again.runs, again.failed) == (["before"], 0, False)
    assert not path.exists() and len(manifest(folder)["sessions"]) == 2


def test_fail_fast_stops_at_the_first_failure(tmp_path: Path, run: Run) -> None:
    tally = run(tmp_path / "r", tiny_plan(mode="fails"), fail_fast=True)
    assert (tally.failed_measures, tally.runs, tally.measures) == (["before"], 0, [])


def test_failed_runs_are_done_by_resume_and_nothing_else(tmp_path: Path, run: Run) -> None:
    tally = run(tmp_path / "r", trainer="raises_for_seed_1")
    assert tally.failed and len(tally.failed_runs) == 3
    again = run(tmp_path / "r", resume=True)
    assert (again.runs, again.measures, again.failed) == (3, [], False)


def test_a_measure_of_the_other_length_is_not_done(whole: Path, run: Run) -> None:
    path = whole / "studies" / "after" / "measure.json"
    path.write_text(path.read_text().replace('"quick": false', '"quick": true'))
    assert run(whole, resume=True).measures == ["after"]
    assert not read_measure(path.parent).quick


def test_results_are_safe_without_a_flag(tmp_path: Path, whole: Path, run: Run) -> None:
    with pytest.raises(Refused, match=r"already holds results: .*--resume .*--overwrite"):
        run(whole)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with pytest.raises(Refused, match="holds files but no reproduction"):
        run(tmp_path / "mine", overwrite=True)
    with pytest.raises(Refused, match="contradict"):
        run(whole, resume=True, overwrite=True)


@pytest.mark.parametrize(
    ("plan", "lines"),
    [
        (tiny_plan(quick=True), ["quick: false -> true"]),
        (tiny_plan(seeds=(0,)), ["seeds: 0, 1 -> 0"]),
        (tiny_plan(quick=True, seeds=(0, 1, 2)), ["quick: false -> true", "seeds: 0, 1 -> 0, 1, 2"]),
    ],
)
def test_a_changed_plan_under_resume_is_refused_key_by_key(whole: Path, run: Run, plan: Plan, lines: list[str]) -> None:
    before = everything(whole)
    with pytest.raises(Refused) as caught:
        run(whole, plan, resume=True)
    assert [line.strip() for line in str(caught.value).splitlines()[1:-1]] == lines
    assert everything(whole) == before


def test_a_changed_study_under_resume_is_refused_before_anything_runs(part: Path, run: Run) -> None:
    changed = tiny_plan()
    study = changed.training[1].study
    base = study.base.model_copy(update={"train": study.base.train.model_copy(update={"steps": 11})})
    two = parts.Training(study.model_copy(update={"base": base}), "normlab run two.yaml")
    plan = Plan((*changed.parts[:2], two, changed.parts[3]), False, (0, 1))
    with pytest.raises(Refused, match="train.steps: 10 -> 11"):
        run(part, plan, resume=True)
    assert not (part / "studies" / "before" / "measure.json").exists()


def test_overwrite_starts_anew_and_leaves_what_is_not_ours(whole: Path, run: Run) -> None:
    for name in ("REPORT.md", "verdicts.json", "tables/article.md"):
        (whole / name).parent.mkdir(exist_ok=True)
        (whole / name).write_text("derived")
    (whole / "notes.txt").write_text("mine")
    tally = run(whole, tiny_plan(quick=True, seeds=(0,)), overwrite=True)
    assert (tally.runs, tally.measures) == (3, ["before", "after"])
    assert len(finished_ids(whole / "studies" / "two")) == 3 and len(manifest(whole)["sessions"]) == 1
    assert sorted(path.name for path in whole.iterdir()) == ["manifest.json", "notes.txt", "studies"]


def test_runs_of_other_folders_are_taken(tmp_path: Path, whole: Path, run: Run) -> None:
    studies = whole / "studies"
    assert find_sources([studies / "one"]) == [studies / "one"]
    assert find_sources([studies]) == find_sources([whole]) == [studies / "one", studies / "two"]
    with pytest.raises(Refused, match="expected the results folder"):
        find_sources([tmp_path / "none"])
    tally = run(tmp_path / "b", reuse=[whole])
    assert (tally.runs, tally.measures) == (0, ["before", "after"])
    assert len(finished_ids(tmp_path / "b" / "studies" / "two")) == 6


def test_a_preview_counts_what_would_be_done_and_writes_nothing(tmp_path: Path, part: Path) -> None:
    found = preview(tiny_plan(), Options(tmp_path / "r", jobs=1), CPU)
    assert (found.planned, found.fresh, [len(one.fresh) for one in found.todo]) == (6, 6, [0, 4, 2, 0])
    assert found.measures == {"before": 1.0, "after": 1.0} and found.stated == ("before", "after")
    assert not (tmp_path / "r").exists()
    before = everything(part)
    rest = preview(tiny_plan(), Options(part, jobs=1, resume=True), CPU)
    assert ([one.part.name for one in rest.todo], rest.fresh) == (["before"], 0)
    anew = preview(tiny_plan(), Options(part, jobs=1), CPU)
    # What was measured here tells the time better than what is stated.
    assert (anew.fresh, anew.measures["after"], anew.stated) == (6, 0.5, ("before",))
    assert everything(part) == before
    facts = json.loads(json.dumps(rest.facts(rest.seconds(1, CPU))))
    assert (facts["to_train"], facts["seconds"]) == (0, 1.0)
