"""What tables and figures say of where their numbers were made, word for word."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import synthetic

from normlab.analysis import load
from normlab.analysis.figures import all_figures
from normlab.analysis.frames import Results
from normlab.analysis.outputs import table_texts
from normlab.analysis.provenance import (
    commit_text,
    listed,
    machine_text,
    notes_texts,
    origin_text,
    outcomes_text,
    seeds_text,
    shortened_text,
    thresholds_text,
)
from normlab.analysis.tables import all_tables
from normlab.config.schema import Thresholds


def made(root: Path, seeds: tuple[int, ...] = (0,), ending: str = "trained", **manifest: Any) -> Results:
    of = synthetic.study(seeds=seeds)
    margins = Thresholds(diverged_margin=0.5, stalled_margin=0.07, unsteady_margin=0.3)
    folder = synthetic.make_results(root, of.model_copy(update={"thresholds": margins}), lambda run: ending)
    file = folder / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | manifest))
    return load(folder)


@pytest.mark.parametrize(
    ("seeds", "told", "ended"), [((3,), "1 seed (3)", "1 run: 1 nan"), ((3, 5), "2 seeds (3, 5)", "2 runs: 2 nan")]
)
def test_one_or_several(tmp_path: Path, seeds: tuple[int, ...], told: str, ended: str) -> None:
    results = made(tmp_path / "toy", seeds, "nan@31")
    assert (seeds_text(results), outcomes_text(results)) == (told, ended)


def test_each_outcome_has_its_own_threshold(tmp_path: Path) -> None:
    text = thresholds_text(made(tmp_path / "toy"))
    for words in ("best constant guess) + 0.5 nats", "above the guess - 0.07", "above the best + 0.3"):
        assert words in text


def test_a_dirty_tree_and_a_shortened_study_are_told(tmp_path: Path) -> None:
    results = made(tmp_path / "toy", dirty=True, shortened=["300 of 3000 steps", "1 seed"])
    assert commit_text(results).startswith(f"commit {results.manifest['commit']} (modified)")
    assert shortened_text(results) == ["shortened: 300 of 3000 steps; 1 seed"]
    assert "shortened: 300 of 3000 steps; 1 seed" in origin_text(results)
    results = made(tmp_path / "clean", dirty=False)
    assert "modified" not in commit_text(results) and shortened_text(results) == []
    assert commit_text(made(tmp_path / "nowhere", commit=None)) == "commit unknown"


LEAKS, BOUNDS = "leaks the future", "norm 'dyt' replaces a norm; it bounds the sum"


def noted(root: Path, notes: Callable[[dict[str, str]], list[str]]) -> Results:
    """Three norms in two placements, two seeds; the run of Post-LN without norm and seed 1 is missing."""
    axes = synthetic.axis("model.norm", "none", "layernorm", "dyt"), synthetic.axis("model.placement", "post", "pre")
    ends = lambda run: "missing" if (run.cell["model.norm"], run.spec.seed) == ("none", 1) else "trained"  # noqa: E731
    folder = synthetic.make_results(root, synthetic.study(*axes, seeds=(0, 1)), ends)
    for run in json.loads((folder / "manifest.json").read_text())["runs"]:
        file = folder / "runs" / run["id"] / "run.json"
        if file.is_file():
            file.write_text(json.dumps(json.loads(file.read_text()) | {"notes": notes(run["cell"])}))
    return load(folder)


def test_a_note_is_told_with_the_settings_that_it_concerns(tmp_path: Path) -> None:
    def of_cell(cell: dict[str, str]) -> list[str]:
        dyt = cell["model.norm"] == "dyt"
        return [LEAKS] * (cell["model.norm"] != "none") + [BOUNDS] * (dyt and cell["model.placement"] == "post")

    results = noted(tmp_path / "toy", of_cell)
    assert notes_texts(results) == [
        f"{LEAKS}: 8 of 10 runs (model.norm=layernorm, dyt)",
        f"{BOUNDS}: 2 of 10 runs (model.norm=dyt and model.placement=post)",
    ]


def test_a_note_that_no_setting_tells_apart_is_counted(tmp_path: Path) -> None:
    lone = {("none", "pre"), ("layernorm", "post")}
    results = noted(tmp_path / "toy", lambda cell: [LEAKS] * ((cell["model.norm"], cell["model.placement"]) in lone))
    assert notes_texts(results) == [f"{LEAKS}: 3 of 10 runs"]
    results = noted(tmp_path / "all", lambda cell: [LEAKS])
    assert notes_texts(results) == [f"{LEAKS}: all 10 runs"]
    assert notes_texts(noted(tmp_path / "nothing", lambda cell: [])) == []


def test_a_note_stands_in_every_table_and_figure(tmp_path: Path) -> None:
    results = noted(tmp_path / "toy", lambda cell: [LEAKS] * (cell["model.norm"] == "none"))
    told = f"{LEAKS}: 2 of 10 runs (model.norm=none)"
    assert told in origin_text(results)
    for table in all_tables(results):
        texts = table_texts(table, results)
        assert told[0].upper() + told[1:] in texts["md"]
        assert "eaks the future: 2 of 10 runs" in texts["tex"]
    seen = []
    for _, images in all_figures(results):
        seen.append("eaks the future" in re.sub(r"\s+", " ", images["svg"].decode()))
    assert seen and all(seen)


def test_a_gpu_is_told_by_its_name() -> None:
    gpu = {"device": "cuda:0", "device_name": "a gpu", "threads": 2, "torch": "2.13.0"}
    assert machine_text(gpu) == "a gpu, 2 threads, torch 2.13.0"
    assert machine_text({**gpu, "device": "cpu", "threads": 1}) == "cpu, 1 thread, torch 2.13.0"


def test_a_list_is_cut_where_it_is_very_long() -> None:
    assert listed([str(n) for n in range(24)]).count(",") == 23
    assert listed([str(n) for n in range(25)]) == "0, 1, ... 24"
