"""Verdicts on results made by hand: each verdict of a claim, and what changes when published cells change."""

import json
from pathlib import Path

import pytest
import synthetic

from normlab.analysis.evidence import Evidence
from normlab.analysis.ledger import Entry, load_ledger
from normlab.analysis.report_text import rule_text
from normlab.analysis.verdicts import judge, judge_all, verdicts_json
from normlab.manifests import ResultsError
from normlab.measures import Measure, write_measure

ENDS = {"none": "stalled", "layernorm": "trained", "rmsnorm": "better"}


@pytest.fixture
def evidence(tmp_path):
    study = synthetic.study(synthetic.axis("model.norm", *ENDS), seeds=(0, 1, 2))
    return Evidence.open(synthetic.make_results(tmp_path / "toy", study, lambda run: ENDS[run.spec.model.norm]))


def claim(published, **change):
    columns = {norm: {"model.norm": norm} for norm in ENDS}
    content = {
        "id": "toy",
        "section": "0",
        "claim": "…",
        "their_setting": "…",
        "our_setting": "…",
        "published": published,
        "measured": [{"by": "final_loss", "base": {"study": "toy"}, "columns": columns}],
        "predicates": [{"kind": "value", "tolerance": 0.1, "reason": "…"}],
        "seeds": 3,
    }
    return Entry.model_validate({**content, **change})


RIGHT = {"none": "stalled", "layernorm": 0.51, "rmsnorm": 0.41}
RANK = [{"kind": "rank", "at_least": 0.5, "reason": "…"}]
ORDER = [{"kind": "order", "pairs": [["|rmsnorm", "|layernorm"]], "reason": "…"}]


@pytest.mark.parametrize(
    ("published", "change", "verdict"),
    [
        (RIGHT, {}, "reproduced"),
        ({**RIGHT, "none": "nan"}, {}, "direction only"),  # fails, but in another way
        ({**RIGHT, "none": "nan", "layernorm": 2.0}, {}, "contradicted"),
        ({**RIGHT, "layernorm": 0.6}, {}, "undecided"),  # the interval reaches across the edge
        ({"none": "nan", "layernorm": 2.28, "rmsnorm": 2.0}, {"direction": RANK}, "direction only"),
        ({"none": 0.1, "layernorm": 2.28, "rmsnorm": 3.0}, {"direction": RANK}, "contradicted"),
        (RIGHT, {"predicates": ORDER}, "reproduced"),
        (RIGHT, {"seeds": 4}, "undecided"),
        (RIGHT, {"predicates": (), "not_run": "later"}, "not run"),
        (RIGHT, {"predicates": (), "not_testable": "too large"}, "not testable here"),
    ],
)
def test_the_verdict_on_the_whole(evidence, published, change, verdict):
    judged = judge(claim(published, **change), evidence)
    assert judged.verdict == verdict, judged.reason


def test_what_a_reader_is_told(evidence):
    judged = judge(claim(RIGHT), evidence)
    assert judged.published == "none: stalled; layernorm: 0.51; rmsnorm: 0.41"
    assert judged.measured == "none: 2.09 ± 0.01 (stalled 3/3); layernorm: 0.51 ± 0.01; rmsnorm: 0.41 ± 0.01 (n = 3)"
    assert judged.command == "normlab run configs/toy.yaml" and len(judged.run_ids) == 9
    cell = judged.cells[1]
    assert (cell.column, cell.n, cell.outcomes) == ("layernorm", 3, {"trained": 3})
    assert cell.low < cell.mean < cell.high
    json.loads(json.dumps(verdicts_json([judged]), allow_nan=False))


def test_shortened_runs_decide_nothing(evidence, monkeypatch):
    monkeypatch.setitem(evidence.manifest, "quick", True)
    assert judge(claim(RIGHT), evidence).verdict == "undecided"


def test_a_study_that_is_not_there(evidence):
    elsewhere = [{"by": "final_loss", "base": {"study": "collapse"}}]
    assert judge(claim(RIGHT, measured=elsewhere), evidence).verdict == "not run"
    assert {j.verdict for j in judge_all(evidence)} == {"not run", "not testable here"}


