"""Tables, figures and the command of a measure: every digit from the values, nothing half-written, no NaN averaged."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from itertools import islice

import pandas as pd
import pytest
import typer

from normlab.analysis import measured
from normlab.analysis.measured_text import seeds_text
from normlab.cli.studies import Measuring, measure_command
from normlab.config.schema import RunSpec
from normlab.measures import Measure, read_measure, write_measure
from normlab.studies import initial, mechanism, numerics, numerics_nearest
from normlab.studies.mechanism_watch import watch

ENVIRONMENT = {"commit": "0123456789ab", "dirty": False, "device": "cpu", "threads": 1, "torch": "2.13.0"}
TINY = {
    "task": {"vocab": 11, "length": 5, "val_size": 20},
    "model": {"depth": 2, "width": 8, "hidden": 12},
    "train": {"steps": 12, "batch": 4, "eval_every": 12},
}


def quiet(line):
    pass


def made(name, settings, values, quick=False):
    command = f"normlab {name}{' --quick' if quick else ''}"
    return Measure(name, "What comes out?", command, quick, settings, values, ENVIRONMENT, "2026-01-01T00:00:00", 1.0)


@pytest.fixture(scope="module")
def measures():
    """One small measure of each kind, by name."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("stacks", "statistics", "gradients"):
            whole = getattr(numerics_nearest, name)
            patch.setattr(numerics_nearest, name, lambda whole=whole: islice(whole(), 2))
        found = {"numerics": made("numerics", *numerics.measure(False, quiet))}
        patch.setattr(initial, "DEPTHS", (2, 3))
        patch.setattr(initial, "SEEDS", (0, 1))
        patch.setattr(initial, "GROWTH_DEPTH", 3)
        found["initial"] = made("initial", *initial.measure(False, quiet))
        here = {
            n: [mechanism.changed(RunSpec.model_validate(TINY), s, model={"norm": n}) for s in (0, 1)]
            for n in mechanism.NORMS
        }
        patch.setattr(mechanism, "_in_processes", lambda conditions, say: {n: watch(here[n], say) for n in here})
        base = RunSpec.model_validate(TINY)
        found["mechanism"] = made("mechanism", *mechanism.measure(False, quiet, base, seeds=(0, 1)))
    return found


NAMES = ("numerics", "initial", "mechanism")


@pytest.mark.parametrize("name", NAMES)
def test_files_say_where_they_come_from_and_are_the_same_each_time(measures, name, tmp_path):
    write_measure(tmp_path, measures[name])
    files = [*measured.write_measure_tables(tmp_path), *measured.write_measure_figures(tmp_path)]
    before = {file: file.read_bytes() for file in files}
    for file in files:
        if file.suffix in (".md", ".tex", ".csv"):
            assert "0123456789ab" in file.read_text() and f"normlab {name}" in file.read_text()
    assert {".md", ".tex", ".csv"} <= {file.suffix for file in files}
    again = [*measured.write_measure_tables(tmp_path), *measured.write_measure_figures(tmp_path)]
    assert {file: file.read_bytes() for file in again} == before
    assert not list(tmp_path.rglob(".tmp-*"))


@pytest.mark.parametrize("name", NAMES)
def test_tables_survive_null_values(measures, name, tmp_path):
    """What is not finite is null in the file; the tables must say so rather than fail or average it away."""
    values = json.loads(json.dumps(measures[name].values))
    if name == "numerics":
        values["stack-vanish"]["norms"][8] = None
        expected = "not finite"
    elif name == "initial":
        values["postln-gradient"]["last_over_first"]["pre_2"]["by_seed"]["0"] = None
        expected = "not finite (1/2)"
    else:
        values["collapse-mechanism"]["largest_forward_norm"]["none"]["by_seed"]["1"] = None
        expected = "not finite (1/2)"
    write_measure(tmp_path, replace(measures[name], values=values))
    texts = [file.read_text() for file in measured.write_measure_tables(tmp_path) if file.suffix == ".md"]
    assert any(expected in text for text in texts)


def test_mean_over_seeds_leaves_out_no_nan_in_silence():
    assert seeds_text([1.0, 3.0]) == "2 ± 1"
    assert seeds_text([0.5, 0.5], factor=100) == "50 ± 0"
    assert seeds_text([1.0, float("nan"), 3.0]) == "2 ± 1 (2/3), not finite (1/3)"
    assert seeds_text([float("nan")]) == "not finite"


