"""Shards of one study in one folder: every run once, nobody in another's way, nothing lost."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import TINY, Runner, axis, counted_runs, tiny_study
from tiny_yaml import RATES, tiny_yaml

from normlab.config.plan import expand
from normlab.execute import lease as leases
from normlab.execute.lease import Held, holder, lease, shard_lease, shards
from normlab.execute.manifest import add_session
from normlab.execute.shards import Shard, parse_shard
from normlab.execute.status import read_status, status_lines
from normlab.execute.target import Refused
from normlab.manifests import read_manifest
from normlab.store import finished_ids

STUDY = tiny_study(seeds=(0, 1))  # four runs
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "TIDYING", 0.0)


@settings(max_examples=50, deadline=None)
@given(rates=st.integers(1, 5), seeds=st.integers(1, 4), count=st.integers(1, 25), order=st.randoms())
def test_shards_share_out_any_plan(rates: int, seeds: int, count: int, order: object) -> None:
    study = tiny_study(seeds=range(seeds), axes=(axis("optim.lr", [1e-3 * (i + 1) for i in range(rates)]),))
    plan = expand(study)
    parts = [[run.id for run in Shard(i + 1, count).of(plan)] for i in range(count)]
    assert sorted(id for part in parts for id in part) == sorted(run.id for run in plan)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    # Which runs a shard does depends on the ids alone.
    shuffled = list(plan)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    assert [{run.id for run in Shard(i + 1, count).of(shuffled)} for i in range(count)] == [set(p) for p in parts]


def test_the_rule_is_every_nth_of_the_sorted_ids() -> None:
    plan = expand(STUDY)
    ids = sorted(run.id for run in plan)
    assert {run.id for run in Shard(2, 3).of(plan)} == {ids[1]}
    assert {run.id for run in Shard(1, 3).of(plan)} == {ids[0], ids[3]}


def test_what_is_a_shard() -> None:
    assert parse_shard("2/4") == Shard(2, 4) and parse_shard("4/4") == Shard(4, 4)
    assert parse_shard(None) is None and parse_shard("1/1") is None


@pytest.mark.parametrize("text", ["0/4", "5/4", "x/4", "1/0", "0/0", "1", "1/4/2", "-1/4", "1/4 ", "", "¹/4", "1.0/4"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(Refused, match="--shard: expected i/n with i from 1 to n") as caught:
        parse_shard(text)
    assert "\n" not in str(caught.value)
    assert ("count from 1" in str(caught.value)) == (text == "0/4")


def test_one_after_another_into_one_folder(tmp_path: Path, fake_run: Runner) -> None:
    folder = tmp_path / "r"
    summary, watcher = fake_run(STUDY, folder, jobs=1, shard=Shard(1, 3))
    assert (summary.planned, summary.done) == (2, 2) and watcher.notes == ["shard 1/3: 2 of 4 runs"]
    assert counted_runs(folder) == {"planned": 4, "finished": 2, "failed": 0, "missing": 2}
    fake_run(STUDY, folder, jobs=1, shard=Shard(3, 3))
    fake_run(STUDY, folder, "raises_always", jobs=1, shard=Shard(2, 3))
    assert counted_runs(folder) == {"planned": 4, "finished": 3, "failed": 1, "missing": 0}
    fake_run(STUDY, folder, jobs=1, shard=Shard(2, 3), resume=True)
    manifest = read_manifest(folder)
    assert len(manifest["runs"]) == 4 and len(manifest["files"]) == 1 + 4 * 3 and manifest["command"] == "normlab run"
    told = [(session["shard"], session["done"], session["failed"]) for session in manifest["sessions"]]
    assert told == [("1/3", 2, 0), ("3/3", 1, 0), ("2/3", 0, 1), ("2/3", 1, 0)]
    assert manifest["sessions"][0]["host"] == socket.gethostname()
    # The whole is a folder like any other.
    summary, _ = fake_run(STUDY, folder, resume=True)
    assert (summary.planned, summary.todo) == (4, 0) and not list(folder.rglob(".*"))


def test_more_shards_than_runs(tmp_path: Path, fake_run: Runner) -> None:
    summary, watcher = fake_run(STUDY, tmp_path / "r", jobs=1, shard=Shard(5, 5))
    assert (summary.planned, summary.done, watcher.notes) == (0, 0, ["shard 5/5: 0 of 4 runs"])
    assert counted_runs(tmp_path / "r")["missing"] == 4


def test_a_shard_does_not_start_twice_without_resume(tmp_path: Path, fake_run: Runner) -> None:
    fake_run(STUDY, tmp_path / "r", jobs=1, shard=Shard(1, 2))
    with pytest.raises(Refused, match="already holds 2 runs of shard 1/2: continue with --resume"):
        fake_run(STUDY, tmp_path / "r", jobs=1, shard=Shard(1, 2))
    summary, _ = fake_run(STUDY, tmp_path / "r", jobs=1, shard=Shard(1, 2), resume=True)
    assert (summary.planned, summary.todo) == (2, 0)


def test_a_shard_whose_runs_failed_does_not_start_again_without_resume(tmp_path: Path, fake_run: Runner) -> None:
    fake_run(STUDY, tmp_path / "r", "raises_always", jobs=1, shard=Shard(1, 2))
    with pytest.raises(Refused, match="already holds 2 runs of shard 1/2: continue with --resume"):
        fake_run(STUDY, tmp_path / "r", jobs=1, shard=Shard(1, 2))


def test_a_shard_of_another_study_is_refused(tmp_path: Path, fake_run: Runner) -> None:
    fake_run(STUDY, tmp_path / "r", jobs=1, shard=Shard(1, 2))
    other = tiny_study((0, 1), base=TINY.model_copy(update={"task": TINY.task.model_copy(update={"a": 3})}))
    with pytest.raises(Refused, match=r"shard 2/2 needs the study .*\n  task\.a: 5 -> 3\n"):
        fake_run(other, tmp_path / "r", jobs=1, shard=Shard(2, 2))


def test_a_shard_overwrites_nothing(tmp_path: Path, fake_run: Runner) -> None:
    fake_run(STUDY, tmp_path / "r", jobs=1, shard=Shard(1, 2))
    with pytest.raises(Refused, match="--overwrite would delete what the other shards write into"):
        fake_run(STUDY, tmp_path / "r", jobs=1, shard=Shard(2, 2), overwrite=True)
    assert len(finished_ids(tmp_path / "r")) == 2


def test_who_may_write_beside_whom(tmp_path: Path, fake_run: Runner) -> None:
    folder = tmp_path / "r"
    folder.mkdir()
    (folder / ".lock").write_text('{"pid": 1, "host": "gone"}')  # left by a process that was killed
    me = f"process {os.getpid()} on {socket.gethostname()}"
    with shard_lease(folder, Shard(2, 4)):
        with pytest.raises(Refused, match=rf"r is being written by shard 2/4 \({me}\): wait for it, or choose"):
            fake_run(STUDY, folder, shard=Shard(2, 4))
        with pytest.raises(Refused, match=rf"r is being written by shard 2/4 \({me}\): wait for it, or choose"):
            fake_run(STUDY, folder)
        with pytest.raises(Refused, match=rf"shard 2/4 \({me}\); shard 1/2 would do some of the same runs"):
            fake_run(STUDY, folder, shard=Shard(1, 2))
        fake_run(STUDY, folder, shard=Shard(1, 4))
        assert holder(folder) is None and [one["shard"] for one in shards(folder)] == ["2/4"]
    with lease(folder), pytest.raises(Refused, match=f"r is being written by {me}: wait for it"):
        fake_run(STUDY, folder, shard=Shard(3, 4))
    assert not list(folder.rglob(".*"))


def test_status_tells_the_shards_that_write(tmp_path: Path, fake_run: Runner) -> None:
    folder = tmp_path / "r"
    fake_run(STUDY, folder, jobs=1, shard=Shard(1, 12))
    with shard_lease(folder, Shard(10, 12)), shard_lease(folder, Shard(2, 12)):
        status = read_status(folder)
        assert status and [one["shard"] for one in status["shards"]] == ["2/12", "10/12"]
        host = socket.gethostname()
        assert status_lines(status)[-1] == f"being written by shard 10/12 (process {os.getpid()} on {host})"
        with pytest.raises(Held, match="by shard 2/12 .*, shard 10/12 "), lease(folder, patience=0):
            pass
    status = read_status(folder)
    assert status and (status["writer"], status["shards"]) == (None, [])


HOLD = """
import sys, time
from pathlib import Path
from normlab.execute.lease import shard_lease
from normlab.execute.shards import Shard
with shard_lease(Path(sys.argv[1]), Shard(2, 4)):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_killed_shard_holds_nobody_up(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout and other.stdout.readline() == "held\n"
            assert [one["pid"] for one in shards(tmp_path)] == [other.pid]
        finally:
            other.kill()
    assert shards(tmp_path) == []
    with shard_lease(tmp_path, Shard(1, 2), patience=0):  # parts of another number are no conflict now
        pass
    assert not list(tmp_path.iterdir())


def test_a_shard_sweeps_its_own_leftovers_only(tmp_path: Path, fake_run: Runner) -> None:
    folder, plan = tmp_path / "r", expand(STUDY)
    mine, theirs = Shard(1, 2).of(plan)[0].id, Shard(2, 2).of(plan)[0].id
    for run in (mine, theirs):
        for kind in ("runs", "failed"):
            (folder / kind / f".tmp-{run}-00ff").mkdir(parents=True)
    (folder / ".tmp-manifest.json-00ff").write_text("{")
    (folder / "manifest.json").write_text(json.dumps({"format": 1, **_facts(folder, fake_run)}))
    fake_run(STUDY, folder, jobs=1, shard=Shard(1, 2), resume=True)
    left = {str(path.relative_to(folder)) for path in folder.rglob(".*")}
    assert left == {f"runs/.tmp-{theirs}-00ff", f"failed/.tmp-{theirs}-00ff", ".tmp-manifest.json-00ff"}
    fake_run(STUDY, folder, jobs=1, resume=True)
    assert not list(folder.rglob(".*"))


def _facts(folder: Path, fake_run: Runner) -> dict[str, object]:
    other = folder.with_name("other")
    fake_run(STUDY, other, jobs=1)
    return read_manifest(other) | {"files": {}, "sessions": []}


def test_no_session_is_lost_when_all_end_together(tmp_path: Path, fake_run: Runner) -> None:
    folder = tmp_path / "r"
    fake_run(STUDY, folder, jobs=1)
    before = read_manifest(folder)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: add_session(folder, {}, {}, {"started": str(i)}), range(24)))
    after = read_manifest(folder)
    assert sorted(int(s["started"]) for s in after["sessions"][1:]) == list(range(24))
    assert {**after, "sessions": before["sessions"]} == before and not list(folder.rglob(".*"))


