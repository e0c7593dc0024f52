"""LaTeX and Markdown: any label survives a compiler and a parser."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from normlab.analysis import latex, load, markdown
from normlab.analysis.provenance import provenance
from normlab.analysis.tables import all_tables
from normlab.config.schema import Axis, Point

NASTY = [
    r"a|b_c* `x` ~~d~~",
    r"50% & $x$ #1 ^~\{}",
    '[x] "q" <b>é中</b>',
    "*star* -- ''q'' ?`",
    "![i](u) _i_ & &amp;",
]
# Written out here again: what each command of the escaper stands for.
COMMANDS = {
    r"\textbackslash{}": "\\", r"\textasciicircum{}": "^", r"\textasciitilde{}": "~", r"\textless{}": "<",
    r"\textgreater{}": ">", r"\textbar{}": "|", r"\char34{}": '"', r"\{": "{", r"\}": "}", r"\$": "$", r"\&": "&",
    r"\#": "#", r"\%": "%", r"\_": "_", "{}": "",
}  # fmt: skip


def decode(tex: str) -> str:
    """The text that LaTeX would print; fails on a special character that stands alone."""
    text = ""
    while tex:
        command = next((command for command in COMMANDS if tex.startswith(command)), None)
        if command is None:
            assert tex[0] not in '\\{}$&#%_^~<>|"', tex
            text, tex = text + tex[0], tex[1:]
        else:
            text, tex = text + COMMANDS[command], tex[len(command) :]
    return text


printable = st.text(st.characters(min_codepoint=32, max_codepoint=126))


@given(printable)
def test_latex_of_ascii_prints_the_same_text(text: str) -> None:
    escaped = latex.escape(text)
    assert decode(escaped) == " ".join(text.split())
    assert not re.search(r"--|``|''|,,|\?`|!`", escaped)


@given(st.text())
def test_latex_of_anything_is_ascii_with_balanced_braces_and_dollars(text: str) -> None:
    escaped = latex.escape(text)
    assert escaped.isascii() and escaped.isprintable()
    bare = re.sub(r"\\textbackslash|\\[\\{}$]", "", escaped)
    assert bare.count("{") == bare.count("}") and bare.count("$") % 2 == 0


@pytest.mark.parametrize(
    ("text", "tex"),
    [
        ("2.28 ± 0.03", r"2.28 $\pm$ 0.03"),
        ("nan@312–340", "nan@312--340"),
        ("≥ 2.0", r"$\geq$ 2.0"),
        ("--seeds", "-{}-seeds"),
        ("small_normal", r"small\_normal"),
        ("β é ž", r"$\beta$ \'{e} \v{z}"),
        ("中", "[U+4E2D]"),
        ("a\n\nb", "a b"),
    ],
)
def test_latex_by_example(text: str, tex: str) -> None:
    assert latex.escape(text) == tex


@given(st.lists(printable, min_size=2, max_size=2), st.lists(printable, min_size=2, max_size=2))
def test_markdown_cells_survive_a_parser(header: list[str], row: list[str]) -> None:
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    tokens = parser.parse(markdown.grid(header, [row]))
    cells = [token for token in tokens if token.type == "inline"]
    assert [token.content.strip() for token in cells] == [markdown.escape(t).replace("\\|", "|") for t in header + row]
    shown = ["".join(child.content for child in token.children or []) for token in cells]
    assert all(child.type in ("text", "text_special") for token in cells for child in token.children or [])
    assert shown == [" ".join(text.split()) for text in header + row]


@pytest.mark.parametrize("text", ["plain", "a`b", "``", "`edge`", "a | b"])
def test_code_spans_hold_backticks(text: str) -> None:
    (inline,) = (token for token in MarkdownIt().parse(markdown.code(text)) if token.type == "inline")
    assert [(child.type, child.content) for child in inline.children or []] == [("code_inline", text)]


@pytest.fixture
def nasty(tmp_path: Path) -> Path:
    settings = [{"model.norm": norm} for norm in ("none", "layernorm", "rmsnorm", "dyt")] + [{"model.depth": 3}]
    points = [Point(label=label, settings=s) for label, s in zip(NASTY, settings, strict=True)]
    axes = (Axis(name="variant", points=tuple(points)), synthetic.axis("optim.lr", "1e-3", "1e-2"))
    question = "Which *one* of 5 | 6 & 7_8 $trains$?\n\n% really"
    of = synthetic.study(*axes, rows="variant").model_copy(update={"question": question})
    return synthetic.make_results(tmp_path / "toy", of, lambda run: "trained" if "e-3" in run.label else "nan@7")


def test_whole_markdown_tables_survive_a_parser(nasty: Path) -> None:
    results = load(nasty)
    for table in all_tables(results):
        tokens = MarkdownIt("commonmark").enable("table").parse(markdown.document(table, provenance(results)))
        assert sum(token.type == "tr_open" for token in tokens) == 1 + len(table.rows)
        assert sum(token.type in ("th_open", "td_open") for token in tokens) == len(table.header) * (
            1 + len(table.rows)
        )


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_tables_compile(nasty: Path, tmp_path: Path) -> None:
    results = load(nasty)
    names = []
    for table in all_tables(results):
        (tmp_path / f"{table.name}.tex").write_text(latex.document(table, provenance(results)))
        names.append(table.name)
    packages = "\\usepackage{booktabs}\\usepackage{graphicx}\\begin{document}\n"
    inputs = "".join(f"\\input{{{name}}}\n\\clearpage\n" for name in names)
    document = tmp_path / "all.tex"
    document.write_text(f"\\documentclass{{article}}\n{packages}{inputs}\\end{{document}}\n")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
    assert not re.search(r"Overfull \\hbox.*in alignment", done.stdout)  # a table wider than the line has been shrunk
