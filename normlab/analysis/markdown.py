"""Tables as GitHub-flavoured Markdown that survives a parser."""

from __future__ import annotations

import re
from collections.abc import Sequence

from normlab.analysis.provenance import Provenance
from normlab.analysis.table import Table


def escape(text: str) -> str:
    """Plain text as Markdown: nothing in it starts markup or ends a table's cell; line breaks become spaces."""
    text = re.sub(r"([\\`*\[\]<>|~&])", r"\\\1", " ".join(text.split()))
    # Between letters or digits an underscore starts no emphasis, and names such as small_normal stay readable.
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)


def code(text: str) -> str:
    """A code span that may hold backticks."""
    text = " ".join(text.split())
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, padded to read well as plain text: first column to the left, the others to the right."""
    cells = [[escape(cell) for cell in row] for row in (header, *rows)]
    widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(header))]
    lines = [
        _line([c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))])
        for row in cells
    ]
    rule = _line(["-" * w if i == 0 else "-" * (w - 1) + ":" for i, w in enumerate(widths)])
    return "\n".join([lines[0], rule, *lines[1:]]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def document(table: Table, source: Provenance) -> str:
    """The table with its title above and its caption below."""
    title = f"**{escape(source.name)}: {escape(table.title)}.** {escape(source.question)}"
    texts = [table.notes, *(f"{text}." for text in (*source.counts, *source.rules))]
    caption = escape(" ".join(text[:1].upper() + text[1:] for text in texts if text))
    return (
        f"{title}\n\n{grid(table.header, table.rows)}\n{caption}\n\n{escape(source.origin)}; {code(source.command)}\n"
    )
