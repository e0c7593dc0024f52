"""`load`: what stands in the frames, and one line for each way in which a folder is wrong."""

from __future__ import annotations

import gzip
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import synthetic

import normlab
from normlab.analysis import ResultsError
from normlab.analysis.provenance import device_text
from normlab.analysis.tables import outcome_table, runs_table, steps_table
from normlab.catalogue import NORMS
from normlab.config.schema import Axis, Point


def test_a_row_a_planned_run_in_the_order_of_the_plan(every_ending: Path) -> None:
    runs = normlab.load(every_ending).runs
    assert len(runs) == 30
    assert list(runs["seed"][:4]) == [0, 1, 2, 0]
    assert list(runs["label"][:2]) == ["depth=6 lr=1e-4 seed=0", "depth=6 lr=1e-4 seed=1"]
    assert runs["condition"][0] == "depth=6, lr=1e-4"
    assert runs["outcome"].value_counts().to_dict() == {
        **{"trained": 13, "stalled": 4, "nan": 4, "diverged": 3, "unsteady": 3, "failed": 2, "missing": 1}
    }


def test_columns_hold_the_record(every_ending: Path) -> None:
    runs = normlab.load(every_ending).runs.set_index("label")
    onset = runs.loc["depth=6 lr=1e-3 seed=0"]
    assert (onset["outcome"], onset["onset_step"], onset["onset_producer"]) == ("nan", 37, "blocks.1.ffn.out")
    assert math.isnan(onset["final_loss"]) and math.isnan(onset["best_loss"])
    trained = runs.loc["depth=6 lr=3e-4 seed=2"]
    assert (trained["final_loss"], trained["best_step"], trained["optim.lr"]) == (0.4 + 0.02, 60, 3e-4)
    assert (trained["uniform"], trained["floor"], trained["seconds"]) == (synthetic.UNIFORM, synthetic.FLOOR, 1.5)


def test_runs_that_are_not_there_keep_their_planned_fields(every_ending: Path) -> None:
    runs = normlab.load(every_ending).runs.set_index("label")
    missing, failed = runs.loc["depth=12 lr=1e-3 seed=2"], runs.loc["depth=12 lr=1e-2 seed=1"]
    assert (missing["outcome"], missing["model.depth"], missing["optim.lr"]) == ("missing", 12, 1e-3)
    assert (failed["outcome"], failed["error"]) == ("failed", "MemoryError: too large")


def test_curves_and_activations_are_long(every_ending: Path) -> None:
    results = normlab.load(every_ending)
    run_id = results.runs.set_index("label").loc["depth=6 lr=1e-3 seed=0", "id"]
    curve = results.curves[results.curves["id"] == run_id]
    assert list(curve["step"]) == list(range(38))
    assert math.isnan(curve["train_loss"].iloc[0]) and curve["train_loss"].iloc[1] == 2.11
    assert list(curve["step"][np.isfinite(curve["val_loss"])]) == [0, 20]
    rms = results.activations[results.activations["id"] == run_id]
    assert list(zip(rms["step"], rms["layer"], strict=True)) == [(s, n) for s in (0, 20) for n in range(7)]
    assert rms["rms"].iloc[9] == 3 * 1.1**20


def test_numbers_are_read_back_exactly(tmp_path: Path) -> None:
    of = synthetic.study(synthetic.axis("optim.lr", "1e-3"))
    root = synthetic.make_results(tmp_path / "toy", of, lambda run: "trained")
    curve = next(root.glob("runs/*/curve.csv"))
    # A parser that is fast rather than exact reads the last digit of this one wrong.
    curve.write_text(curve.read_text().replace("\n20,1.51,1.0,1.5,", "\n20,1.51,1.0,0.12345678901234568,"))
    (series,) = normlab.load(root).evaluations.values()
    assert series[20] == 0.12345678901234568


def test_a_study_without_axes(tmp_path: Path) -> None:
    results = normlab.load(synthetic.make_results(tmp_path / "toy", synthetic.study(), lambda run: "trained"))
    assert list(results.by([])) == [()]
    assert results.name([], ()) == ""


