"""A run exists whole or not at all, and what is read is what was written."""

from __future__ import annotations

import gzip
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from normlab import store
from normlab.store import RunRecord, failed_ids, finished_ids, publish, publish_failure, read_curve, read_run


def record(run_id: str = "0123456789ab", **run: Any) -> RunRecord:
    curve = {"step": [0, 1, 2], "train_loss": [None, 1.5, math.nan], "val_loss": [2.0, None, math.inf]}
    return RunRecord(run_id, {"id": run_id, **run}, curve, {"seconds": 1.0})


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    assert publish(tmp_path, record(final=0.1))
    folder = tmp_path / "runs" / "0123456789ab"
    assert read_run(folder) == {"id": "0123456789ab", "final": 0.1}
    curve = read_curve(folder)
    assert curve["step"] == [0, 1, 2] and curve["train_loss"][:2] == [None, 1.5]
    assert math.isnan(curve["train_loss"][2] or 0) and curve["val_loss"] == [2.0, None, math.inf]
    assert finished_ids(tmp_path) == {"0123456789ab"} and list(store.run_folders(tmp_path)) == [folder]


def test_a_gzipped_curve_reads_the_same(tmp_path: Path) -> None:
    publish(tmp_path, record())
    folder = tmp_path / "runs" / "0123456789ab"
    plain = read_curve(folder)["val_loss"]
    (folder / "curve.csv.gz").write_bytes(gzip.compress((folder / "curve.csv").read_bytes()))
    (folder / "curve.csv").unlink()
    assert read_curve(folder)["val_loss"] == plain


def test_json_is_strict(tmp_path: Path) -> None:
    publish(tmp_path, record(final=math.nan, nested={"worst": [-math.inf, 1.0]}))
    text = (tmp_path / "runs" / "0123456789ab" / "run.json").read_text()

    def refuse(token: str) -> None:
        raise AssertionError(token)

    assert json.loads(text, parse_constant=refuse)["nested"] == {"worst": [None, 1.0]}


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e-45, 3.4028235e38, -7.0])
def test_a_float32_takes_the_fewest_digits_that_read_back(value: float) -> None:
    cell = store.curve_csv({"x": [np.float32(value)]}).splitlines()[1]
    assert np.float32(cell) == np.float32(value) and len(cell) <= len(repr(float(np.float32(value))))


def test_the_first_of_two_publications_stays(tmp_path: Path) -> None:
    assert publish(tmp_path, record(outcome="trained"))
    assert not publish(tmp_path, record(outcome="stalled"))
    assert read_run(tmp_path / "runs" / "0123456789ab")["outcome"] == "trained"
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["0123456789ab"]


def test_a_folder_with_something_else_does_not_pass_for_a_run(tmp_path: Path) -> None:
    (tmp_path / "runs" / "0123456789ab").mkdir(parents=True)
    (tmp_path / "runs" / "0123456789ab" / "notes.txt").write_text("mine")
    with pytest.raises(OSError):
        publish(tmp_path, record())
    assert finished_ids(tmp_path) == set()


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_a_fault_at_any_moment_leaves_no_half_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        if call == "write":
            patch.setattr(store, "_write_synced", fail)
        else:
            patch.setattr(os, call, fail)
        with pytest.raises(OSError, match="No space left"):
            publish(tmp_path, record())
    assert list((tmp_path / "runs").iterdir()) == []
    assert publish(tmp_path, record())


def test_a_failure_is_kept_replaced_and_forgotten_once_the_run_is_there(tmp_path: Path) -> None:
    publish_failure(tmp_path, "0123456789ab", "first")
    publish_failure(tmp_path, "0123456789ab", "second")
    assert failed_ids(tmp_path) == {"0123456789ab"}
    assert (tmp_path / "failed" / "0123456789ab" / "error.txt").read_text() == "second"
    publish(tmp_path, record())
    assert failed_ids(tmp_path) == set()


def test_write_file_replaces_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write_file(tmp_path / "manifest.json", "old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space left"):
            store.write_file(tmp_path / "manifest.json", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
    assert (tmp_path / "manifest.json").read_text() == "old"
