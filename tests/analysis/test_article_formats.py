"""The article's tables in Markdown, CSV, LaTeX and HTML: every format survives its reader."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from reproduced import article_table as table
from test_escaping import decode, printable

from normlab.analysis import load
from normlab.analysis.article_formats import render_tables, tex
from normlab.analysis.article_heads import LAYOUTS
from normlab.analysis.article_notes import Origin
from normlab.analysis.article_tables import ArticleTable, Cell, article_tables
from normlab.analysis.evidence import Evidence
from normlab.analysis.verdicts import Judged, judge_all

NOWHERE = Origin((), ())


@pytest.mark.parametrize("form", ["md", "tex", "html", "csv"])
def test_every_table_says_where_it_comes_from(evidence: Evidence, judged: list[Judged], form: str) -> None:
    text = render_tables([table(evidence, judged, "collapse-20")], form, compare=False)
    for part in ("3 seeds (0, 1, 2)", "18 runs: 12 trained, 6 nan", "commit abc1234", "cpu, 1 thread"):
        assert part in text
    assert "normlab run configs/toy.yaml" in text


def test_csv_has_full_precision(article: Path, evidence: Evidence, judged: list[Judged]) -> None:
    text = render_tables([table(evidence, judged, "collapse-depth", "zh")], "csv", compare=False)
    data = pd.read_csv(io.StringIO(text))
    found = data[(data["row"] == 6) & (data["column"] == "RMSNorm")].iloc[0]
    runs = load(article / "studies" / "depth").runs
    runs = runs[(runs["model.depth"] == 6) & (runs["model.norm"] == "rmsnorm")]
    assert found["mean"] == runs["final_loss"].mean() and found["sd"] == pytest.approx(
        runs["final_loss"].std(), rel=1e-15
    )
    assert found["n"] == 3 and found["published"] == "2.45"


def test_csv_counts_are_whole_and_what_was_not_measured_is_empty(evidence: Evidence, judged: list[Judged]) -> None:
    text = render_tables(article_tables(evidence, judged, "en"), "csv", compare=False)
    data = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
    assert set(data["status"]) == {"measured", "not evaluated", "not measurable here"}
    measured = data["status"] == "measured"
    assert (data.loc[~measured, "measured"] == "").all() and (data.loc[measured, "measured"] != "").all()
    assert (data["measured"] != "–").all()
    for name in ("n", "finite", "nan", "not_taken", "trained", "pending", "warm_n", "nan_first"):
        assert all(value == "" or value.isdigit() for value in data[name]) and any(data[name]), name


def test_csv_of_one_study_says_what_is_missing(article: Path) -> None:
    alone = Evidence.open(article / "studies" / "postln")
    text = render_tables(article_tables(alone, judge_all(alone), "zh"), "csv", compare=False)
    data = pd.read_csv(io.StringIO(text), keep_default_na=False)
    assert set(data["status"]) == {"measured", "not run"} and "未运行" not in set(data["measured"])
    judged_elsewhere = data[data["needs"] != ""]
    assert list(judged_elsewhere["needs"]) == ["lr_wide", "warmup"]
    assert set(judged_elsewhere["verdict"]) == {"not run"} and set(judged_elsewhere["status"]) == {"measured"}


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
