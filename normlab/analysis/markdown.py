"""Tables as GitHub-flavoured Markdown that survives a parser."""

from __future__ import annotations

import re
from collections.abc import Sequence

from normlab.analysis.frames import Results
from normlab.analysis.provenance import (
    command_text,
    commit_text,
    device_text,
    outcomes_text,
    seeds_text,
    thresholds_text,
)
from normlab.analysis.tables import Table


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


def document(table: Table, results: Results) -> str:
    """The table with its title above and its caption below."""
    title = f"**{escape(results.study.name)}: {escape(table.title)}.** {escape(results.study.question)}"
    texts = [table.notes, f"{seeds_text(results)}.", f"{outcomes_text(results)}.", f"{thresholds_text(results)}."]
    caption = escape(" ".join(text[:1].upper() + text[1:] for text in texts if text))
    origin = escape(f"{commit_text(results)}; {device_text(results)}")
    return f"{title}\n\n{grid(table.header, table.rows)}\n{caption}\n\n{origin}; {code(command_text(results))}\n"
