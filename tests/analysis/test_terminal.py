"""The answer on the terminal and off it, and the command `tables`."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import synthetic

from normlab.analysis.terminal import print_answer
from normlab.catalogue import NORMS
from normlab.cli import main


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """Six columns of long cells: far more than 80 characters a line."""
    of = synthetic.study(
        synthetic.axis("model.depth", "1", "2"),
        synthetic.axis("model.norm", "none", "layernorm", "rmsnorm"),
        synthetic.axis("optim.lr", "1e-3"),
        seeds=(0, 1, 2),
    )
    ends = {0: "trained", 1: "nan@37", 2: "unsteady"}
    return synthetic.make_results(tmp_path / "toy", of, lambda run: ends[run.spec.seed])


def tables(root: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "normlab", "tables", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})


def test_every_digit_of_the_piped_table_stands_in_the_csv(wide: Path) -> None:
    done = tables(wide, COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    header, _, row = ([cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines[:3])
    assert len(header) == 7 and len(lines[2]) > 250
    data = pd.read_csv(wide / "tables" / "outcome.csv", dtype={"optim.lr": str, "model.depth": str, "model.norm": str})
    data = data.set_index(["optim.lr", "model.depth", "model.norm"])
    for name, cell in zip(header[1:], row[1:], strict=True):
        depth, norm = (part.rpartition("=")[2] for part in name.split(", "))
        of = data.loc[(row[0], depth, {NORMS.title(key): key for key in NORMS}[norm])]
        trained, unsteady = f"{of['trained_mean']:.2f}", f"{of['unsteady_mean']:.2f}"
        assert cell == of["text"]
        assert cell == f"{trained} (1/3), unsteady {unsteady} (1/3), nan@{of['nan_first']:.0f} (1/3)"
    assert f"tables: {wide}/tables/ (outcome, loss_by_step," in done.stdout
    assert f"figures: {wide}/figures/ (loss_curves, loss_vs_lr, activations; svg, png)" in done.stdout


def test_what_must_be_said_of_the_runs_is_in_the_answer(wide: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = next(wide.glob("runs/*/run.json"))
    run.write_text(json.dumps(json.loads(run.read_text()) | {"notes": ["leaks the future"]}))
    print_answer(wide)
    assert "; leaks the future: 1 of 18 runs\n" in capsys.readouterr().out
    print_answer(wide, json=True)
    assert json.loads(capsys.readouterr().out)["notes"] == ["leaks the future: 1 of 18 runs"]


def test_a_terminal_without_unicode_gets_the_answer_too(every_ending: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bytes_out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(bytes_out, "ascii", write_through=True))
    print_answer(every_ending)
    text = bytes_out.getvalue().decode("ascii")
    assert "0.51 +/- 0.01" in text and ">= 0.48 (1e-4 to 3e-4)" in text and "nan@30-32" in text


def test_json_is_strict_and_holds_the_cells(every_ending: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_answer(every_ending, json=True)

    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is no JSON")

    answer = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert answer["study"] == "toy" and len(answer["cells"]) == 10
    cell = next(c for c in answer["cells"] if (c["model.depth"], c["optim.lr"]) == ("6", "1e-3"))
    assert (cell["text"], cell["nan"], cell["nan_first"], cell["mean"]) == (
        "0.52 ± 0.01 (2/3), nan@37 (1/3)",
        1,
        37,
        None,
    )
    assert [window["text"][:6] for window in answer["lr_window"]] == ["≥ 0.48", "0.00 ("]
    assert answer["lr_sensitivity"][0]["best_lr"] == 3e-4


class Terminal(io.StringIO):
    """Stands for a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", ["60", "250"])
def test_on_a_terminal_no_digit_is_cut(wide: Path, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    print_answer(wide)
    text = screen.getvalue()
    assert "…" not in text and "─" in text
    # Cells may be folded, so digits are counted rather than cells searched.
    assert text.count("@") == 6


def test_a_wrong_folder_is_one_line_and_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tables", str(tmp_path / "nothing")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "does not exist" in err


def test_quiet_writes_and_prints_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = synthetic.make_results(tmp_path / "toy", synthetic.study(), lambda run: "trained")
    assert main(["tables", "-q", str(root)]) == 0
    assert capsys.readouterr().out == ""
    assert (root / "tables" / "outcome.csv").exists() and (root / "figures" / "activations.svg").exists()
