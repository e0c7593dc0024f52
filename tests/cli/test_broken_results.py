"""Results that cannot be read: one line and exit code 2 from every command that reads them, and nothing is written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from normlab.cli import main


@pytest.fixture
def damaged(results: Path, tmp_path: Path) -> Path:
    """A copy of the results, to be damaged."""
    return Path(shutil.copytree(results, tmp_path / "results"))


def _edit(results: Path, **changes: object) -> None:
    path = results / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def _truncated_run(results: Path) -> None:
    path = next(results.glob("runs/*/run.json"))
    path.write_text(path.read_text()[:100])


def _list_for_a_run(results: Path) -> None:
    next(results.glob("runs/*/run.json")).write_text("[]")


def _list_for_a_study(results: Path) -> None:
    _edit(results, study=[1, 2])


def _later_format(results: Path) -> None:
    _edit(results, format=2)


def _study_of_a_later_format(results: Path) -> None:
    study = json.loads((results / "manifest.json").read_text())["study"]
    study["base"]["model"]["heads"] = 8
    _edit(results, study=study)


def _runs_of_another_shape(results: Path) -> None:
    _edit(results, runs=["0123456789ab"])


def _truncated_manifest(results: Path) -> None:
    path = results / "manifest.json"
    path.write_text(path.read_text()[:200])


DAMAGE = [_truncated_run, _list_for_a_run, _list_for_a_study, _later_format, _study_of_a_later_format]
DAMAGE += [_runs_of_another_shape, _truncated_manifest]
COMMANDS: dict[str, Callable[[Path, Path, Path], list[str]]] = {
    "status": lambda config, results, new: ["status", str(results)],
    "resume": lambda config, results, new: ["run", str(config), "-o", str(results), "--resume", "--seeds", "0,1"],
    "tables": lambda config, results, new: ["tables", str(results)],
    "reuse": lambda config, results, new: ["run", str(config), "-o", str(new), "--reuse", str(results)],
    "verify": lambda config, results, new: ["verify", str(results)],
    "compare": lambda config, results, new: ["compare", str(results), str(results)],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__.strip("_"))
def test_one_line(
    study: Path,
    damaged: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], None],
    command: str,
) -> None:
    damage(damaged)
    before = {path: path.read_bytes() for path in damaged.rglob("*") if path.is_file()}
    code = main(COMMANDS[command](study, damaged, damaged.parent / "new"))
    out, err = capsys.readouterr()
    if command == "verify" and damage in (_truncated_run, _list_for_a_run):
        assert code == 3 and "run.json: expected the run's record" in out and not err
        return
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert str(damaged) in err and "Error:" not in err
    assert {path: path.read_bytes() for path in damaged.rglob("*") if path.is_file()} == before