def test_a_grown_plan_survives_the_end_of_a_smaller_one(tmp_path: Path, fake_run: Runner) -> None:
    folder, small = tmp_path / "r", read_facts(tmp_path / "s", fake_run)
    fake_run(tiny_study(seeds=(0, 1, 2)), folder, jobs=1, shard=Shard(1, 2))
    add_session(folder, small, {}, {"started": "now", "shard": "2/2"})
    assert len(read_manifest(folder)["runs"]) == 6 and len(read_manifest(folder)["sessions"]) == 2


def read_facts(folder: Path, fake_run: Runner) -> dict[str, object]:
    fake_run(STUDY, folder, jobs=1)
    return read_manifest(folder)


# The command with a commit that stays, and shards that begin to train when all three of them hold the folder.
ARRAY = """#!{python}
import os, sys, time
from pathlib import Path
from normlab.cli import main
from normlab.execute import lease, manifest, sweep
manifest.checkout = lambda: ("c0ffee", False)
cut, folder = sweep.cut, Path(sys.argv[sys.argv.index("-o") + 1])
def together(*arguments):
    while "--shard" in sys.argv and len(lease.shards(folder)) < 3:
        time.sleep(0.02)
    return cut(*arguments)
sweep.cut = together
sys.exit(main())
"""


