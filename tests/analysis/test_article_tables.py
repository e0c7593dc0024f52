"""The article's tables: its layout and order, and what stands in the cells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import reproduced
from reproduced import article_cell as cell
from reproduced import article_table as table

from normlab.analysis.article_formats import render_tables
from normlab.analysis.article_heads import LAYOUTS
from normlab.analysis.article_printed import ledger_place
from normlab.analysis.article_tables import article_tables
from normlab.analysis.evidence import Evidence
from normlab.analysis.ledger import load_ledger
from normlab.analysis.verdicts import Judged, judge_all


def test_tables_in_the_articles_order_with_its_own_heads(evidence: Evidence, judged: list[Judged]) -> None:
    tables = article_tables(evidence, judged, "zh")
    assert [(t.layout.section, t.layout.number) for t in tables] == [
        ("2.3", 0), ("3.2", 0), ("6.2", 1), ("6.2", 2), ("6.3", 1), ("6.3", 2), ("6.4", 1), ("6.4", 2)
    ]  # fmt: skip
    assert [t.header for t in tables] == [
        ["步数", "Post-LN 无 warmup", "Pre-LN 无 warmup", "Post-LN 带 warmup"],
        ["场景", "LN 质量", "RMSNorm 质量", "RMSNorm 提速"],
        ["步数", "无归一化", "LayerNorm", "RMSNorm"],
        ["层数", "无归一化", "LayerNorm", "RMSNorm"],
        ["学习率", "Post-LN 12 层", "Pre-LN 12 层", "Post-LN 30 层", "Pre-LN 30 层"],
        ["配置", "安全学习率窗口", "最优损失", "额外超参"],
        ["形状 batch seq d", "nn.LayerNorm", "RMSNorm 手写", "RMSNorm 快多少"],
        ["项", "LayerNorm", "RMSNorm", "差值"],
    ]


@pytest.mark.parametrize(
    ("name", "row", "column", "text"),
    [
        ("collapse-20", "0", "none", "2.10 ± 0.00"),
        ("collapse-20", "500", "none", "nan"),
        ("collapse-20", "500", "layernorm", "–"),
        ("collapse-depth", "12", "none", "0.52 ± 0.01 (2/3), nan@37 (1/3)"),
        ("collapse-depth", "20", "rmsnorm", "0.41 ± 0.01"),
        ("lr-sensitivity", "1e-2", "post 30", "stalled 2.09 ± 0.01"),
        ("lr-sensitivity", "1e-2", "pre 30", "0.41 ± 0.01"),
        ("lr-window", "post 30", "window", "≥ 1.00 (1e-4 to 1e-3)"),
        ("lr-window", "post 12", "best loss", "0.51 ± 0.01 at 1e-4; 0.51 ± 0.01 (with warm-up)"),
        ("lr-window", "post 12", "extra hyper-parameter", "warm-up steps (30)"),
        ("norm-speed", "4x128x512", "rmsnorm handwritten", "120 us [120, 122]"),
        ("norm-speed", "4x128x512", "rmsnorm faster by", "−100 % [−110, −90]"),
        ("norm-parameters", "reductions", "layernorm", "2 norms x 2"),
        ("norm-parameters", "model", "difference", "−262144"),
        ("rms-paper-table", "Transformer", "speed-up", "not measurable here"),
    ],
)
def test_cells(evidence: Evidence, judged: list[Judged], name: str, row: str, column: str, text: str) -> None:
    assert cell(table(evidence, judged, name), row, column).text == text


def test_cells_in_chinese(evidence: Evidence, judged: list[Judged]) -> None:
    depth, rates = table(evidence, judged, "collapse-depth", "zh"), table(evidence, judged, "lr-sensitivity", "zh")
    assert cell(depth, "12", "none").text == "0.52 ± 0.01 (2/3), NaN@37 (1/3)"
    assert cell(depth, "12", "none").published == "3.9 后震荡"
    assert cell(rates, "1e-2", "post 30").text == "停滞 2.09 ± 0.01"
    assert cell(table(evidence, judged, "norm-parameters", "zh"), "reductions", "rmsnorm").text == "2 次每次 1 个"


def test_printed_values_and_verdicts_stand_beside_ours(evidence: Evidence, judged: list[Judged]) -> None:
    collapse = table(evidence, judged, "collapse-20")
    assert cell(collapse, "3000", "rmsnorm").published == "2.30"
    assert cell(collapse, "500", "none").shown(compare=True) == "nan (NaN) ✓"
    assert cell(collapse, "500", "none").shown(compare=False) == "nan"
    speed = table(evidence, judged, "norm-speed")
    assert [c.shown(compare=True) for c in speed.cells[0]] == [
        "60.2 us [60, 61] (21 us)", "120 us [120, 122] (18 us)", "−100 % [−110, −90] (14%) ✗"
    ]  # fmt: skip
    counted = table(evidence, judged, "norm-parameters")
    assert {c.verdict for row in counted.cells for c in row} == {"reproduced", ""}


def test_every_printed_cell_of_the_ledger_has_its_place() -> None:
    """The layouts lose no cell: all that the ledger publishes of these tables stands in one of them."""
    entries = {entry.id: entry for entry in load_ledger().entries}
    places = {
        ledger_place(layout.id, row.key, column.key)
        for layout in LAYOUTS
        for row in layout.rows
        for column in layout.columns
    }
    for layout in LAYOUTS:
        if layout.studies:
            assert {(layout.id, at) for at in entries[layout.id].cells()} <= places, layout.id


def test_a_changed_printed_value_changes_the_table(evidence: Evidence, judged: list[Judged]) -> None:
    def changed(one: Judged) -> Judged:
        rows = {**one.entry.published, "3000": {**one.entry.published["3000"], "rmsnorm": 9.87}}
        return replace(one, entry=one.entry.model_copy(update={"published": rows}))

    others = [changed(one) if one.entry.id == "collapse-20" else one for one in judged]
    assert cell(table(evidence, others, "collapse-20"), "3000", "rmsnorm").published == "9.87"


def test_studies_that_are_not_there_are_named(evidence: Evidence, judged: list[Judged]) -> None:
    assert "not run: lr_wide" in table(evidence, judged, "lr-window").origin.lines


@pytest.mark.parametrize(("lang", "mark"), [("en", "SHORTENED RUN"), ("zh", "缩短运行")])
def test_a_quick_run_is_marked_in_every_table(tmp_path: Path, lang: str, mark: str) -> None:
    evidence = Evidence.open(reproduced.make_reproduction(tmp_path / "quick", quick=True, training=("depth",)))
    for one in article_tables(evidence, judge_all(evidence), lang):
        if one.layout.studies:
            text = render_tables([one], "md", compare=False)
            assert mark in text and "3000 steps -\\> 60" in text


def test_a_cell_that_another_study_judges_names_it(article: Path) -> None:
    alone = Evidence.open(article / "studies" / "postln")
    judged = judge_all(alone)
    windows = table(alone, judged, "lr-window")
    window, other = cell(windows, "post 12", "window"), cell(windows, "pre 12", "window")
    assert window.shown(compare=True).endswith("(about 1 decade) ∅") and "∅" not in other.shown(compare=True)
    assert "∅ not run: needs lr_wide, warmup." in " ".join(windows.caption(compare=True))
    assert "∅" not in " ".join(table(alone, judged, "lr-sensitivity").caption(compare=True))
    assert "∅ 未运行：需要 lr_wide, warmup" in " ".join(table(alone, judged, "lr-window", "zh").caption(compare=True))