def test_the_numbers_table_holds_every_printed_number_and_what_was_measured(measures):
    table = next(table for table in measured.measure_tables(measures["numerics"]) if table.name == "numbers")
    assert len(table.rows) == sum(map(len, numerics.PRINTED.values()))
    pre = table.data[(table.data["experiment"] == "block-exit-norms") & (table.data["number"] == "pre")].iloc[0]
    assert pre["measured"] == measures["numerics"].values["block-exit-norms"]["pre"] and pre["agrees"]
    assert "two different pairs" in table.notes
    agreement = measured.measure_tables(measures["numerics"])[0].data.set_index("experiment")
    assert agreement.loc["residual-growth", "agree"] == agreement.loc["residual-growth", "printed"] == 15
    assert agreement.loc["stack-vanish", "agree"] == 0


def test_the_main_table_of_initial_is_the_ratio_of_the_ends(measures):
    table = measured.measure_tables(measures["initial"])[0]
    data = table.data
    mean = data[(data["placement"] == "post") & (data["depth"] == 3) & data["init"].str.startswith("torch")]["mean"]
    leaf = measures["initial"].values["postln-gradient"]["last_over_first_torch_init"]["post_3"]["by_seed"]
    assert float(mean.iloc[0]) == pytest.approx(sum(leaf.values()) / 2)


def test_quick_is_said_in_every_table(measures, tmp_path):
    shortened = replace(measures["mechanism"], quick=True)
    write_measure(tmp_path, shortened)
    for file in measured.write_measure_tables(tmp_path):
        if file.suffix != ".csv":
            assert "shortened by" in file.read_text().lower()


def test_a_measure_without_tables_is_named(measures):
    with pytest.raises(ValueError, match="expected a measure that is one of numerics.*got 'other'"):
        measured.measure_tables(replace(measures["numerics"], name="other"))


def run(folder, measure, **how):
    def measure_fn(*, quick, say):
        say("measuring")
        return dict(measure.settings), dict(measure.values)

    measure_command(measure.name, measure.question, measure_fn, Measuring(output=folder, **how))


def test_the_command_writes_answers_and_refuses_what_is_there(measures, tmp_path, capsys):
    folder = tmp_path / "out"
    run(folder, measures["initial"], quick=True)
    out = capsys.readouterr()
    assert "| placement and init" in out.out and f"tables: {folder}/tables/" in out.out and "measuring" in out.err
    kept = read_measure(folder)
    assert kept.quick and kept.command == "normlab initial --quick" and kept.environment["threads"] == 1
    with pytest.raises(typer.Exit) as stop:
        run(folder, measures["initial"])
    assert stop.value.exit_code == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and "--overwrite" in message and "-o" in message
    run(folder, measures["initial"], overwrite=True, quiet=True)
    out = capsys.readouterr()
    assert not read_measure(folder).quick and out.err == ""


def test_the_command_leaves_foreign_folders_alone(measures, tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("mine")
    for name in ("initial", "mechanism"):
        with pytest.raises(typer.Exit) as stop:
            run(tmp_path, measures[name], overwrite=True)
        assert stop.value.exit_code == 2 and [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    other = tmp_path / "other"
    write_measure(other, measures["initial"])
    with pytest.raises(typer.Exit):
        run(other, measures["mechanism"], overwrite=True)
    assert read_measure(other).name == "initial"


def test_json_is_one_strict_object_with_every_table(measures, tmp_path, capsys):
    values = json.loads(json.dumps(measures["mechanism"].values))
    values["collapse-mechanism"]["rows"][0]["grad_norm"] = None
    run(tmp_path / "out", replace(measures["mechanism"], values=values), json=True, quiet=True)
    answer = json.loads(capsys.readouterr().out, parse_constant=lambda token: pytest.fail(token))
    assert set(answer["tables"]) == {"extremes", "by_step"} and answer["tables"]["by_step"][0]["grad_norm"] is None
    assert len(answer["files"]) == 2 * 3 + 2 * 2


def test_ctrl_c_leaves_nothing(measures, tmp_path, capsys):
    def measure_fn(*, quick, say):
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()

    with pytest.raises(typer.Exit) as stop:
        measure_command("initial", "?", measure_fn, Measuring(output=tmp_path / "out"))
    assert stop.value.exit_code == 130 and not (tmp_path / "out").exists()
    assert "nothing was written" in capsys.readouterr().err


def test_csv_holds_the_full_values(measures, tmp_path):
    write_measure(tmp_path, measures["mechanism"])
    measured.write_measure_tables(tmp_path)
    rows = measures["mechanism"].values["collapse-mechanism"]["rows"]
    kept = pd.read_csv(tmp_path / "tables" / "by_step.csv")
    assert list(kept["largest_forward_norm"]) == [row["largest_forward_norm"] for row in rows]