def test_a_slurm_array_gives_what_one_machine_gives(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(tiny_yaml(RATES, "seeds: [0, 1]\n"))
    (tmp_path / "normlab").write_text(ARRAY.replace("{python}", sys.executable))
    (tmp_path / "normlab").chmod(0o755)
    home = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    script = ["bash", str(ROOT / "scripts" / "slurm_array.sh"), "tiny.yaml", "array"]
    tasks = [
        subprocess.Popen(
            script,
            cwd=tmp_path,
            env=home | {"SLURM_ARRAY_TASK_ID": str(i), "SLURM_ARRAY_TASK_COUNT": "3", "SLURM_CPUS_PER_TASK": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in (1, 2, 3)
    ]
    try:
        said = [task.communicate(timeout=300) for task in tasks]
    finally:
        for task in tasks:
            task.kill()
    assert [task.returncode for task in tasks] == [0, 0, 0], said
    words = ["normlab", "run", "tiny.yaml", "-o", "alone", "--jobs", "1", "-q"]
    subprocess.run(words, cwd=tmp_path, env=home, check=True, stdout=subprocess.DEVNULL)
    one, many = (_derived_from_the_plan(tmp_path / name) for name in ("alone", "array"))
    assert len(one) > 2 * 6 + 10 and many == one
    manifest = read_manifest(tmp_path / "array")
    assert sorted((s["shard"], s["done"]) for s in manifest["sessions"]) == [(f"{i}/3", 2) for i in (1, 2, 3)]
    assert len(manifest["files"]) == 1 + 6 * 3 and manifest["command"] == read_manifest(tmp_path / "alone")["command"]
    assert not list((tmp_path / "array").rglob(".*"))
    # At least the last one has answered for all.
    assert any("6 runs: " in out and "tables: array/tables/" in out for out, _ in said)


def _derived_from_the_plan(folder: Path) -> dict[str, bytes]:
    """Every file but for the circumstances."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in ("timing.json", "manifest.json")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
