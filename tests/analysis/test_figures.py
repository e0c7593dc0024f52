"""Figures: what is drawn, without a display, to the same bytes each time."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import synthetic
from matplotlib.axes import Axes

from normlab.analysis import figure_activations, figure_curves, figure_rates, load
from normlab.analysis.canvas import MAX_PANELS, colours, styled

WRITE = """
import sys
from pathlib import Path
from normlab.analysis import write_outputs
write_outputs(Path(sys.argv[1]))
assert "matplotlib.pyplot" not in sys.modules and "torch" not in sys.modules
"""


def drawn(module: Any, root: Path) -> list[Axes]:
    """The visible panels, without the colour bar."""
    with styled():
        return [a for a in module.draw(load(root)).axes if a.get_visible() and a.get_label() != "<colorbar>"]


def markers(axis: Axes, marker: str) -> list[tuple[float, float]]:
    """Places of one marker in a panel."""
    lines = [line for line in axis.lines if line.get_marker() == marker]
    return [(float(x), float(y)) for line in lines for x, y in zip(*line.get_data(), strict=True)]


def test_files_without_a_display_and_the_same_bytes(every_ending: Path) -> None:
    runs = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "MPLBACKEND": "TkAgg", "PYTHONHASHSEED": hash_seed}
        environment.pop("DISPLAY", None)
        command = [sys.executable, "-W", "error", "-c", WRITE, str(every_ending)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        files = [file for folder in ("tables", "figures") for file in (every_ending / folder).iterdir()]
        runs.append({file.relative_to(every_ending): file.read_bytes() for file in files})
    first, second = runs
    assert {file.name for file in first if file.parent.name == "figures"} == {
        f"{name}.{suffix}" for name in ("loss_curves", "loss_vs_lr", "activations") for suffix in ("svg", "png")
    }
    assert first == second
    for file, content in first.items():
        if file.suffix == ".svg":
            assert ElementTree.fromstring(content).tag.endswith("svg") and b"dc:date" not in content
        if file.suffix == ".png":
            assert content.startswith(b"\x89PNG") and b"Software" not in content


def test_a_users_matplotlibrc_changes_nothing(every_ending: Path, tmp_path: Path) -> None:
    import matplotlib

    with styled():
        size = matplotlib.rcParams["font.size"]
    with matplotlib.rc_context({"font.size": 33, "axes.grid": False}), styled():
        assert matplotlib.rcParams["font.size"] == size and matplotlib.rcParams["axes.grid"]


def test_loss_curves_of_few_conditions_share_a_panel(tmp_path: Path) -> None:
    of = synthetic.study(synthetic.axis("model.norm", "none", "layernorm"), seeds=(0, 1))
    ends = {"none": "nan@37", "layernorm": "trained"}
    root = synthetic.make_results(tmp_path / "toy", of, lambda run: ends[run.cell["model.norm"]])
    (axis,) = drawn(figure_curves, root)
    assert markers(axis, "X") == [(37.0, 1.5), (37.0, 1.51)]  # at the onset, as high as the last evaluation
    heights = [line.get_ydata()[0] for line in axis.lines if line.get_xdata()[-1] == 1]  # type: ignore[index]
    assert synthetic.UNIFORM in heights and synthetic.FLOOR in heights
    low, high = axis.get_ylim()
    assert low < synthetic.FLOOR and high > 2.1


@pytest.mark.parametrize(("ending", "marker"), [("nan@1", "X"), ("diverged", "^")])
def test_marks_of_several_conditions_at_one_place_can_all_be_seen(tmp_path: Path, ending: str, marker: str) -> None:
    of = synthetic.study(synthetic.axis("model.norm", "none", "layernorm", "rmsnorm"), seeds=(0, 1))
    (axis,) = drawn(figure_curves, synthetic.make_results(tmp_path / "toy", of, lambda run: ending))
    lines = [line for line in axis.lines if line.get_marker() == marker]
    places = {tuple(line.get_transform().transform(line.get_xydata())[0].round(3)) for line in lines}
    assert len(set(markers(axis, marker))) == 1 and len(lines) == 6 and len(places) == 3
    assert len({x for x, _ in places}) == 1  # the step is kept
    heights = sorted(y for _, y in places)
    assert min(b - a for a, b in pairwise(heights)) > 5


def test_outcomes_stand_above_small_multiples(every_ending: Path) -> None:
    texts = [[text.get_text() for text in axis.texts] for axis in drawn(figure_curves, every_ending)]
    assert "1e-3: 0.52 ± 0.01 (2/3), nan@37 (1/3)" in texts[0] and "1e-2: stalled 2.08 (1/3), failed (2/3)" in texts[1]


def test_loss_curves_of_many_conditions_are_small_multiples(every_ending: Path) -> None:
    axes = drawn(figure_curves, every_ending)
    assert [axis.get_title(loc="left") for axis in axes] == ["depth=6", "depth=12"]
    assert [x for x, _ in markers(axes[1], "X")] == [30.0, 31.0, 32.0]
    assert axes[0].get_ylim() == axes[1].get_ylim()
    # Three runs diverge to 9: the panel does not follow them, but says where they leave.
    assert axes[0].get_ylim()[1] < 5 and [x for x, _ in markers(axes[0], "^")] == [20.0] * 3


def test_loss_against_rate_shows_every_run(every_ending: Path) -> None:
    (axis,) = drawn(figure_rates, every_ending)
    shown = {name: len(markers(axis, m)) for name, m in figure_rates.MARKERS.items()}
    assert shown == {"trained": 13, "unsteady": 3, "stalled": 4, "diverged": 3, "nan": 4, "failed": 2, "missing": 1}
    top = max(
        y
        for name in ("trained", "unsteady", "stalled", "diverged")
        for _, y in markers(axis, figure_rates.MARKERS[name])
    )
    assert all(y > top for _, y in markers(axis, "X"))
    assert top < 5  # the diverged ones stand at the edge


def test_equal_losses_do_not_hide_each_other_and_none_is_cut(tmp_path: Path) -> None:
    of = synthetic.study(
        synthetic.axis("model.depth", "6", "12", "18"), synthetic.axis("optim.lr", "1e-3", "1e-2"), seeds=(0, 1, 2)
    )
    (axis,) = drawn(figure_rates, synthetic.make_results(tmp_path / "toy", of, lambda run: "diverged"))
    shown = markers(axis, figure_rates.MARKERS["diverged"])  # all at the edge of the panel
    places = sorted(axis.transData.transform(shown)[:, 0])
    assert len(shown) == 18 and len({y for _, y in shown}) == 1
    assert all(b - a > 2 for a, b in pairwise(places))
    box = axis.get_window_extent()
    assert box.x0 + 6 < places[0] and places[-1] < box.x1 - 6
    by_rate = [x for x, _ in shown if x < 3e-3]
    assert len(by_rate) == 9 and 0.7e-3 < min(by_rate) < 1e-3 < max(by_rate) < 1.4e-3


def test_the_line_breaks_where_a_seed_has_no_final_loss(every_ending: Path) -> None:
    (axis,) = drawn(figure_rates, every_ending)
    lines = [line for line in axis.lines if len(line.get_xdata()) == 5]  # type: ignore[arg-type]
    gaps = [[i for i, y in enumerate(line.get_ydata()) if y != y] for line in lines]  # type: ignore[arg-type]
    assert gaps == [[2], [2, 3, 4]]


def test_activations_have_a_panel_a_condition(every_ending: Path) -> None:
    axes = drawn(figure_activations, every_ending)
    assert len(axes) == 10
    assert axes[2].get_title(loc="left") == "depth=6, lr=1e-3\n0.52 ± 0.01 (2/3),\nnan@37 (1/3)"
    (mesh,) = axes[8].collections
    values = mesh.get_array()
    assert values.shape == (13, 2)  # layers 0 to 12, steps 0 and 20: the evaluations before the NaN
    assert values[4, 1] == 5 * 1.1**20
    assert axes[0].collections[0].norm is not None and axes[0].collections[0].get_clim() == mesh.get_clim()


def test_a_run_with_one_evaluation_has_a_cell_that_can_be_seen(tmp_path: Path) -> None:
    of = synthetic.study(synthetic.axis("optim.lr", "1e-3", "1e-2"))
    ends = {"1e-3": "trained", "1e-2": "nan@1"}
    root = synthetic.make_results(tmp_path / "toy", of, lambda run: ends[run.cell["optim.lr"]])
    whole, early = (axis.collections[0].get_coordinates() for axis in drawn(figure_activations, root))  # type: ignore[attr-defined]
    assert list(early[0, :, 0]) == [-10, 10] and list(early[:, 0, 1]) == [-0.5, 0.5, 1.5, 2.5]
    assert list(whole[0, :, 0]) == [-10, 10, 30, 50, 70]


@pytest.mark.parametrize("ending", ["nan@1", "missing", "failed", "diverged"])
def test_figures_of_a_study_in_which_nothing_trains(tmp_path: Path, ending: str) -> None:
    of = synthetic.study(synthetic.axis("optim.lr", "1e-3", "1e-2"))
    root = synthetic.make_results(tmp_path / "toy", of, lambda run: ending)
    for module in (figure_curves, figure_rates, figure_activations):
        assert drawn(module, root)


def test_panels_beyond_the_limit_are_named(tmp_path: Path) -> None:
    of = synthetic.study(
        synthetic.axis("model.depth", *map(str, range(1, 6))),
        synthetic.axis("model.norm", "none", "layernorm", "rmsnorm"),
        synthetic.axis("optim.lr", "1e-3", "1e-2"),
    )
    root = synthetic.make_results(tmp_path / "toy", of, lambda run: "missing")
    with styled():
        figure = figure_activations.draw(load(root))
    assert f"first {MAX_PANELS} of 30 panels" in figure.get_suptitle().replace("\n", " ")


def test_mathematics_and_missing_glyphs_in_labels(tmp_path: Path) -> None:
    of = synthetic.study().model_copy(update={"question": "$\\frac$ 中"})
    root = synthetic.make_results(tmp_path / "toy", of, lambda run: "trained")
    manifest = (root / "manifest.json").read_text()
    (root / "manifest.json").write_text(manifest.replace("normlab run configs/toy.yaml", "normlab run '$x_中$'"))
    from normlab.analysis.figures import all_figures

    assert [name for name, _ in all_figures(load(root))] == ["loss_curves", "activations"]


def test_colours_differ() -> None:
    names = [f"norm {i}" for i in range(20)]
    assert len(set(colours(names))) == 20
    rates = ["1e-5", "1e-4", "1e-3", "1e-2"]
    assert len({colour for colour, _ in colours(rates)}) == 4
