"""Cells and tables: what a reader sees, and the full precision behind it."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pandas as pd
import pytest
import synthetic

from normlab.analysis import ResultsError, load, write_outputs
from normlab.analysis.cells import mean_text, number
from normlab.analysis.outputs import table_texts
from normlab.analysis.table import Table
from normlab.analysis.tables import all_tables
from normlab.config.schema import Axis, Point


def tables(root: Path) -> dict[str, Table]:
    return {table.name: table for table in all_tables(load(root))}


def test_outcome_cells(every_ending: Path) -> None:
    table = tables(every_ending)["outcome"]
    assert table.header == ["optim.lr", "depth=6", "depth=12"]
    assert table.rows == [
        ["1e-4", "0.51 ± 0.01", "unsteady 1.31 ± 0.01"],
        ["3e-4", "0.41 ± 0.01", "0.51 ± 0.01"],
        ["1e-3", "0.52 ± 0.01 (2/3), nan@37 (1/3)", "0.41 ± 0.01 (2/3), missing (1/3)"],
        ["3e-3", "stalled 2.09 ± 0.01", "nan@30–32"],
        ["1e-2", "diverged 9.01 ± 0.01", "stalled 2.08 (1/3), failed (2/3)"],
    ]


def test_outcome_data_counts_and_never_averages_across_outcomes(every_ending: Path) -> None:
    data = tables(every_ending)["outcome"].data.set_index(["model.depth", "optim.lr"])
    mixed = data.loc[("6", "1e-3")]
    assert (mixed["n"], mixed["outcome"], mixed["trained"], mixed["nan"]) == (3, "mixed", 2, 1)
    assert pd.isna(mixed["mean"]) and mixed["trained_mean"] == pytest.approx(0.515)
    assert (mixed["nan_first"], mixed["nan_last"]) == (37, 37)
    agreed = data.loc[("6", "1e-4")]
    assert (agreed["outcome"], agreed["mean"], agreed["sd"]) == ("trained", pytest.approx(0.51), pytest.approx(0.01))
    assert len(agreed["run_ids"].split()) == 3


def test_one_seed_has_no_spread(tmp_path: Path) -> None:
    of = synthetic.study(synthetic.axis("optim.lr", "1e-3", "1e-2", "1e-1", "1"))
    ends = {"1e-3": "trained", "1e-2": "nan@5", "1e-1": "missing", "1": "failed"}
    root = synthetic.make_results(tmp_path / "toy", of, lambda run: ends[run.cell["optim.lr"]])
    rows = tables(root)["outcome"].rows
    assert rows == [["1e-3", "0.50"], ["1e-2", "nan@5"], ["1e-1", "missing"], ["1", "failed"]]


def test_rows_as_the_study_says(every_ending: Path, tmp_path: Path) -> None:
    axes = (synthetic.axis("model.norm", "none", "layernorm"), synthetic.axis("optim.lr", "1e-3", "1e-2"))
    root = synthetic.make_results(tmp_path / "a", synthetic.study(*axes, rows="model.norm"), lambda run: "trained")
    table = tables(root)["outcome"]
    assert table.header == ["model.norm", "lr=1e-3", "lr=1e-2"]
    assert [row[0] for row in table.rows] == ["no norm", "LayerNorm"]
    wrong = synthetic.make_results(tmp_path / "b", synthetic.study(*axes, rows="model.nrm"), lambda run: "trained")
    with pytest.raises(ResultsError, match="outputs.rows: expected an axis .* got 'model.nrm'"):
        tables(wrong)


def test_without_axes_there_is_one_cell(tmp_path: Path) -> None:
    root = synthetic.make_results(tmp_path / "toy", synthetic.study(), lambda run: "trained")
    found = tables(root)
    assert found["outcome"].header == ["study", "final loss"] and found["outcome"].rows == [["toy", "0.50"]]
    assert list(found) == ["outcome", "loss_by_step", "steps_to_loss", "runs"]


def test_loss_by_step_is_nan_from_the_onset_on(tmp_path: Path) -> None:
    of = synthetic.study(synthetic.axis("model.norm", "none", "layernorm"), seeds=(0, 1), steps=(0, 20, 30, 40, 500))
    ends = {("none", 0): "nan@40", ("none", 1): "nan@21", ("layernorm", 0): "trained", ("layernorm", 1): "missing"}
    root = synthetic.make_results(tmp_path / "toy", of, lambda run: ends[run.cell["model.norm"], run.spec.seed])
    table = tables(root)["loss_by_step"]
    assert table.header == ["step", "no norm", "LayerNorm"]
    assert table.rows == [
        ["0", "2.10 ± 0.00", "2.10 (1/2), missing (1/2)"],
        ["20", "1.50 ± 0.01", "1.50 (1/2), missing (1/2)"],
        ["30", "nan (1/2), – (1/2)", "– (1/2), missing (1/2)"],
        ["40", "nan", "1.00 (1/2), missing (1/2)"],
        ["60", "nan", "0.50 (1/2), missing (1/2)"],  # the last step is always there, 500 is never reached
    ]


def test_loss_by_step_says_over_which_seeds_it_averages(tmp_path: Path) -> None:
    of = synthetic.study(synthetic.axis("optim.lr", "1e-3"), seeds=(0, 1, 2))
    ends = ["trained", "unsteady", "nan@37"]
    table = tables(synthetic.make_results(tmp_path / "toy", of, lambda run: ends[run.spec.seed]))["loss_by_step"]
    # Whatever the outcome, one mean; the outcome table's own rule would be wrong here.
    assert [row[1] for row in table.rows] == ["2.10 ± 0.00", "1.34 ± 0.29", "0.91 ± 0.57 (2/3), nan (1/3)"]
    assert "over those of 3 seeds that are finite at the step, however their runs end" in table.notes
    assert "each outcome with the seeds" not in table.notes


def test_many_conditions_go_into_the_rows(every_ending: Path) -> None:
    table = tables(every_ending)["loss_by_step"]
    assert table.header == ["condition", "step 0", "step 20", "step 60"]
    assert table.rows[2] == ["depth=6, lr=1e-3", "2.10 ± 0.00", "1.51 ± 0.01", "0.52 ± 0.01 (2/3), nan (1/3)"]


def test_window_and_sensitivity(every_ending: Path) -> None:
    found = tables(every_ending)
    assert found["lr_window"].rows == [
        ["depth=6", "≥ 0.48 (1e-4 to 3e-4)", "0.41 ± 0.01 at 3e-4"],
        ["depth=12", "0.00 (3e-4), 3 runs missing or failed", "0.51 ± 0.01 at 3e-4"],
    ]
    # Seed 0 at depth 6, clipped at 2.1: 0.5, 0.4, 2.1 (nan), 2.08, 2.1; the others train at 1e-3 too, to 0.51 and 0.52.
    by_hand = [
        7.18 / 5 - 0.4,
        (0.51 + 0.41 + 0.51 + 2.09 + 2.1) / 5 - 0.41,
        (0.52 + 0.42 + 0.52 + 2.1 + 2.1) / 5 - 0.42,
    ]
    data = found["lr_sensitivity"].data.set_index("model.depth")
    assert data.loc["6", "sensitivity"] == pytest.approx(sum(by_hand) / 3)
    assert found["lr_sensitivity"].rows == [
        ["depth=6", "0.82 ± 0.19", "3e-4", "no", "3e-4"],
        ["depth=12", "0.88 (1/3 seeds complete)", "1e-3", "no", "3e-4"],
    ]


def test_a_condition_that_never_trains(tmp_path: Path) -> None:
    of = synthetic.study(synthetic.axis("optim.lr", "1e-3", "1e-2"))
    found = tables(synthetic.make_results(tmp_path / "toy", of, lambda run: "nan@5"))
    assert found["lr_window"].rows == [["toy", "none", "–"]]
    assert found["lr_sensitivity"].rows == [["toy", "0.00", "none", "–", "none"]]


def test_a_condition_that_is_not_complete_has_no_best_rate(tmp_path: Path) -> None:
    of = synthetic.study(synthetic.axis("optim.lr", "1e-3", "1e-2"))
    ends = {"1e-3": "trained", "1e-2": "missing"}
    found = tables(synthetic.make_results(tmp_path / "toy", of, lambda run: ends[run.cell["optim.lr"]]))
    assert found["lr_sensitivity"].rows == [["toy", "– (0/1 seeds complete)", "–", "–", "1e-3"]]
    assert found["lr_window"].rows == [["toy", "≥ 0.00 (1e-3), 1 run missing or failed", "0.50 at 1e-3"]]


def test_steps_to_loss(tmp_path: Path) -> None:
    of = synthetic.study(synthetic.axis("model.norm", "none", "layernorm"), seeds=(0, 1, 2), reach=(1.0, 0.1))
    ends = {"none": ["trained", "better", "better"], "layernorm": ["nan@50", "stalled", "failed"]}
    root = synthetic.make_results(tmp_path / "toy", of, lambda run: ends[run.cell["model.norm"]][run.spec.seed])
    assert tables(root)["steps_to_loss"].rows == [
        ["no norm", "40", "not reached"],
        ["LayerNorm", "40 (1/3), not reached (1/3), failed (1/3)", "not reached (2/3), failed (1/3)"],
    ]
    of = synthetic.study(seeds=(0, 1, 2), reach=(1.0,))
    root = synthetic.make_results(tmp_path / "range", of, lambda run: "better" if run.spec.seed else "unsteady")
    assert tables(root)["steps_to_loss"].rows == [["toy", "40 (20–40)"]]


def test_runs_table_has_a_row_a_run_and_no_times(every_ending: Path) -> None:
    table = tables(every_ending)["runs"]
    assert len(table.rows) == len(table.data) == 30
    assert not {"seconds", "peak_memory_mb"} & set(table.data)
    assert table.rows[6][2:6] == ["nan", "37", "loss", "blocks.1.ffn.out"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.284, "2.28"), (0.0, "0.00"), (0.004, "4.0e-03"), (9999.0, "9999.00"), (1.5e30, "1.5e+30"), (-0.25, "-0.25")],
)
def test_number(value: float, text: str) -> None:
    assert number(value) == text


def test_mean_text_of_small_numbers_keeps_their_digits() -> None:
    assert mean_text([0.001, 0.003]) == "2.0e-03 ± 1.4e-03"
    assert mean_text([2.0, 2.06]) == "2.03 ± 0.04"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1.6, 1.6 + 0.0044 * 2**0.5], "1.60 ± 0.004"),
        ([1.6, 1.6 + 0.0051 * 2**0.5], "1.60 ± 0.01"),
        ([4.16, 4.16 + 2e-5 * 2**0.5], "4.16 ± 2e-05"),
        ([2.5, 2.5, 2.5], "2.50 ± 0.00"),
    ],
)
def test_only_no_spread_at_all_is_shown_as_none(values: list[float], text: str) -> None:
    assert mean_text(values) == text


def test_csv_reads_back_exactly(every_ending: Path) -> None:
    results = load(every_ending)
    for table in all_tables(results):
        text = table_texts(table, results)["csv"]
        back = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
        assert len(back) == len(table.data)
        for column in table.data:
            for cell, value in zip(back[column], table.data[column], strict=True):
                assert (cell == "") if pd.isna(value) else (cell == str(value)), (table.name, column)
        assert set(back["command"]) == {"normlab run configs/toy.yaml"} and set(back["commit"]) == {"commit abc1234"}


def test_captions_say_where_the_numbers_come_from(every_ending: Path) -> None:
    results = load(every_ending)
    outcomes = "30 runs: 13 trained, 3 unsteady, 4 stalled, 3 diverged, 4 nan, 2 failed, 1 missing"
    texts = [table_texts(table, results)[suffix] for table in all_tables(results) for suffix in ("md", "tex")]
    assert len(texts) == 12
    for text in texts:
        for said in ("3 seeds (0, 1, 2)", outcomes, "ommit abc1234", "cpu, 1 thread, torch 2.13", "Does it train?"):
            assert said in text
        assert "normlab run configs/toy.yaml" in text and "+ 0.5 nats" in text


def test_the_caption_in_latex_is_short_and_a_note_holds_the_rest(every_ending: Path) -> None:
    results = load(every_ending)
    texts = [table_texts(table, results)["tex"] for table in all_tables(results)]
    for text in texts:
        caption = next(line for line in text.splitlines() if line.startswith(r"\caption"))
        below = text.partition(r"\end{tabular}")[2]
        assert "3 seeds (0, 1, 2)" in caption and "3 diverged, 4 nan" in caption and len(caption.split()) < 40
        for said in ("+ 0.5 nats", "ommit abc1234", "cpu, 1 thread", "normlab run configs/toy.yaml"):
            assert said not in caption and said in below
        assert r"\footnotesize" in below


def test_outputs_that_no_longer_apply_are_removed(tmp_path: Path) -> None:
    of = synthetic.study(synthetic.axis("optim.lr", "1e-3"))
    root = synthetic.make_results(tmp_path / "toy", of, lambda run: "trained")
    (root / "tables").mkdir()
    mine = root / "tables" / "notes.md"
    mine.write_text("a reader's own file")
    write_outputs(root)
    of = synthetic.study(Axis(name="norm", points=(Point(label="none", settings={"model.norm": "none"}),)))
    shutil.rmtree(root / "runs")
    written = write_outputs(synthetic.make_results(root, of, lambda run: "trained"))
    there = {file for folder in ("tables", "figures") for file in (root / folder).iterdir()}
    assert there == {*written, mine}
    assert not (root / "tables" / "lr_window.csv").exists()
