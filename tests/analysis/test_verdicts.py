"""Verdicts on results made by hand: each verdict of a claim, and what changes when published cells change."""

import json
from pathlib import Path

import pytest
import synthetic

from normlab.analysis.evidence import Evidence
from normlab.analysis.ledger import Entry, load_ledger
from normlab.analysis.verdicts import judge, judge_all, verdicts_json
from normlab.manifests import ResultsError

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
