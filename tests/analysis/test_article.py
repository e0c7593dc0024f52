"""The article's tables: its layout, what stands in the cells, and that every format survives its reader."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import reproduced
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from test_escaping import decode, printable

from normlab.analysis import load
from normlab.analysis.article_formats import render_tables, tex
from normlab.analysis.article_heads import LAYOUTS
from normlab.analysis.article_notes import Origin
from normlab.analysis.article_printed import ledger_place
from normlab.analysis.article_tables import ArticleTable, Cell, article_tables
from normlab.analysis.evidence import Evidence
from normlab.analysis.ledger import load_ledger
from normlab.analysis.verdicts import Judged, judge_all
from normlab.cli import main

NOWHERE = Origin((), ())
WRITE = "import sys; from normlab.analysis.article import write_article; write_article(sys.argv[1])"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reproduced.make_reproduction(tmp_path_factory.mktemp("results") / "article")


@pytest.fixture(scope="module")
def evidence(root: Path) -> Evidence:
    return Evidence.open(root)


@pytest.fixture(scope="module")
def judged(evidence: Evidence) -> list[Judged]:
    return judge_all(evidence)


def table(evidence: Evidence, judged: list[Judged], name: str, lang: str = "en") -> ArticleTable:
    return next(table for table in article_tables(evidence, judged, lang) if table.layout.id == name)


def cell(of: ArticleTable, row: str, column: str) -> Cell:
    rows, columns = [r.key for r in of.layout.rows], [c.key for c in of.layout.columns]
    return of.cells[rows.index(row)][columns.index(column)]


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


@pytest.mark.parametrize("form", ["md", "tex", "html", "csv"])
def test_every_table_says_where_it_comes_from(evidence: Evidence, judged: list[Judged], form: str) -> None:
    text = render_tables([table(evidence, judged, "collapse-20")], form, compare=False)
    for part in ("3 seeds (0, 1, 2)", "18 runs: 12 trained, 6 nan", "commit abc1234", "cpu, 1 thread"):
        assert part in text
    assert "normlab run configs/toy.yaml" in text


def test_studies_that_are_not_there_are_named(evidence: Evidence, judged: list[Judged]) -> None:
    assert "not run: lr_wide" in table(evidence, judged, "lr-window").origin.lines


@pytest.mark.parametrize(("lang", "mark"), [("en", "SHORTENED RUN"), ("zh", "缩短运行")])
def test_a_quick_run_is_marked_in_every_table(tmp_path: Path, lang: str, mark: str) -> None:
    evidence = Evidence.open(reproduced.make_reproduction(tmp_path / "quick", quick=True, training=("depth",)))
    for one in article_tables(evidence, judge_all(evidence), lang):
        if one.layout.studies:
            text = render_tables([one], "md", compare=False)
            assert mark in text and "3000 steps -\\> 60" in text


def test_csv_has_full_precision(root: Path, evidence: Evidence, judged: list[Judged]) -> None:
    text = render_tables([table(evidence, judged, "collapse-depth", "zh")], "csv", compare=False)
    data = pd.read_csv(io.StringIO(text))
    found = data[(data["row"] == 6) & (data["column"] == "RMSNorm")].iloc[0]
    runs = load(root / "studies" / "depth").runs
    runs = runs[(runs["model.depth"] == 6) & (runs["model.norm"] == "rmsnorm")]
    assert found["mean"] == runs["final_loss"].mean() and found["sd"] == pytest.approx(
        runs["final_loss"].std(), rel=1e-15
    )
    assert found["n"] == 3 and found["published"] == "2.45"


def test_markdown_survives_a_parser(evidence: Evidence, judged: list[Judged]) -> None:
    for one in article_tables(evidence, judged, "zh"):
        tokens = MarkdownIt("commonmark").enable("table").parse(render_tables([one], "md", compare=True))
        assert sum(token.type == "tr_open" for token in tokens) == 1 + len(one.layout.rows)
        assert sum(token.type == "td_open" for token in tokens) == len(one.layout.rows) * len(one.header)


# Latex ---------------------------------------------------------------------------------------------------------------


def test_english_latex_is_ascii_and_chinese_names_its_engine(evidence: Evidence, judged: list[Judged]) -> None:
    english = render_tables(article_tables(evidence, judged, "en"), "tex", compare=True)
    chinese = render_tables(article_tables(evidence, judged, "zh"), "tex", compare=True)
    assert english.isascii() and "[U+" not in english + chinese
    assert "xelatex" in chinese.splitlines()[0] and "ctex" in chinese.splitlines()[0]
    assert "无归一化" in chinese and r"\textsuperscript{c}" in english


@settings(deadline=None)  # how long it takes says nothing
@given(printable)
def test_latex_cells_print_the_same_text(text: str) -> None:
    assert decode(tex(text, "en")) == decode(tex(text, "zh")) == " ".join(text.split())


@settings(deadline=None)  # how long it takes says nothing
@given(st.text(st.sampled_from("中文，（）✓✗◇ ab_%&#\\{}$")))
def test_chinese_characters_pass_and_specials_do_not(text: str) -> None:
    escaped = tex(text, "zh")
    assert re.sub(r"[^中文，（）]", "", escaped) == re.sub(r"[^中文，（）]", "", text)
    assert escaped.count(r"\textsuperscript") == sum(text.count(mark) for mark in "✓✗◇")
    bare = re.sub(r"\\textsuperscript\{\w\}", "", escaped)
    assert decode(re.sub(r"[中文，（）]", "", bare)).replace(" ", "") == re.sub(r"[中文，（）✓✗◇ ]", "", text)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_english_tables_compile(evidence: Evidence, judged: list[Judged], tmp_path: Path) -> None:
    body = render_tables(article_tables(evidence, judged, "en"), "tex", compare=True)
    head = "\\documentclass{article}\n\\usepackage{booktabs}\\usepackage{graphicx}\\begin{document}\n"
    (tmp_path / "all.tex").write_text(f"{head}{body}\\clearpage\\end{{document}}\n")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]


# HTML ----------------------------------------------------------------------------------------------------------------


class Cells(HTMLParser):
    """Texts of the cells of all tables, and the names of all tags."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self.tags: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.tags.append(tag)
        if tag in ("th", "td"):
            self.inside = True
            self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("th", "td")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.texts[-1] += data


