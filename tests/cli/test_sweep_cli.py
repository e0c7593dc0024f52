"""`sweep-lr` and `collapse` as a user types them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tiny_study import STUDY

from normlab.cli import main


def test_sweep_lr_wants_the_rate_as_an_axis_and_its_advice_works(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], no_calibration: None
) -> None:
    command = ["sweep-lr", str(study), "-o", str(tmp_path / "r"), "--dry-run"]
    assert main(command) == 2
    err = capsys.readouterr().err
    advice = re.search(r"add (optim\.lr=\S+) to", err)
    assert advice and len(err.splitlines()) == 1
    assert main([*command, advice[1]]) == 0
    assert "4 runs" in capsys.readouterr().out


def test_sweep_lr_does_not_take_variants_that_set_the_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    variants = "{slow: {optim.lr: 1e-4}, fast: {optim.lr: 1e-3}}"
    (tmp_path / "v.yaml").write_text(STUDY.replace("model.norm: [layernorm, none]", f"recipe: {variants}"))
    assert main(["sweep-lr", str(tmp_path / "v.yaml"), "-o", str(tmp_path / "r"), "--dry-run"]) == 2
    err = capsys.readouterr().err
    assert "the variants of 'recipe' set it" in err and "add optim.lr=1e-4,1e-3" in err


def test_collapse_turns_its_options_into_overrides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], no_calibration: None
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("collapse").write_text("question: not this one\n")
    words = "collapse --layers 6,12 --norms none,rmsnorm --lr 3e-3 --steps 50 --seeds 0,1 --dry-run --json".split()
    assert main(words) == 0
    labels = [run["label"] for run in json.loads(capsys.readouterr().out)["runs"]]
    assert len(labels) == 8 and len(set(labels)) == 8
    assert all(any(part in label for label in labels) for part in ("depth=12", "norm=rmsnorm", "seed=1"))
    assert list(tmp_path.iterdir()) == [tmp_path / "collapse"]


def test_a_wrong_option_of_collapse_is_named_as_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collapse", "--layers", "x", "--norms", "layernrm", "train.stps=1", "--dry-run"]) == 2
    starts = [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()]
    assert sorted(starts) == ["option '--layers x'", "option '--norms layernrm'", "override 'train.stps=1'"]
    assert main(["collapse", "--lr", "1e-3", "optim.lr=1e-2", "--dry-run"]) == 2
    assert "set by '--lr 1e-3' already" in capsys.readouterr().err
