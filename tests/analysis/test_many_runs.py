"""Very many runs: folders made of copies, bands instead of lines, long tables cut, each file read once."""

from __future__ import annotations

import csv
import importlib.util
import math
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import synthetic
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from normlab import store
from normlab.analysis import figure_curves, figure_rates, load, reading, write_outputs
from normlab.analysis.bands import (
    Band,
    band_of,
    band_words,
    draw_band,
    loss_band,
    spread_out,
    too_many,
    too_many_points,
)
from normlab.analysis.canvas import styled
from normlab.analysis.outputs import table_texts
from normlab.analysis.provenance import listed
from normlab.analysis.reading import Taken
from normlab.analysis.samples import Sample
from normlab.analysis.table import MOST_ROWS
from normlab.analysis.tables import runs_table
from normlab.analysis.verify import verify
from normlab.curves import parse_curve, parse_evaluations
from normlab.execute.status import read_status

RATES = ("1e-4", "1e-3", "1e-2")


def script(name: str) -> ModuleType:
    path = Path(__file__).parents[2] / "scripts" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def real(tmp_path: Path) -> Path:
    of = synthetic.study(synthetic.axis("optim.lr", *RATES), seeds=(0, 1))
    ends = dict(zip(RATES, ("trained", "better", "stalled"), strict=True))
    return synthetic.make_results(tmp_path / "real", of, lambda run: ends[run.cell["optim.lr"]])


def seeds(root: Path, n: int, ending: str = "trained", nan: int = 0, rates: tuple[str, ...] = RATES[:1]) -> Path:
    """`n` seeds a rate; the first `nan` of them become NaN at step 30."""
    of = synthetic.study(synthetic.axis("optim.lr", *rates), seeds=tuple(range(n)))
    return synthetic.make_results(root, of, lambda run: "nan@30" if run.spec.seed < nan else ending)


@pytest.mark.parametrize("rates", [0, 4])
def test_copies_are_taken_for_a_folder_of_our_own(real: Path, tmp_path: Path, rates: int) -> None:
    many = script("many_runs").make(real, tmp_path / "many", 12 * (rates or 3), rates, nan=0.3)
    write_outputs(many)
    report = verify(many)
    assert [finding.line() for finding in report.findings] == []
    assert report.checked["runs"] == 12 * (rates or 3) and report.checked["hashes"] == 1 + 3 * report.checked["runs"]
    status = read_status(many)
    assert status is not None and status["finished"] == status["planned"] == report.checked["runs"]
    assert 0 < status["outcomes"]["nan"] < status["finished"]
    results = load(many)
    assert results.study.question.startswith("COPIES of real runs, not measurements")
    assert len({tuple(losses) for losses in results.evaluations.values()}) > len(results.runs) / 2