def test_named_variants_have_a_column_of_labels(tmp_path: Path) -> None:
    points = [Point(label=p, settings={"model.placement": p.split(",")[0]}) for p in ("post, plain", "pre, plain")]
    of = synthetic.study(Axis(name="variant", points=tuple(points)))
    runs = normlab.load(synthetic.make_results(tmp_path / "toy", of, lambda run: "missing")).runs
    assert list(runs["variant"]) == ["post, plain", "pre, plain"] == list(runs["condition"])
    assert list(runs["model.placement"]) == ["post", "pre"]


ALPHA = "model.norm_options.alpha"


def test_an_option_has_a_column_where_the_study_sets_it(tmp_path: Path) -> None:
    points = {
        "plain": {"model.norm": "layernorm"},
        "dyt": {"model.norm": "dyt"},
        "dyt, 2": {"model.norm": "dyt", ALPHA: 2.0},
    }
    variants = Axis(name="variant", points=tuple(Point(label=p, settings=s) for p, s in points.items()))
    ends = {"plain": "trained", "dyt": "trained", "dyt, 2": "missing"}
    root = synthetic.make_results(tmp_path / "toy", synthetic.study(variants), lambda run: ends[run.cell["variant"]])
    runs = normlab.load(root).runs
    # The default of an entry that has the option, nothing for one that has not.
    assert [None if math.isnan(alpha) else alpha for alpha in runs[ALPHA]] == [None, 0.5, 2.0]
    assert [name for name in runs if "_options." in name] == [ALPHA]  # not every option there is
    assert "model.residual_ramp.warmup" in runs and ALPHA in runs_table(normlab.load(root)).data
    folder = root / "runs" / runs["id"][1] / "run.json"
    record = json.loads(folder.read_text())
    record["built"]["options"] = {"norm": {"alpha": 0.75, "statistics": "float32"}}
    folder.write_text(json.dumps(record))
    assert normlab.load(root).runs[ALPHA][1] == 0.75  # what was built, if the record says it


def test_an_option_is_in_a_name_only_where_it_varies(tmp_path: Path) -> None:
    base = synthetic.BASE.model_dump()
    base["model"] |= {"norm": "dyt", "norm_options": {"alpha": 2.0}}
    of = synthetic.study(synthetic.axis("optim.lr", "1e-3", "1e-2"))
    of = of.model_copy(update={"base": type(of.base).model_validate(base)})
    results = normlab.load(synthetic.make_results(tmp_path / "base", of, lambda run: "trained"))
    assert list(results.runs[ALPHA]) == [2.0, 2.0]
    assert not any("alpha" in text for column in ("condition", "label") for text in results.runs[column])
    of = of.model_copy(update={"axes": (Axis(name=ALPHA, points=tuple(map(_alpha, (0.1, 0.5)))),)})
    results = normlab.load(synthetic.make_results(tmp_path / "axis", of, lambda run: "trained"))
    assert list(results.runs["condition"]) == ["alpha=0.1", "alpha=0.5"]
    assert list(results.runs[ALPHA]) == [0.1, 0.5]


def _alpha(value: float) -> Point:
    return Point(label=str(value), settings={ALPHA: value})


def test_a_plugins_entry_is_read_and_called_by_its_title_without_the_plugin(tmp_path: Path) -> None:
    """The same numbers as with layernorm, under another name: what the reading half knows stands in the manifest."""
    of = synthetic.study(synthetic.axis("model.norm", "layernorm", "dyt"))
    ends = {"layernorm": "trained", "dyt": "missing"}
    root = synthetic.make_results(tmp_path / "toy", of, lambda run: ends[run.cell["model.norm"]])
    for file in (root / "manifest.json", *root.glob("runs/*/run.json")):
        file.write_text(file.read_text().replace('"layernorm"', '"mynorm"').replace('"dyt"', '"other"'))
    manifest = json.loads((root / "manifest.json").read_text())
    with pytest.raises(ResultsError, match="mynorm"):
        normlab.load(root)
    manifest["study"]["base"]["model"]["norm_options"] = {"power": 3}
    manifest["entries"] = {
        "norms": {"mynorm": {"title": "My norm", "version": 1}, "other": {"title": "", "version": 2}}
    }
    (root / "manifest.json").write_text(json.dumps(manifest))
    results = normlab.load(root)
    assert "mynorm" not in NORMS
    assert list(results.runs["condition"]) == ["My norm", "other"]
    assert list(results.runs["model.norm"]) == ["mynorm", "other"]
    assert list(results.runs["model.norm_options.power"]) == [3, 3]
    assert [row[0] for row in outcome_table(results).rows] == ["My norm", "other"]
    assert steps_table(results).header == ["step", "My norm", "other"]
    assert list(outcome_table(results).data["model.norm"]) == ["mynorm", "other"]