def test_published_cells_decide_verdicts():
    """The mutation test, on the real table 1 of 6.2 and the reference runs: a published cell that is moved onto what
    was measured turns to reproduced, one that is moved away turns to contradicted, and only that cell changes."""
    evidence = Evidence.open(Path(__file__).parents[2] / "results/reference/collapse")
    entry = next(entry for entry in load_ledger().entries if entry.id == "collapse-20")
    before = {(cell.row, cell.column): cell for cell in judge(entry, evidence).cells}
    assert before["0", "none"].verdict == "reproduced" and before["3000", "none"].verdict == "contradicted"
    assert before["3000", "layernorm"].verdict == "contradicted"
    changes = {("3000", "none"): "trained", ("3000", "layernorm"): 1.78, ("0", "none"): 3.0}
    changed = {("3000", "none"): "reproduced", ("0", "none"): "contradicted"}
    for (row, column), value in changes.items():
        table = {**entry.published, row: {**entry.published[row], column: value}}
        after = judge(entry.model_copy(update={"published": table}), evidence)
        now = {(cell.row, cell.column): cell.verdict for cell in after.cells}
        assert {key for key in now if now[key] != before[key].verdict} == {(row, column)}
        assert now[row, column] == changed.get((row, column), now[row, column])


def test_folders_that_are_no_evidence(tmp_path):
    with pytest.raises(ResultsError, match="has no manifest.json"):
        Evidence.open(tmp_path)
    with pytest.raises(ResultsError, match="does not exist"):
        Evidence.open(tmp_path / "nowhere")
    (tmp_path / "manifest.json").write_text('{"kind": "reproduction", "format": 1, "studies": [1]}')
    with pytest.raises(ResultsError, match="studies: expected name and folder"):
        Evidence.open(tmp_path)


def test_a_control_that_fails_too_proves_nothing(evidence):
    """Without norm the net is said to fail, with one to train: where both fail, the claim is not reproduced."""
    fails = [
        {"kind": "fails", "columns": ["none"], "reason": "…"},
        {"kind": "value", "columns": ["layernorm"], "tolerance": 0, "reason": "…"},
    ]
    columns = {"none": {"model.norm": "none"}, "layernorm": {"model.norm": "none"}}
    both = [{"by": "final_loss", "base": {"study": "toy"}, "columns": columns}]
    words = {"none": "fails", "layernorm": "trained"}
    assert judge(claim(words, predicates=fails, measured=both), evidence).verdict == "contradicted"
    assert judge(claim(words, predicates=fails), evidence).verdict == "reproduced"


@pytest.mark.parametrize(("printed", "verdict"), [(14, "reproduced"), (8, "contradicted")])
def test_a_share_is_judged_and_told_in_percent(tmp_path, printed, verdict):
    values = {"share": {"median": 0.125, "low": 0.12, "high": 0.13, "n": 7}, "lone": 0.125}
    write_measure(tmp_path, Measure("toy", "?", "normlab toy", False, {}, values, {}, "now", 1.0))
    rules = [{"kind": "value", "tolerance": 3, "reason": "…"}]
    entry = claim({"share": printed, "lone": printed}, unit="%", predicates=rules, seeds=1,
                  measured=[{"by": "leaf", "base": {"study": "toy", "path": "{column}"}}])  # fmt: skip
    judged = judge(entry, Evidence.open(tmp_path))
    assert judged.published == f"share: {printed} %; lone: {printed} %"
    assert judged.measured == "share: 12.50 % [12, 13]; lone: 12.5 % (n = 1 to 7)"
    assert judged.verdict == verdict and judged.cells[0].reason.endswith(f"the tolerance of {printed} %")
    assert judged.cells[0].reason.startswith("[12, 13] % lies ") and judged.cells[0].mean == 12.5
    assert rule_text(entry.predicates[0], 1, entry.unit).startswith("within 3 percentage points of the printed value")
    assert verdicts_json([judged])["claims"][0]["unit"] == "%"


def test_a_bound_of_a_share_is_told_in_percent(tmp_path):
    values = {"share": {"median": -0.5, "low": -0.75, "high": -0.25, "n": 7}}
    write_measure(tmp_path, Measure("toy", "?", "normlab toy", False, {}, values, {}, "now", 1.0))
    rules = [{"kind": "bound", "at_least": 0.1, "reason": "…"}]
    entry = claim({"share": "faster"}, unit="%", predicates=rules, seeds=1,
                  measured=[{"by": "leaf", "base": {"study": "toy", "path": "{column}"}}])  # fmt: skip
    (cell,) = judge(entry, Evidence.open(tmp_path)).cells
    assert cell.reason == "[-75, -25] % lies outside the tolerance (at least 0.1 %)" and cell.published == "faster"
    assert rule_text(entry.predicates[0], 1, entry.unit) == "at least 0.1 %: …"


