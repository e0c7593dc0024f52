"""Every run says which code trained it, and where that differs it is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_yaml import tiny_yaml

import normlab
from normlab.cli import main
from normlab.execute.manifest import differing
from normlab.execute.reuse import other_code
from normlab.store import run_folders
from normlab.train import code


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of one file a room, in the place of ours."""
    for room in (*code.ROOMS, "analysis"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "a.py").write_text("x = 1\n")
    monkeypatch.setattr(normlab, "__file__", str(tmp_path / "__init__.py"))
    code.code_digest.cache_clear()
    yield tmp_path
    code.code_digest.cache_clear()


@pytest.mark.parametrize("room", ["catalogue", "config", "fused", "model", "train"])
def test_the_digest_follows_what_can_change_a_result(tree: Path, room: str) -> None:
    before = code.code_digest()
    (tree / "analysis" / "a.py").write_text("x = 2\n")
    code.code_digest.cache_clear()
    assert code.code_digest() == before
    (tree / room / "a.py").rename(tree / room / "b.py")
    code.code_digest.cache_clear()
    renamed = code.code_digest()
    (tree / room / "b.py").write_text("x = 2\n")
    code.code_digest.cache_clear()
    assert len({before, renamed, code.code_digest()}) == 3


@pytest.mark.parametrize("name", ["net.cpp", "block.h"])
def test_the_digest_follows_the_cpp_of_the_fused_step(tree: Path, name: str) -> None:
    found = []
    for text in ("int x;", "int y;"):
        (tree / "fused" / "cpp").mkdir(exist_ok=True)
        (tree / "fused" / "cpp" / name).write_text(text)
        code.code_digest.cache_clear()
        found.append(code.code_digest())
    assert found[0] != found[1]


def test_manifests_of_other_code_differ() -> None:
    assert differing({"code": "aaa"}, {"code": "bbb"}) == ["code aaa -> bbb"]


def test_reused_runs_of_other_code_are_counted(tmp_path: Path) -> None:
    for name, timing in (("a", {"code": "old"}), ("b", {"code": "new"}), ("c", {})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "timing.json").write_text(json.dumps(timing))
    runs = [tmp_path / name for name in "abc"]
    assert other_code(runs, "new") == "2 reused runs were trained by other code: not told, old -> new"
    assert other_code(runs[:1], "new") == "1 reused run was trained by other code: old -> new"
    assert other_code(runs[1:2], "new") is None


def test_resume_reuse_and_merge_tell_of_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(tiny_yaml("optim.lr: [1e-3, 1e-2]"))
    for shard in ("1", "2"):
        assert main(["run", "tiny.yaml", "--shard", f"{shard}/2", "-o", shard, "-q", "--jobs", "1"]) == 0
    here = code.code_digest()
    for folder in (Path("1"), Path("2")):
        (run,) = run_folders(folder)
        assert json.loads((run / "timing.json").read_text())["code"] == here
        assert json.loads((folder / "manifest.json").read_text())["code"] == here
    for path in (Path("2", "manifest.json"), next(run_folders(Path("2"))) / "timing.json"):
        path.write_text(path.read_text().replace(here, "0123456789ab"))
    capsys.readouterr()
    assert main(["merge", "1", "2", "-o", "whole"]) == 0
    assert f"code {here} -> 0123456789ab" in capsys.readouterr().err
    assert main(["run", "tiny.yaml", "-o", "again", "--reuse", "2", "-q", "--jobs", "1"]) == 0
    assert f"1 reused run was trained by other code: 0123456789ab -> {here}" in capsys.readouterr().err
    assert main(["run", "tiny.yaml", "-o", "2", "--resume", "-q", "--jobs", "1"]) == 0
    assert f"code 0123456789ab -> {here}" in capsys.readouterr().err
