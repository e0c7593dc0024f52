"""The article's tables as Markdown, CSV, LaTeX and HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pandas as pd

from normlab.analysis import latex, markdown
from normlab.analysis.article_tables import ArticleTable
from normlab.analysis.article_words import MARKS

FORMATS = ("md", "csv", "tex", "html")
_LETTERS = dict(MARKS.values())
_SIGNS = "".join(_LETTERS)
_MARK = re.compile(f"([{_SIGNS}])")
_MARK_OR_RAW = re.compile(f"([{_SIGNS}]|[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]+)")
_ENGINE = {
    "en": "% needs \\usepackage{booktabs} and \\usepackage{graphicx}",
    "zh": "% needs xelatex, \\usepackage{ctex}, \\usepackage{booktabs} and \\usepackage{graphicx}",
}


def render_tables(tables: Sequence[ArticleTable], form: str, compare: bool) -> str:
    """Tables in one of `FORMATS`; in CSV the printed value and the verdict always have a column."""
    if form == "csv":
        data = pd.concat([table.data() for table in tables], ignore_index=True)
        return str(data.to_csv(index=False, lineterminator="\n"))
    if form == "html":
        from normlab.analysis.html import tables_page

        return tables_page(tables, compare)
    write = to_markdown if form == "md" else to_latex
    return "\n".join(write(table, compare) for table in tables)


def heading(table: ArticleTable) -> str:
    """`Section 6.2, table 1: ...`."""
    place = table.layout.place(table.lang)
    return f"{place[:1].upper()}{place[1:]}{'：' if table.lang == 'zh' else ': '}{table.title}"


def to_markdown(table: ArticleTable, compare: bool) -> str:
    """Title, table, caption, origin and commands."""
    caption = markdown.escape(_joined(table, table.caption(compare)))
    commands = "; ".join(map(markdown.code, table.origin.commands))
    origin = "; ".join(part for part in (markdown.escape("; ".join(table.origin.lines)), commands) if part)
    grid = markdown.grid(table.header, table.rows(compare))
    return (
        "\n\n".join(part for part in (f"**{markdown.escape(heading(table))}**", grid.rstrip(), caption, origin) if part)
        + "\n"
    )


def to_latex(table: ArticleTable, compare: bool) -> str:
    """A float with booktabs; English is ASCII and compiles anywhere, Chinese keeps its characters and needs xelatex."""
    columns = "l" + "r" * (len(table.header) - 1)
    rows = [_row(row, table.lang) for row in table.rows(compare)]
    head = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", _row(table.header, table.lang), r"\midrule"]
    body = "\n".join([*head, *rows, r"\bottomrule", r"\end{tabular}"])
    return (
        f"{_ENGINE[table.lang]}\n"
        "\\begin{table}[htbp]\n\\centering\n"
        f"\\caption{{{tex(heading(table), table.lang)}}}\n"
        f"\\label{{tab:article-{table.layout.id}}}\n"
        f"\\sbox0{{%\n{body}}}\n"
        "\\ifdim\\wd0>\\linewidth\\resizebox{\\linewidth}{!}{\\usebox0}\\else\\usebox0\\fi\n"
        f"\\par\\medskip\\parbox{{\\linewidth}}{{\\footnotesize {_latex_note(table, compare)}}}\n"
        "\\end{table}\n"
    )


def _latex_note(table: ArticleTable, compare: bool) -> str:
    origin = "; ".join(table.origin.lines)
    note = tex(_joined(table, [*table.caption(compare), *([f"{origin}."] if origin else [])]), table.lang)
    commands = "; ".join(rf"\texttt{{{latex.escape(command)}}}" for command in table.origin.commands)
    return f"{note} {commands}".strip()


def _row(cells: Sequence[str], lang: str) -> str:
    # A leading bracket or star would be read as an argument of the line break before it.
    return "{}" * cells[0].startswith(("[", "*")) + " & ".join(tex(cell, lang) for cell in cells) + r" \\"


def tex(text: str, lang: str) -> str:
    """As `latex.escape`, with the marks of verdicts as superscript letters; Chinese keeps its characters."""
    pieces = (_MARK if lang == "en" else _MARK_OR_RAW).split(" ".join(text.split()))
    return "".join(_marked(piece) if i % 2 else _spaced(piece) for i, piece in enumerate(pieces))


def _marked(piece: str) -> str:
    return rf"\textsuperscript{{{_LETTERS[piece]}}}" if piece in _LETTERS else piece


def _spaced(piece: str) -> str:
    """Escaped, with the spaces at both ends that the escaper drops."""
    bare = latex.escape(piece)
    if not bare:
        return " " if piece else ""
    return " " * piece.startswith(" ") + bare + " " * piece.endswith(" ")


def _joined(table: ArticleTable, texts: Sequence[str]) -> str:
    return ("" if table.lang == "zh" else " ").join(texts)
