"""The README is true: its example trains, its tables are the committed ones, its pictures exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from registered import only_here

from normlab.cli import main
from normlab.store import read_run, run_folders

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def fence(first_line: str) -> str:
    (text,) = re.findall(rf"^```\w+\n({re.escape(first_line)}\n.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return text


def test_the_examples_of_ones_own_train_as_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_norms.py").write_text(fence("# my_norms.py"))
    (tmp_path / "my_study.yaml").write_text(fence("# my_study.yaml"))
    short = ["train.steps=3", "train.batch=2", "train.eval_every=3", "task.val_size=4", "--seeds", "0", "--jobs", "1"]
    with only_here():
        assert main(["sweep-lr", "my_study.yaml", *short, "-o", "r", "-q"]) == 0
    runs = [read_run(folder) for folder in run_folders(tmp_path / "r")]
    assert len(runs) == 9 and {run["outcome"] for run in runs} <= {"stalled", "trained"}
    built = runs[0]["built"]
    assert (built["norm"], built["placement"], built["final_norm"]) == ("PowerNorm", "Fading", "LayerNorm")
    assert built["norms"] == 24 and {run["built"]["options"]["norm"]["power"] for run in runs} == {1.0, 2.0, 4.0}
    assert runs[0]["notes"] == []


def test_every_file_that_is_shown_or_linked_exists() -> None:
    prose = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)#:]+)\)", prose)
    assert links and all((ROOT / link).exists() for link in links)


def test_tables_are_the_committed_ones() -> None:
    shown = re.findall(r"^<!-- (results/\S+\.md) -->\n\n((?:\|.*\n)+)", README, re.MULTILINE)
    assert shown
    for name, table in shown:
        assert table in (ROOT / name).read_text(encoding="utf-8"), name
