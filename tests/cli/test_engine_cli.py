"""`--engine`: what a user is told of it, and where the results say it."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from normlab.cli import main
from normlab.fused.build import Library

STUDY = """
question: Who trained this?
base: {task: {vocab: 11, length: 5, val_size: 20}, model: {depth: 1, width: 8, hidden: 12}}
axes: {model.norm: [layernorm, scalenorm], optim.lr: [1e-3, 1e-2]}
"""
SHORT = ["train.steps=4", "train.batch=2", "train.eval_every=2", "--jobs", "1"]
NOT_KNOWN = "the fused step does not know norm 'scalenorm'"


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    path = tmp_path_factory.mktemp("engine") / "study.yaml"
    path.write_text(STUDY)
    return ["run", str(path), *SHORT]


def test_manifest_runs_tables_and_captions_say_who_trained(
    command: list[str], tmp_path: Path, library: Library, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "r"
    assert main([*command, "-o", str(folder)]) == 0
    assert f"engine plain for 2 of 4 runs: {NOT_KNOWN}\n" in capsys.readouterr().err
    assert json.loads((folder / "manifest.json").read_text())["fused"] == library.name
    for run in folder.glob("runs/*"):
        norm = json.loads((run / "run.json").read_text())["spec"]["model"]["norm"]
        told = json.loads((run / "timing.json").read_text()).get("fused")
        assert told == (library.name if norm == "layernorm" else None)
    with (folder / "tables" / "runs.csv").open() as file:
        rows = [(row["model.norm"], row["fused"]) for row in csv.DictReader(file)]
    assert sorted(rows) == [("layernorm", library.name)] * 2 + [("scalenorm", "")] * 2
    captions = "".join(path.read_text() for path in folder.glob("tables/*.md"))
    assert f"fused step ({library.name}) in 2 of 4 runs" in captions

    # Another engine goes on with the folder, and says what is not the same.
    shutil.rmtree(next(folder.glob("runs/*")))
    assert main([*command, "-o", str(folder), "--resume", "--engine", "plain"]) == 0
    assert f"made under other circumstances: fused {library.name} -> off" in capsys.readouterr().err


def test_fused_refuses_what_it_does_not_know_and_writes_nothing(
    command: list[str], tmp_path: Path, library: Library, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "-o", str(tmp_path / "r"), "--engine", "fused"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"--engine fused: {NOT_KNOWN} (2 of 4 runs)" in line and not (tmp_path / "r").exists()
    assert main([*command, "model.norm=none", "-o", str(tmp_path / "r"), "--engine", "fused", "-q"]) == 0


def test_env_shows_the_library(library: Library, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env"]) == 0
    assert f"fused_step: {library.name}; {library.path}\n" in capsys.readouterr().out