def test_titles_that_say_the_same_give_way_to_names(tmp_path: Path) -> None:
    of = synthetic.study(synthetic.axis("model.norm", "layernorm", "rmsnorm"))
    root = synthetic.make_results(tmp_path / "toy", of, lambda run: "trained")
    assert list(normlab.load(root).runs["condition"]) == ["LayerNorm", "RMSNorm"]
    for file in (root / "manifest.json", *root.glob("runs/*/run.json")):
        file.write_text(file.read_text().replace('"rmsnorm"', '"mine"'))
    manifest = json.loads((root / "manifest.json").read_text())
    manifest["entries"] = {"norms": {"mine": {"title": "LayerNorm", "version": 1}}}
    (root / "manifest.json").write_text(json.dumps(manifest))
    assert list(normlab.load(root).runs["condition"]) == ["norm=layernorm", "norm=mine"]


def test_a_study_whose_grid_is_refused_now_is_one_line(tmp_path: Path) -> None:
    of = synthetic.study(synthetic.axis("model.norm", "layernorm", "dyt"))
    root = synthetic.make_results(tmp_path / "toy", of, lambda run: "missing")
    manifest = json.loads((root / "manifest.json").read_text())
    manifest["study"]["base"]["model"]["norm_options"] = {"eps": 1e-3}
    (root / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ResultsError, match=r"manifest.json: study: .*is read by .*layernorm.* \(at .*dyt"):
        normlab.load(root)


def test_notes_of_a_run_are_read(tmp_path: Path) -> None:
    root = synthetic.make_results(tmp_path / "toy", synthetic.study(seeds=(0, 1, 2)), _missing_at_2)
    first = normlab.load(root).runs["id"][0]
    record = json.loads((root / "runs" / first / "run.json").read_text())
    (root / "runs" / first / "run.json").write_text(json.dumps(record | {"notes": ["leaks", "is odd; very"]}))
    results = normlab.load(root)
    assert list(results.runs["notes"]) == [("leaks", "is odd; very"), (), ()]
    assert list(runs_table(results).data["notes"]) == ["leaks; is odd; very", "", ""]


def _missing_at_2(run) -> str:
    return "missing" if run.spec.seed == 2 else "trained"


def _no_folder(root: Path) -> None:
    shutil.rmtree(root)


def _no_manifest(root: Path) -> None:
    (root / "manifest.json").unlink()


def _broken_manifest(root: Path) -> None:
    (root / "manifest.json").write_text('{"format": 1,')


def _other_json(root: Path) -> None:
    (root / "manifest.json").write_text('{"format": 1}')


def _newer_format(root: Path) -> None:
    manifest = json.loads((root / "manifest.json").read_text())
    (root / "manifest.json").write_text(json.dumps({**manifest, "format": 2}))


def _illegal_study(root: Path) -> None:
    manifest = json.loads((root / "manifest.json").read_text())
    manifest["study"]["base"]["model"]["depth"] = "six"
    (root / "manifest.json").write_text(json.dumps(manifest))


def _stray_run(root: Path) -> None:
    shutil.copytree(next(root.glob("runs/*")), root / "runs" / "0123456789ab")


def _truncated_run(root: Path) -> None:
    run = next(root.glob("runs/*/run.json"))
    run.write_text(run.read_text()[:100])


def _empty_run(root: Path) -> None:
    next(root.glob("runs/*/run.json")).write_text("")


def _list_for_a_run(root: Path) -> None:
    next(root.glob("runs/*/run.json")).write_text("[1, 2]")


