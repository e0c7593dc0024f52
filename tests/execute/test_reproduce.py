"""A whole reproduction: shared runs trained once, resumed exactly, refused where it must be, killed without loss."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_plan import tiny_plan

from normlab.config.load import load_study, shipped_configs
from normlab.config.plan import expand
from normlab.execute import estimate, parts
from normlab.execute.devices import Device
from normlab.execute.display import Lines
from normlab.execute.outstanding import find_sources, preview
from normlab.execute.overall import Overall
from normlab.execute.parts import Plan, make_plan
from normlab.execute.reproduce import Tally, reproduce
from normlab.execute.signals import catching
from normlab.execute.sweep import Options
from normlab.execute.target import Refused
from normlab.measures import read_measure
from normlab.store import finished_ids

HERE = Path(__file__).parent
CPU = Device("cpu", "a cpu")
PATIENCE = 300.0
Run = Callable[..., Tally]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Reproduce the tiny plan with one of the trainers of `fakes.py`."""
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setattr(estimate, "calibrate", lambda *_: {1.0: 1e-9})

    def go(folder: Path, plan: Plan | None = None, trainer: str = "here_and_now", **options: Any) -> Tally:
        chosen = Options(folder, jobs=1, trainer=f"fakes:{trainer}", **options)
        with catching() as interrupts:
            return reproduce(plan or tiny_plan(), chosen, CPU, interrupts, Overall(Lines(folder)))

    return go


def manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


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


def test_a_second_resume_runs_nothing_and_changes_no_byte(tmp_path: Path, run: Run) -> None:
    run(tmp_path / "r")
    before = everything(tmp_path / "r")
    tally = run(tmp_path / "r", resume=True)
    assert (tally.todo, tally.runs, tally.measures) == (0, 0, [])
    assert everything(tmp_path / "r") == before


def test_a_part_that_is_complete_keeps_its_hash(tmp_path: Path, run: Run) -> None:
    """Else a record that somebody changed would pass for ours after the next resume."""
    folder = tmp_path / "r"
    run(folder, tiny_plan(mode="fails"))
    before = manifest(folder)["files"]
    changed = folder / "studies" / "after" / "measure.json"
    changed.write_text(changed.read_text().replace("1.0", "2.0"))
    run(folder, resume=True)
    after = manifest(folder)["files"]
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


def test_a_measure_of_the_other_length_is_not_done(tmp_path: Path, run: Run) -> None:
    run(tmp_path / "r")
    path = tmp_path / "r" / "studies" / "after" / "measure.json"
    path.write_text(path.read_text().replace('"quick": false', '"quick": true'))
    assert run(tmp_path / "r", resume=True).measures == ["after"]
    assert not read_measure(path.parent).quick


def test_results_are_safe_without_a_flag(tmp_path: Path, run: Run) -> None:
    run(tmp_path / "r")
    with pytest.raises(Refused, match=r"already holds results: .*--resume .*--overwrite"):
        run(tmp_path / "r")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with pytest.raises(Refused, match="holds files but no reproduction"):
        run(tmp_path / "mine", overwrite=True)
    with pytest.raises(Refused, match="contradict"):
        run(tmp_path / "r", resume=True, overwrite=True)


@pytest.mark.parametrize(
    ("plan", "lines"),
    [
        (tiny_plan(quick=True), ["quick: false -> true"]),
        (tiny_plan(seeds=(0,)), ["seeds: 0, 1 -> 0"]),
        (tiny_plan(quick=True, seeds=(0, 1, 2)), ["quick: false -> true", "seeds: 0, 1 -> 0, 1, 2"]),
    ],
)
def test_a_changed_plan_under_resume_is_refused_key_by_key(
    tmp_path: Path, run: Run, plan: Plan, lines: list[str]
) -> None:
    run(tmp_path / "r")
    before = everything(tmp_path / "r")
    with pytest.raises(Refused) as caught:
        run(tmp_path / "r", plan, resume=True)
    assert [line.strip() for line in str(caught.value).splitlines()[1:-1]] == lines
    assert everything(tmp_path / "r") == before


def test_a_changed_study_under_resume_is_refused_before_anything_runs(tmp_path: Path, run: Run) -> None:
    run(tmp_path / "r", tiny_plan(mode="fails"))
    changed = tiny_plan()
    study = changed.training[1].study
    base = study.base.model_copy(update={"train": study.base.train.model_copy(update={"steps": 11})})
    two = parts.Training(study.model_copy(update={"base": base}), "normlab run two.yaml")
    plan = Plan((*changed.parts[:2], two, changed.parts[3]), False, (0, 1))
    with pytest.raises(Refused, match="train.steps: 10 -> 11"):
        run(tmp_path / "r", plan, resume=True)
    assert not (tmp_path / "r" / "studies" / "before" / "measure.json").exists()