def test_copies_of_a_number_that_does_not_fit_are_refused(real: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a multiple of the 3 settings, such as 9"):
        script("many_runs").make(real, tmp_path / "many", 10)
    assert not (tmp_path / "many").exists()


def test_each_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = seeds(tmp_path / "toy", 65)
    read: Counter[Path] = Counter()
    for module, name in ((store, "curve_text"), (reading, "read_object")):
        one = getattr(module, name)
        monkeypatch.setattr(module, name, lambda path, one=one: (read.update([path]), one(path))[1])
    write_outputs(root)
    runs = root / "runs"
    assert {path for path in read if path.parent == runs} == set(runs.iterdir())
    assert {path.name for path in read if path.parent.parent == runs} == {"run.json", "timing.json"}
    assert set(read.values()) == {1}


def test_quantiles_are_values_and_a_nan_counts_as_above_all() -> None:
    band = band_of({0: [3.0, 1.0, 2.0], 5: [1.0, math.inf, math.inf], 9: []})
    assert list(band.at) == [0, 5]
    assert (list(band.low), list(band.median), list(band.high)) == ([1, 1], [2, math.inf], [3, math.inf])


def test_a_run_that_became_nan_stays_in_the_band(tmp_path: Path) -> None:
    results = load(seeds(tmp_path / "toy", 10, nan=6))
    band = loss_band(results.runs, results.taken)
    assert list(band.at) == [0, 20, 40, 60]
    assert list(np.isfinite(band.median)) == [True, True, False, False]  # Six of ten end at step 30.
    assert list(np.isfinite(band.low)) == [True] * 4 and band.low[2] == pytest.approx(1.06)


def test_a_finite_loss_at_the_onset_itself_does_not_count() -> None:
    """The loss may be finite where a gradient is not."""
    runs = pd.DataFrame({"id": ["a", "b"], "onset_step": [20, None]})
    steps, nothing = np.array([0, 20]), np.empty((2, 0))
    taken = {"a": Taken(steps, np.array([3.0, 1.0]), (), nothing), "b": Taken(steps, np.array([3.0, 2.0]), (), nothing)}
    band = loss_band(runs, taken)
    assert (list(band.low), list(band.high)) == ([3, 2], [3, math.inf])


def test_a_band_has_the_colour_of_its_median_and_ends_at_the_top() -> None:
    axis = Figure().subplots()
    low, median, high = np.array([1.0] * 4), np.array([2.0, 5.0, math.inf, math.inf]), np.array([3.0] + [math.inf] * 3)
    assert draw_band(axis, Band(np.arange(4.0), low, median, high), 4.0, "#ff0000") == 2.0
    (line,), (fill,) = axis.lines, axis.collections
    assert list(np.asarray(line.get_ydata())[:2]) == [2, 4] and line.get_color() == "#ff0000"
    edges = fill.get_paths()[0].vertices
    assert (edges[:, 1].min(), edges[:, 1].max()) == (1, 4) and to_hex(fill.get_facecolor()[0]) == "#ff0000"


@pytest.mark.parametrize("module", [figure_curves, figure_rates])
def test_many_runs_are_drawn_as_a_band(tmp_path: Path, module: ModuleType) -> None:
    for n, summed in ((20, False), (70, True)):
        with styled():
            figure = module.draw(load(seeds(tmp_path / str(n), n, nan=n // 10, rates=RATES[:2])))
        (axis,) = [a for a in figure.axes if a.get_visible()]
        assert bool(axis.collections) == summed
        assert ("bands: 10-90 % of 70 runs" in figure.get_suptitle()) == summed
        assert ("counts as above all others" in figure.get_supxlabel().replace("\n", " ")) == summed
        labels = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
        assert ("10-90 % of the runs" in labels) == summed
        assert (len(axis.lines) < 12) == summed  # A median a setting, the reference lines, the shares of nan.


def test_the_share_of_nan_stands_above_the_losses(tmp_path: Path) -> None:
    with styled():
        figure = figure_rates.draw(load(seeds(tmp_path / "toy", 40, nan=10)))
    (axis,) = [a for a in figure.axes if a.get_visible()]
    heights = [np.ptp(line.get_ydata()) for line in axis.lines if len(line.get_xdata()) == 2]  # type: ignore[arg-type]
    strip = next(patch for patch in axis.patches if patch.get_height() > 0)
    assert [height for height in heights if height] == [pytest.approx(strip.get_height() * 10 / 40)]


def test_where_half_are_nan_the_median_ends_in_a_mark(tmp_path: Path) -> None:
    with styled():
        figure = figure_curves.draw(load(seeds(tmp_path / "toy", 70, nan=40)))
    (axis,) = [a for a in figure.axes if a.get_visible()]
    assert [line.get_xdata()[0] for line in axis.lines if line.get_marker() == "X"] == [40.0]  # type: ignore[index]
    (median,) = [np.asarray(line.get_ydata()) for line in axis.lines if len(line.get_xdata()) == 4]  # type: ignore[arg-type]
    assert list(np.isfinite(median)) == [True, True, False, False]


def test_of_many_points_of_an_axis_some_are_drawn(tmp_path: Path) -> None:
    depths = tuple(str(depth) for depth in range(1, 31))
    of = synthetic.study(synthetic.axis("model.depth", *depths), synthetic.axis("model.norm", "none", "layernorm"),
                         rows="model.depth")  # fmt: skip
    with styled():
        figure = figure_curves.draw(load(synthetic.make_results(tmp_path / "toy", of, lambda run: "trained")))
    assert figure.get_suptitle().endswith("\n8 of 30 points of model.depth")
    labels = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert labels == [*spread_out(depths), "training loss"] and labels[0] == "1" and labels[7] == "30"


def test_limits() -> None:
    assert not too_many([60] * 5) and too_many([61]) and too_many([60] * 5 + [1])
    assert not too_many_points([30] * 20) and too_many_points([31]) and too_many_points([3] * 201)
    assert band_words([5, 5]) == "bands: 10-90 % of 5 runs" and band_words([5, 70]) == "bands: 10-90 % of 5 to 70 runs"
    assert spread_out(range(24)) == list(range(24)) and spread_out(range(25))[-1] == 24
    assert listed(["0", "1", "2"]) == "0, 1, 2" and listed(list(map(str, range(1000)))) == "0, 1, ... 999"


def test_a_long_table_is_cut_on_a_page_and_whole_in_the_csv(tmp_path: Path) -> None:
    n = MOST_ROWS + 7
    of = synthetic.study(seeds=tuple(range(n)))
    results = load(synthetic.make_results(tmp_path / "toy", of, lambda run: "missing"))
    texts = table_texts(runs_table(results), results)
    assert len(list(csv.reader(texts["csv"].splitlines()))) == n + 1
    assert sum(line.startswith("| seed=") for line in texts["md"].splitlines()) == MOST_ROWS
    for form in ("md", "tex"):
        assert "Shown: the first 300 of 307 rows; runs.csv holds all of them." in texts[form]


CURVE = "step,train_loss,grad_norm,val_loss,act_rms_0\n0,,,2.5,0.5\n1,2.25,1.0,,\n2,nan,inf,,\n3,2.0,1.0,,0.25\n"


def test_evaluations_are_rows_of_the_curve() -> None:
    whole, taken = parse_curve(CURVE), parse_evaluations(CURVE)
    assert whole["step"] == [0, 1, 2, 3] and whole["val_loss"] == [2.5, None, None, None]
    assert taken == {name: [values[0], values[3]] for name, values in whole.items()}
    assert parse_evaluations(CURVE.replace("\n", "\r\n")) == taken


@pytest.mark.parametrize("parse", [parse_curve, parse_evaluations])
@pytest.mark.parametrize("text", ["", CURVE[:-1], CURVE[:-9], CURVE.replace("1,2.25", "1,2,25"), CURVE + "\n",
                                  CURVE.replace("2.5", "two")])  # fmt: skip
def test_half_a_curve_is_none(parse, text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


def test_a_cell_of_very_many_values_tells_their_ends() -> None:
    values = {seed: 2.0 + seed / 100 for seed in range(96)}
    sample = Sample(values, {seed: "trained" if seed < 96 else "nan" for seed in range(100)}, loss=True)
    assert sample.text() == "2.00 to 2.95, median 2.47 (96/100), nan 4/100"
