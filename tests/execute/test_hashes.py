"""The hashes in a manifest: written by every sitting, never renewed for a file that was there before."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from tiny import Runner, tiny_study

from normlab.manifests import read_manifest
from normlab.store import file_hashes, finished_ids, run_hashes

STUDY = tiny_study(seeds=(0, 1))


def hashes(folder: Path) -> dict[str, str]:
    return read_manifest(folder)["files"]


def on_disk(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json"]
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_every_file_of_a_run_and_the_config(tmp_path: Path, fake_run: Runner) -> None:
    fake_run(STUDY, tmp_path / "r", jobs=1)
    assert hashes(tmp_path / "r") == on_disk(tmp_path / "r") and len(hashes(tmp_path / "r")) == 1 + 4 * 3


def test_after_failures_and_a_stop(tmp_path: Path, fake_run: Runner) -> None:
    folder = tmp_path / "r"
    fake_run(STUDY, folder, "raises_for_seed_1", jobs=1, fail_fast=True)
    names = {name.split("/")[1] for name in hashes(folder) if name.startswith("runs/")}
    assert names == finished_ids(folder) and len(names) < 4
    fake_run(STUDY, folder, jobs=1, resume=True)
    assert hashes(folder) == on_disk(folder)


@pytest.mark.parametrize("grows", [False, True])
def test_resume_does_not_bless_a_changed_file(tmp_path: Path, fake_run: Runner, grows: bool) -> None:
    folder = tmp_path / "r"
    fake_run(STUDY, folder, jobs=1)
    before = hashes(folder)
    curve = next(folder.glob("runs/*/curve.csv"))
    curve.write_text(curve.read_text() + "2,1.0,1.0,1.0\n")
    fake_run(tiny_study(seeds=(0, 1, 2)) if grows else STUDY, folder, jobs=1, resume=True)
    name = curve.relative_to(folder).as_posix()
    after = hashes(folder)
    assert after[name] == before[name] != on_disk(folder)[name]
    assert {key for key in after if after[key] != on_disk(folder)[key]} == {name}
    # The config may grow; its hash is that of what the sitting wrote.
    assert (after["config.yaml"] != before["config.yaml"]) == grows


def test_a_run_that_was_deleted_and_made_again_has_new_hashes(tmp_path: Path, fake_run: Runner) -> None:
    folder = tmp_path / "r"
    fake_run(STUDY, folder, jobs=1)
    gone = next(folder.glob("runs/*"))
    (gone / "timing.json").write_text("{}")
    shutil.rmtree(gone)
    fake_run(STUDY, folder, jobs=1, resume=True)
    assert hashes(folder) == on_disk(folder)


def test_runs_of_a_killed_sitting_get_theirs_from_the_next(tmp_path: Path, fake_run: Runner) -> None:
    folder = tmp_path / "r"
    fake_run(STUDY, folder, jobs=1)
    manifest = read_manifest(folder)
    (folder / "manifest.json").write_text(json.dumps({**manifest, "files": {}}))
    fake_run(STUDY, folder, jobs=1, resume=True)
    assert hashes(folder) == on_disk(folder)


def test_reused_runs_and_overwritten_ones(tmp_path: Path, fake_run: Runner) -> None:
    for name in ("a", "b"):
        fake_run(STUDY, tmp_path / name, jobs=1, reuse=[tmp_path / "a"] if name == "b" else [])
        assert hashes(tmp_path / name) == on_disk(tmp_path / name)
    fake_run(tiny_study(seeds=(7,)), tmp_path / "a", jobs=1, overwrite=True)
    assert hashes(tmp_path / "a") == on_disk(tmp_path / "a")


def test_a_known_hash_saves_reading_the_file(tmp_path: Path) -> None:
    (tmp_path / "runs" / "0123456789ab").mkdir(parents=True)
    for name in ("run.json", "curve.csv"):
        (tmp_path / "runs" / "0123456789ab" / name).write_text(name)
    known = {"runs/0123456789ab/run.json": "as it was", "runs/0123456789ab/timing.json": "gone"}
    found = run_hashes(tmp_path, ["0123456789ab", "ba9876543210"], known)
    curve = hashlib.sha256(b"curve.csv").hexdigest()
    assert found == {"runs/0123456789ab/run.json": "as it was", "runs/0123456789ab/curve.csv": curve}


def test_hashes_by_pattern(tmp_path: Path) -> None:
    for name in ("studies/b/measure.json", "studies/a/manifest.json", "studies/a/.tmp-manifest.json-00", "x.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    found = file_hashes(tmp_path, ["studies/*/manifest.json", "studies/*/measure.json", "studies/a/*"])
    assert list(found) == ["studies/a/manifest.json", "studies/b/measure.json"]
    assert found["studies/a/manifest.json"] == hashlib.sha256(b"studies/a/manifest.json").hexdigest()
