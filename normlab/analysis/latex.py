"""Tables as LaTeX (package booktabs), with an escaper of our own: what comes out is ASCII and compiles anywhere."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from normlab.analysis.provenance import Provenance
from normlab.analysis.table import Table

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\char34{}",
}
_UNICODE = {
    "±": r"$\pm$", "–": "--", "—": "---", "−": "$-$", "×": r"$\times$", "·": r"$\cdot$", "≥": r"$\geq$", "≤": r"$\leq$",
    "≈": r"$\approx$", "→": r"$\to$", "∞": r"$\infty$", "…": r"\ldots{}", "“": "``", "”": "''", "‘": "`", "’": "'",
    "ß": r"\ss{}", "ø": r"\o{}", "Ø": r"\O{}", "æ": r"\ae{}", "Æ": r"\AE{}", "œ": r"\oe{}", "ł": r"\l{}", "Ł": r"\L{}",
    "ı": r"\i{}", "°": r"$^\circ$", "µ": r"$\mu$", "²": "$^2$", "³": "$^3$",
}  # fmt: skip
_GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi chi psi omega"
_ACCENTS = {"\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0308": '"', "\u030a": "r",
            "\u030b": "H", "\u030c": "v", "\u0327": "c", "\u0328": "k"}  # fmt: skip
_LIGATURES = re.compile(r"(?<=[-'`,?!])(?=[-'`,])")


def escape(text: str) -> str:
    """Plain text as LaTeX: all specials, no ligatures (`--` stays two hyphens), other characters as commands.

    A character without a command of its own becomes `[U+4E2D]`: unlike the raw one, it compiles with any engine.
    """
    # An empty group between two characters that TeX would join into one.
    pieces = _LIGATURES.split(" ".join(text.split()))
    return "{}".join("".join(map(_character, piece)) for piece in pieces)


def _character(char: str) -> str:
    if char in _SPECIAL:
        return _SPECIAL[char]
    if char.isascii():
        return char if char.isprintable() else f"[U+{ord(char):04X}]"
    if char in _UNICODE:
        return _UNICODE[char]
    name = unicodedata.name(char, "").lower()
    if name.startswith("greek small letter ") and name.split()[-1] in _GREEK.split():
        return rf"$\{name.split()[-1]}$"
    base, *marks = list(unicodedata.normalize("NFD", char))
    if len(marks) == 1 and base.isascii() and base.isalpha() and marks[0] in _ACCENTS:
        return rf"\{_ACCENTS[marks[0]]}{{{base}}}"
    return f"[U+{ord(char):04X}]"


def document(table: Table, source: Provenance) -> str:
    """A table float with a caption above and a note below; needs `booktabs` and `graphicx` (a wide table shrinks to
    the line)."""
    columns = "l" + "r" * (len(table.header) - 1)
    lines = [r"\toprule", _row(table.header), r"\midrule", *map(_row, table.rows), r"\bottomrule"]
    body = "\n".join([rf"\begin{{tabular}}{{{columns}}}", *lines, r"\end{tabular}"])
    return (
        "% needs \\usepackage{booktabs} and \\usepackage{graphicx}\n"
        "\\begin{table}[htbp]\n\\centering\n"
        f"\\caption{{{_caption(table, source)}}}\n"
        f"\\label{{tab:{_label(source.name)}-{_label(table.name)}}}\n"
        "\\sbox0{%\n"
        f"{body}}}\n"
        "\\ifdim\\wd0>\\linewidth\\resizebox{\\linewidth}{!}{\\usebox0}\\else\\usebox0\\fi\n"
        # A paragraph of the float's width: \centering would break its lines like those of a title.
        f"\\par\\medskip\\parbox{{\\linewidth}}{{\\footnotesize {_note(table, source)}}}\n"
        "\\end{table}\n"
    )


def _row(cells: Sequence[str]) -> str:
    # A leading bracket or star would be read as an argument of the line break before it.
    return "{}" * cells[0].startswith(("[", "*")) + " & ".join(map(escape, cells)) + r" \\"


def _label(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "-", name)


def _caption(table: Table, source: Provenance) -> str:
    title = rf"\textbf{{{escape(source.name)}: {escape(table.title)}.}}"
    return f"{title} {_sentences([f'{text}.' for text in source.counts])}"


def _note(table: Table, source: Provenance) -> str:
    """What a reader looks up, in small print under the table: question, rules, origin."""
    texts = [source.question, table.notes, *(f"{text}." for text in source.rules), f"{source.origin};"]
    return rf"{_sentences(texts)} \texttt{{{escape(source.command)}}}"


def _sentences(texts: Sequence[str]) -> str:
    return " ".join(escape(text[:1].upper() + text[1:]) for text in texts if text)
