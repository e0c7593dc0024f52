"""`--shard` and `merge` as a user types them, with real training: what is printed, the exit codes, the bytes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from registered import only_here
from tiny_yaml import RATES, tiny_yaml

from normlab.cli import main
from normlab.config.load import load_study
from normlab.config.plan import expand
from normlab.execute import estimate
from normlab.execute.shards import Shard
from normlab.manifests import read_manifest
from normlab.store import finished_ids

BROKEN = """
from normlab.model.norms import NORMS, Norm
class Broken(Norm):
    def normalise(self, x_SBTD):
        if x_SBTD.requires_grad:
            raise RuntimeError("broken norm")
        return x_SBTD
NORMS["broken"] = Broken
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of three runs: the `whole`, and its shards in `one` and `two`."""
    folder = tmp_path_factory.mktemp("shards")
    (folder / "tiny.yaml").write_text(tiny_yaml(RATES))
    with pytest.MonkeyPatch.context() as patch:
        # The commit may move while the tests run in a checkout that is being worked in.
        patch.setattr("normlab.execute.manifest.checkout", lambda: ("c0ffee", False))
        patch.chdir(folder)
        for name, shard in (("whole", []), ("one", ["--shard", "1/2"]), ("two", ["--shard", "2/2"])):
            assert main(["sweep-lr", "tiny.yaml", "-o", name, "--jobs", "1", "-q", *shard]) == 0
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(estimate, "estimate", lambda *_: 100.0)
    return tmp_path / "here"


def test_merged_shards_are_the_unsharded_run_byte_for_byte(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["merge", "one", "two", "-o", "out"]) == 0
    out, err = capsys.readouterr()
    assert err == "3 of 3 runs from 2 folders -> out; 0 missing\n"
    assert "3 runs: " in out and "1 nan" in out and "tables: out/tables/" in out

    def files(name: str) -> dict[str, bytes]:
        found = [path for path in (here / name).rglob("*") if path.is_file()]
        kept = [path for path in found if path.name not in ("timing.json", "manifest.json")]
        return {str(path.relative_to(here / name)): path.read_bytes() for path in kept}

    assert files("out") == files("whole")
    assert {"config.yaml", "tables/runs.csv", "figures/loss_curves.svg"} < files("out").keys()
    assert main(["verify", "out", "-q"]) == 0


def test_a_shard_says_what_is_missing_and_how_to_go_on(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep-lr", "tiny.yaml", "-o", "two", "--jobs", "1"]
    assert main([*words, "--shard", "2/2", "--resume"]) == 0
    out, err = capsys.readouterr()
    assert err == "shard 2/2: 1 of 3 runs\nthe run is already in two\n"
    assert out == (
        "1 of 3 runs are in two, 2 missing: the shard that ends last here writes the tables;"
        " `normlab tables two` makes them now, `normlab merge` joins folders\n"
    )
    assert not (here / "two" / "tables").exists()
    assert main([*words, "--shard", "2/2", "--resume", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["shard"], found["finished"], found["missing"], found["files"]) == ("2/2", 1, 2, [])
    assert main([*words, "--shard", "2/2"]) == 2
    assert "already holds 1 run of shard 2/2: continue with --resume" in capsys.readouterr().err
    # The last one writes them; the command in the manifest names no shard.
    assert main([*words, "--shard", "1/2"]) == 0
    assert "tables: two/tables/ (" in capsys.readouterr().out.splitlines()[-2]
    assert "--shard" not in (here / "two" / "manifest.json").read_text().partition('"sessions"')[0]
    assert read_manifest(here / "two")["command"] == read_manifest(here / "whole")["command"]


@pytest.mark.parametrize("text", ["0/4", "5/4", "x/4", "1/0"])
@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_a_bad_shard_is_one_line(here: Path, capsys: pytest.CaptureFixture[str], text: str, more: list[str]) -> None:
    assert main(["run", "tiny.yaml", "--shard", text, "-o", "new", *more]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and not (here / "new").exists()
    assert err.startswith(f"normlab: error: --shard: expected i/n with i from 1 to n, such as 2/4, got '{text}'")


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_a_shard_does_not_overwrite(here: Path, capsys: pytest.CaptureFixture[str], more: list[str]) -> None:
    assert main(["run", "tiny.yaml", "--shard", "1/2", "-o", "one", "--overwrite", *more]) == 2
    err = capsys.readouterr().err
    assert "--overwrite would delete what the other shards write into one" in err and err.count("\n") == 1
    assert len(finished_ids(here / "one")) == 2


def test_a_dry_run_prints_the_runs_of_the_shard(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = expand(load_study(here / "tiny.yaml"))
    for index, folder in ((1, "one"), (2, "new")):
        assert main(["run", "tiny.yaml", "--shard", f"{index}/2", "-o", folder, "--dry-run"]) == 0
        lines = capsys.readouterr().out.splitlines()
        mine = [run.id for run in Shard(index, 2).of(plan)]
        assert [line.split()[0] for line in lines[: len(mine)]] == mine
        assert lines[len(mine) : -1] == (["2 of 2 runs already in one"] if folder == "one" else [])
    assert main(["run", "tiny.yaml", "--shard", "1/2", "-o", "one", "--dry-run", "--resume", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == []


def test_runs_of_a_shard_are_taken_by_reuse(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "tiny.yaml", "--shard", "1/2", "-o", "new", "--jobs", "1"]
    assert main([*words, "--reuse", "whole"]) == 0
    assert "2 of 2 runs taken from whole" in capsys.readouterr().err
    assert finished_ids(here / "new") == finished_ids(here / "one")


@pytest.fixture
def forgotten() -> Iterator[None]:
    """What a plugin registers in this process is forgotten again."""
    with only_here():
        yield


@pytest.mark.usefixtures("forgotten")
def test_a_failed_run_of_a_shard_is_told_with_how_to_go_on(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "broken.py").write_text(BROKEN)
    (here / "mine.yaml").write_text(tiny_yaml("model.norm: [broken, none]", "plugins: [broken.py]\n"))
    plan = expand(load_study(here / "mine.yaml"))
    index = next(i for i in (1, 2) if Shard(i, 2).of(plan)[0].cell["model.norm"] == "broken")
    words = ["run", "mine.yaml", "--shard", f"{index}/2", "-o", "bad", "--jobs", "1", "--fail-fast"]
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert "0 of 2 runs are in bad, 1 missing, 1 failed: " in out
    assert f"  normlab run mine.yaml -o bad --jobs 1 --resume --shard {index}/2\n" in err


def test_a_merge_with_missing_runs_is_done_and_says_so(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = expand(load_study(here / "tiny.yaml"))[0]
    for name in ("one", "whole"):
        shutil.rmtree(here / name / "runs" / gone.id, ignore_errors=True)
    shutil.rmtree(here / "two" / "runs" / gone.id, ignore_errors=True)
    assert main(["merge", "one", "two", "-o", "out"]) == 0
    out, err = capsys.readouterr()
    assert err == f"2 of 3 runs from 2 folders -> out; 1 missing\nmissing: {gone.label}\n" and "1 missing" in out
    assert main(["merge", "one", "two", "-o", "quiet", "-q", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == f"missing: {gone.label}\n" and json.loads(out)["study"] == "tiny"


def test_a_conflict_and_wrong_usage_write_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = sorted(finished_ids(here / "two"))[0]
    with (here / "two" / "runs" / run / "curve.csv").open("a") as curve:
        curve.write("9,1.0,1.0,1.0,1.0,1.0\n")
    assert main(["merge", "whole", "two", "-o", "out"]) == 2
    err = capsys.readouterr().err
    assert f"run {run} (" in err and "curve.csv differs in whole and two" in err and not (here / "out").exists()
    assert main(["merge", "whole", "two"]) == 2 and "-o" in capsys.readouterr().err
    assert main(["merge", "-o", "out"]) == 2 and capsys.readouterr().err.count("\n") == 1
    assert main(["merge", "whole", "nowhere", "-o", "out"]) == 2
    assert capsys.readouterr().err.startswith("nowhere: does not exist")


def test_a_reproduction_has_no_shards(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--shard", "1/2", "--dry-run"]) == 2
    assert "no such option --shard" in capsys.readouterr().err
