"""The answer of a study on the terminal: as a Rich table on one, as Markdown off it, or as JSON."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pandas as pd

from normlab.analysis import markdown
from normlab.analysis.frames import Results, load
from normlab.analysis.outputs import output_files
from normlab.analysis.provenance import command_text, notes_texts, provenance
from normlab.analysis.tables import Table, has_rates, outcome_table, sensitivity_table, window_table
from normlab.store import strict_json

_ASCII = str.maketrans({"±": "+/-", "–": "-", "≥": ">=", "·": "-"})
_STYLES = {"nan": "red", "failed": "red", "missing": "dim", "diverged": "yellow", "stalled": "yellow"}


def print_answer(path: str | Path | Results, json: bool = False) -> None:
    """Print what a results folder (or results read from one) answers, and where its files are. ResultsError as `load`.

    On a terminal the tables are drawn; off it they are Markdown whose lines are as long as they need to be, since a
    drawn table would be cut to 80 columns and lose digits. With `json` one strict JSON object is printed instead.
    """
    results = path if isinstance(path, Results) else load(path)
    tables = [outcome_table(results)]
    if has_rates(results):
        tables += [window_table(results), sensitivity_table(results)]
    if json:
        say(_json(results, tables), end="")
        return
    say(f"{results.study.name}: {results.study.question}")
    for table in tables:
        say()
        print_table(table)
    say()
    say("; ".join(provenance(results).counts))
    for line in file_lines(output_files(results.root)):
        say(line)


def say(text: str = "", end: str = "\n") -> None:
    """Print; where the output's encoding lacks a character, a plain spelling of it."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_ASCII).encode(encoding, "replace").decode(encoding)
    print(text, end=end)


def print_table(table: Table) -> None:
    """Draw the table on a terminal; write it as Markdown, with its title above, off one. Long ones are cut."""
    _print_page(table.page())
    if table.cut:
        say(table.cut)


def _print_page(table: Table) -> None:
    if not sys.stdout.isatty():
        say(f"{table.title}\n\n{markdown.grid(table.header, table.rows)}", end="")
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table as Drawing
    from rich.text import Text

    drawing = Drawing(title=Text(table.title, "bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(table.header):
        drawing.add_column(Text(name), justify="left" if i == 0 else "right", overflow="fold")
    for head, *cells in table.rows:
        drawing.add_row(Text(head), *(Text(cell, _style(cell)) for cell in cells))
    Console().print(drawing)


def _style(cell: str) -> str:
    return next((style for outcome, style in _STYLES.items() if outcome in cell), "")


def file_lines(files: list[Path]) -> list[str]:
    """A line a folder: `tables: results/postln/tables/ (outcome, loss_by_step; csv, md, tex)`."""
    lines = []
    for folder in dict.fromkeys(file.parent for file in files):
        inside = [file for file in files if file.parent == folder]
        names = ", ".join(dict.fromkeys(file.stem for file in inside))
        suffixes = ", ".join(dict.fromkeys(file.suffix[1:] for file in inside))
        lines.append(f"{folder.name}: {folder}/ ({names}; {suffixes})")
    return lines


def _json(results: Results, tables: list[Table]) -> str:
    keys = {"outcome": "cells", "lr_window": "lr_window", "lr_sensitivity": "lr_sensitivity"}
    answer: dict[str, Any] = {"study": results.study.name, "question": results.study.question}
    answer |= {"command": command_text(results), "seeds": list(results.study.seeds)}
    answer |= {"notes": notes_texts(results)}
    answer |= {keys[table.name]: [plain_row(row) for row in table.data.to_dict("records")] for table in tables}
    return strict_json(answer | {"files": [str(file) for file in output_files(results.root)]})


def plain_row(row: dict[Any, Any]) -> dict[str, Any]:
    """A row of a table's data as JSON values, None for what is missing."""
    values = {str(key): getattr(value, "item", lambda v=value: v)() for key, value in row.items()}
    return {key: None if pd.isna(value) else value for key, value in values.items()}