def _no_timing(root: Path) -> None:
    next(root.glob("runs/*/timing.json")).unlink()


def _truncated_timing(root: Path) -> None:
    timing = next(root.glob("runs/*/timing.json"))
    timing.write_text(timing.read_text()[:20])


def _null_timing(root: Path) -> None:
    next(root.glob("runs/*/timing.json")).write_text("null")


def _foreign_record(root: Path) -> None:
    next(root.glob("runs/*/run.json")).write_text("{}")


def _swapped_runs(root: Path) -> None:
    first, second = list(root.glob("runs/*/run.json"))[:2]
    first.write_text(second.read_text())


def _other_thresholds(root: Path) -> None:
    run = next(root.glob("runs/*/run.json"))
    run.write_text(run.read_text().replace('"stalled_margin": 0.05', '"stalled_margin": 0.5'))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_no_folder, "does not exist"),
        (_no_manifest, "has no manifest.json"),
        (_broken_manifest, "manifest.json: cannot be read"),
        (_other_json, "expected a manifest with 'study' and 'runs'"),
        (_newer_format, "expected format 1, got 2"),
        (_illegal_study, "study: base.model.depth: Input should be a valid integer"),
        (_stray_run, "runs/0123456789ab not in manifest.json"),
        (_truncated_run, "run.json: cannot be read"),
        (_empty_run, "run.json: cannot be read"),
        (_list_for_a_run, "run.json: expected an object, got [1, 2]"),
        (_no_timing, "timing.json: cannot be read"),
        (_truncated_timing, "timing.json: cannot be read"),
        (_null_timing, "timing.json: expected an object, got null"),
        (_foreign_record, "run.json: not a run's record: no 'id'"),
        (_swapped_runs, "run.json belongs to run"),
        (_other_thresholds, "judged by other thresholds"),
    ],
)
def test_a_wrong_folder_is_told_in_one_line(every_ending: Path, damage, said: str) -> None:
    damage(every_ending)
    with pytest.raises(ResultsError) as caught:
        normlab.load(every_ending)
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert str(every_ending) in str(caught.value)


def test_a_broken_compressed_curve_is_told_in_one_line(tmp_path: Path) -> None:
    root = synthetic.make_results(tmp_path / "toy", synthetic.study(), lambda run: "trained")
    curve = next(root.glob("runs/*/curve.csv"))
    content = bytearray(gzip.compress(curve.read_bytes()))
    content[12:16] = b"\xff" * 4
    curve.with_name("curve.csv.gz").write_bytes(content)
    curve.unlink()
    with pytest.raises(ResultsError, match="its curve cannot be read"):
        normlab.load(root).curves  # noqa: B018


def test_a_broken_curve_is_told_in_one_line(every_ending: Path) -> None:
    curve = next(every_ending.glob("runs/*/curve.csv"))
    curve.write_text(curve.read_text().replace("\n20,", "\ntwenty,"))
    results = normlab.load(every_ending)
    with pytest.raises(ResultsError, match="its curve cannot be read") as caught:
        results.curves  # noqa: B018
    assert "\n" not in str(caught.value)


def test_the_switches_are_told_by_the_runs_own_word(every_ending):
    for run, on in zip(sorted((every_ending / "runs").iterdir()), (True, True, False), strict=False):
        timing = json.loads((run / "timing.json").read_text())
        # Outside a repository a run has no commit; it has been trained all the same.
        (run / "timing.json").write_text(
            json.dumps(timing | ({"fused": "x86-64-v4, g++ 12", "commit": None, "device": None} if on else {}))
        )
    manifest = json.loads((every_ending / "manifest.json").read_text())
    (every_ending / "manifest.json").write_text(json.dumps(manifest | {"fused": "x86-64-v4, g++ 12", "tf32": True}))
    results = normlab.load(every_ending)
    there = len(list((every_ending / "runs").iterdir()))
    assert 2 < there < len(results.runs)
    text = device_text(results)
    assert text.endswith(f"fused step (x86-64-v4, g++ 12) in 2 of {there} runs")
    assert text.count("fused step") == 1 and "TF32" not in text  # not by the manifest's word