@settings(deadline=None)  # how long it takes says nothing
@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_html_cells_hold_any_text(text: str) -> None:
    from normlab.analysis.html import tables_page

    layout = next(layout for layout in LAYOUTS if layout.id == "collapse-depth")
    plain = ArticleTable(layout, "en", ((Cell("x"),) * 3,) * 3, (), (), NOWHERE)
    nasty = ArticleTable(layout, "en", ((Cell(text),) * 3,) * 3, (text,), (), NOWHERE)
    expected, found = Cells(), Cells()
    expected.feed(tables_page([plain], compare=True))
    found.feed(tables_page([nasty], compare=True))
    assert [text if cell == "x" else cell for cell in expected.texts] == found.texts
    assert expected.tags == found.tags  # no text becomes markup


# Files and commands --------------------------------------------------------------------------------------------------


def content(root: Path) -> dict[str, bytes]:
    files = [file for file in root.rglob("*") if file.is_file() and "studies" not in file.relative_to(root).parts]
    return {str(file.relative_to(root)): file.read_bytes() for file in files}


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    written = []
    for hash_seed in ("1", "2"):
        root = reproduced.make_reproduction(tmp_path / hash_seed / "article")
        (root / "tables").mkdir()
        (root / "figures").mkdir()
        (root / "figures" / "article-norm-speed.svg").write_text("an older one")
        environment = {**os.environ, "MPLBACKEND": "TkAgg", "PYTHONHASHSEED": hash_seed}
        environment.pop("DISPLAY", None)
        done = subprocess.run([sys.executable, "-W", "error", "-c", WRITE, "article"], cwd=root.parent, env=environment,
                              capture_output=True, text=True)  # fmt: skip
        assert done.returncode == 0, done.stderr
        written.append(content(root))
    first, second = written
    assert first == second
    names = {f"tables/article-{layout.id}.{lang}.{form}" for layout in LAYOUTS for lang in ("en", "zh")
             for form in ("md", "csv", "tex", "html")}  # fmt: skip
    drawn = ("warmup-curve", "collapse-20", "collapse-depth", "lr-sensitivity", "norm-speed")
    names |= {f"figures/article-{name}.{suffix}" for name in drawn for suffix in ("svg", "png")}
    assert set(first) == names | {"manifest.json", "verdicts.json", "REPORT.md", "report.html"}


def test_figures_of_studies_that_have_gone_are_removed(tmp_path: Path) -> None:
    from normlab.analysis.article import write_article

    root = reproduced.make_reproduction(tmp_path / "article", training=("depth",))
    (root / "figures").mkdir()
    (root / "figures" / "article-collapse-20.svg").write_text("an older one")
    (root / "figures" / "mine.svg").write_text("the user's")
    write_article(root)
    assert {file.name for file in (root / "figures").glob("*.svg")} == {
        "mine.svg", "article-collapse-depth.svg", "article-norm-speed.svg"
    }  # fmt: skip


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_the_command_prints_what_was_asked_for(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = content(root)
    assert "| 步数" in printed(capsys, "tables", str(root), "--lang", "zh")
    compared = printed(capsys, "tables", str(root), "--compare")
    assert "nan (NaN) ✓" in compared and "| no norm" not in compared.splitlines()[0]
    assert printed(capsys, "tables", str(root), "--format", "tex").count(r"\begin{table}") == 8
    assert "\\toprule" in printed(capsys, "tables", str(root / "studies" / "depth"), "--lang", "en", "--format", "tex")
    assert content(root) == before  # nothing is written


def test_without_options_a_study_gives_its_own_tables(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "tables", str(root / "studies" / "depth"))
    assert text.startswith("depth: Does it train?") and "Section" not in text


def test_without_options_a_reproduction_writes_and_prints_english(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = reproduced.make_reproduction(tmp_path / "article", training=("depth",))
    assert "**Section 6.2, table 2" in printed(capsys, "tables", str(root))
    assert len(list((root / "tables").iterdir())) == 64


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--lang", "de"], "--lang: expected en or zh, got 'de'"),
        (["--format", "pdf"], "--format: expected md, csv, tex or html, got 'pdf'"),
    ],
)
def test_wrong_choices_are_one_line(
    root: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], what: str
) -> None:
    assert main(["tables", str(root), *arguments]) == 2
    assert capsys.readouterr().err == f"{what}\n"


def test_a_study_without_article_tables_says_so(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tables", str(root / "studies" / "numerics"), "--lang", "zh"]) == 2
    assert "numerics feeds none of the article's tables" in capsys.readouterr().err