def test_overwrite_starts_anew_and_leaves_what_is_not_ours(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "r"
    run(folder)
    for name in ("REPORT.md", "verdicts.json", "tables/article.md"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("derived")
    (folder / "notes.txt").write_text("mine")
    tally = run(folder, tiny_plan(quick=True, seeds=(0,)), overwrite=True)
    assert (tally.runs, tally.measures) == (3, ["before", "after"])
    assert len(finished_ids(folder / "studies" / "two")) == 3 and len(manifest(folder)["sessions"]) == 1
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "notes.txt", "studies"]


def test_runs_of_other_folders_are_taken(tmp_path: Path, run: Run) -> None:
    run(tmp_path / "a")
    studies = tmp_path / "a" / "studies"
    assert find_sources([studies / "one"]) == [studies / "one"]
    assert find_sources([studies]) == find_sources([tmp_path / "a"]) == [studies / "one", studies / "two"]
    with pytest.raises(Refused, match="expected the results folder"):
        find_sources([tmp_path])
    tally = run(tmp_path / "b", reuse=[tmp_path / "a"])
    assert (tally.runs, tally.measures) == (0, ["before", "after"])
    assert len(finished_ids(tmp_path / "b" / "studies" / "two")) == 6


def test_a_preview_counts_what_would_be_done_and_writes_nothing(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "r"
    found = preview(tiny_plan(), Options(folder, jobs=1), CPU)
    assert (found.planned, found.fresh, [len(one.fresh) for one in found.todo]) == (6, 6, [0, 4, 2, 0])
    assert found.measures == {"before": 1.0, "after": 1.0} and found.stated == ("before", "after")
    assert not folder.exists()
    run(folder, tiny_plan(mode="fails"))
    before = everything(folder)
    rest = preview(tiny_plan(), Options(folder, jobs=1, resume=True), CPU)
    assert ([one.part.name for one in rest.todo], rest.fresh) == (["before"], 0)
    whole = preview(tiny_plan(), Options(folder, jobs=1), CPU)
    # What was measured here tells the time better than what is stated.
    assert (whole.fresh, whole.measures["after"], whole.stated) == (6, 0.5, ("before",))
    assert everything(folder) == before
    assert json.loads(json.dumps(rest.facts()))["to_train"] == 0


def wait_until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def children(parent: int) -> str:
    """Ids of the processes that `parent` has started."""
    return Path(f"/proc/{parent}/task/{parent}/children").read_text()


def command(trainer: str, mode: str, folder: Path, *options: str) -> list[str]:
    program = [sys.executable, str(HERE / "tiny_plan.py"), trainer, mode]
    return [*program, "reproduce", "-o", str(folder), "--jobs", "1", *options]


def start(*words: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(command(*words), start_new_session=True, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_stop_while_it_measures_leaves_no_child_and_is_resumed(tmp_path: Path, signum: int, code: int) -> None:
    folder = tmp_path / "r"
    process = start("here_and_now", "hangs", folder)
    note = folder / "studies" / "before" / ".tmp-pid"
    wait_until(lambda: note.exists() and note.read_text())
    child = int(note.read_text())
    other = subprocess.run(command("here_and_now", "fine", folder, "--resume"), capture_output=True, text=True)
    assert other.returncode == 2 and f"process {process.pid}" in other.stderr
    os.kill(process.pid, signum)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    wait_until(lambda: not alive(child))
    if code > 0:
        assert f"normlab reproduce -o {folder} --jobs 1 --resume" in stderr and "Traceback" not in stderr
        assert not (folder / "failed").exists() and len(manifest(folder)["sessions"]) == 1
    done = subprocess.run(command("here_and_now", "fine", folder, "--resume"), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(finished_ids(folder / "studies" / "two")) == 6 and not list(folder.rglob(".*"))


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_stop_while_it_trains_keeps_what_is_done(tmp_path: Path, signum: int, code: int) -> None:
    folder = tmp_path / "r"
    process = start("never_ends", "fine", folder)
    wait_until(lambda: (folder / "studies" / "one" / "manifest.json").exists())
    wait_until(lambda: children(process.pid))
    os.killpg(process.pid, signum)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    kept = (folder / "studies" / "before" / "measure.json").read_bytes()
    done = subprocess.run(command("here_and_now", "fails", folder, "--resume"), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr  # The measure that would fail is not tried again.
    assert (folder / "studies" / "before" / "measure.json").read_bytes() == kept
    assert len(finished_ids(folder / "studies" / "two")) == 6


@pytest.mark.parametrize("quick", [False, True])
def test_the_plan_of_the_article_is_whole(quick: bool) -> None:
    plan = make_plan(quick)
    assert [part.name for part in plan.parts] == [*parts.BEFORE, *parts.TRAINING, *parts.AFTER]
    assert plan.parts[-1].name == "speed" and plan.seeds == ((0,) if quick else (0, 1, 2))
    assert bool(plan.shortened) == quick
    assert make_plan(quick, "0-3").seeds == (0, 1, 2, 3)


@pytest.mark.parametrize("path", shipped_configs(), ids=lambda path: path.stem)
def test_every_shipped_study_can_be_shortened(path: Path) -> None:
    full = load_study(path)
    short = parts.shorten(full)
    runs, whole = expand(short), expand(full)
    assert len(runs) == len(whole)
    for one, other in zip(runs, whole, strict=True):
        assert (one.cell, one.spec.model) == (other.cell, other.spec.model)
        assert one.spec.train.steps == other.spec.train.steps // parts.PART
        assert one.spec.optim.warmup == other.spec.optim.warmup // parts.PART < one.spec.train.steps
    train = short.base.train
    assert all(step % train.eval_every == 0 and step <= train.steps for step in short.outputs.steps)
    assert len(short.outputs.steps) > 2


def test_the_commands_of_a_quick_plan_ask_the_same_questions() -> None:
    shipped = {path.stem: path for path in shipped_configs()}
    exact = [part for part in make_plan(True, "0,2").training if part.command.startswith("normlab run ")]
    assert {part.name for part in exact} == set(parts.TRAINING) - {"warmup"}
    for part in exact:
        words = part.command.split()
        seeds = words[words.index("--seeds") + 1]
        assert load_study(shipped[part.name], words[3:-2], seeds) == part.study