@pytest.mark.parametrize(("printed", "told"), [(1.0, False), (2.0, True)])
def test_the_nearest_setting_is_told_where_the_printed_one_does_not_hold(tmp_path, printed, told):
    near = {"setting": "randn * 2", "distance": 0.5, "tried": 3}
    values = {"toy": {"x": 1.0, "nearest": near}}
    write_measure(tmp_path, Measure("toy", "?", "normlab toy", False, {}, values, {}, "now", 1.0))
    way = [{"by": "leaf", "base": {"study": "toy", "path": "toy.{column}"}}]
    judged = judge(claim({"x": printed}, measured=way, seeds=1), Evidence.open(tmp_path))
    assert judged.reason.endswith("; the nearest setting found: randn * 2 (distance 0.5, the best of 3 tried)") == told


def test_an_order_of_which_a_cell_is_lacking_is_undecided(evidence):
    columns = {norm: {"model.norm": norm} for norm in (*ENDS, "dyt")}
    way = [{"by": "final_loss", "base": {"study": "toy"}, "columns": columns}]
    falling = {"none": 3.0, "layernorm": 2.0, "rmsnorm": 1.0}
    assert judge(claim(falling, predicates=RANK, measured=way), evidence).verdict == "reproduced"
    judged = judge(claim({**falling, "dyt": 0.5}, predicates=RANK, measured=way), evidence)
    assert judged.verdict == "undecided" and "some cells are not among these results" in judged.reason


def value(tolerance, **more):
    return [{"kind": "value", "tolerance": tolerance, "reason": "…", **more}]


WRONG = [{"kind": "order", "pairs": [["|layernorm", "|rmsnorm"]], "reason": "…"}]
ALONE = {"layernorm": 0.51}  # three seeds 0.01 apart: the interval of one further run is 0.0497 wide on each side


@pytest.mark.parametrize(
    ("published", "change", "verdict"),
    [
        ({**RIGHT, "dyt": 0.5}, {}, "undecided"),  # it has no runs
        ({"layernorm": 2.28, "rmsnorm": 2.0}, {"direction": ORDER}, "direction only"),
        ({"layernorm": 2.28, "rmsnorm": 2.0}, {"direction": ORDER + WRONG}, "contradicted"),
        ({"layernorm": 2.28, "rmsnorm": 2.0}, {"direction": ORDER, "seeds": 4}, "undecided"),
        (RIGHT, {"predicates": ORDER, "seeds": 4}, "undecided"),
        (ALONE, {"predicates": value(0.05)}, "reproduced"),
        (ALONE, {"predicates": value(0.05, relative=True)}, "undecided"),  # half of it, in nats
        ({"layernorm": 0.2}, {"predicates": value(0.1)}, "contradicted"),
        ({"layernorm": 0.2}, {"predicates": value(0.1, above=1.0)}, "reproduced"),
    ],
)
def test_what_a_verdict_hangs_on(evidence, published, change, verdict):
    columns = {norm: {"model.norm": norm} for norm in (*ENDS, "dyt")}
    way = [{"by": "final_loss", "base": {"study": "toy"}, "columns": columns}]
    judged = judge(claim(published, measured=way, **change), evidence)
    assert judged.verdict == verdict, judged.reason


@pytest.mark.parametrize(
    ("predicates", "half"),
    [(value(0.1), 4.303 * 0.01 * (4 / 3) ** 0.5), (value(0.1, single=False), 4.303 * 0.01 / 3**0.5)],
)
def test_the_interval_that_is_told_is_the_one_that_was_judged(evidence, predicates, half):
    (cell,) = judge(claim(ALONE, predicates=predicates), evidence).cells
    assert (cell.low, cell.high) == (pytest.approx(0.51 - half), pytest.approx(0.51 + half))


def test_what_is_said_of_any_run_has_no_interval(evidence):
    said = [{"kind": "bound", "at_most": 1.0, "each": True, "reason": "…"}]
    (cell,) = judge(claim(ALONE, predicates=said), evidence).cells
    assert cell.verdict == "reproduced" and cell.low is None and cell.high is None


@pytest.mark.parametrize(("n", "text"), [(6, "0: 1; 1: 1; 2: 1; 3: 1; 4: 1; 5: 1"), (7, "table of 7 cells")])
def test_a_table_of_many_cells_is_counted(evidence, n, text):
    later = claim({str(i): 1 for i in range(n)}, predicates=(), not_run="later")
    assert judge(later, evidence).published == text
