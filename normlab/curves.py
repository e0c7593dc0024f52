"""Reads the CSV text of a curve, fast enough for many thousands of runs (no torch, no pandas).

Most of its rows hold a training loss and a gradient norm and then nothing but commas: validation loss and activations
are taken at evaluations only. Both readers here leave the empty cells alone.
"""

from __future__ import annotations

Columns = dict[str, list[float | None]]
_EVERY_STEP = ("step", "train_loss", "grad_norm")  # the columns with a value in (nearly) every row


def parse_curve(text: str) -> Columns:
    """The curve column by column, None for an empty cell; ValueError for anything but a table of numbers."""
    names, lines = _split(text)
    for number, line in enumerate(lines, 2):
        if line.count(",") != len(names) - 1:
            raise ValueError(f"line {number} has {line.count(',') + 1} cells, its header {len(names)}")
    rows = [line.rstrip(",").split(",") for line in lines]
    return dict(zip(names, _columns(rows, len(names)), strict=True))


def parse_evaluations(text: str) -> Columns:
    """The rows of `parse_curve` in which anything but step, training loss and gradient norm has a value.

    The other rows are only counted: that their cells are numbers is for `parse_curve` to find."""
    names, lines = _split(text)
    if tuple(names[:3]) != _EVERY_STEP:
        raise ValueError(f"expected the columns {','.join(_EVERY_STEP)} first, got {','.join(names[:3])}")
    nothing = "," * (len(names) - 3)
    rows = [line.split(",") for line in lines if not line.endswith(nothing)]
    if any(len(row) != len(names) for row in rows):
        raise ValueError("its lines have not all as many cells as its header")
    return dict(zip(names, _columns(rows, len(names)), strict=True))


def _split(text: str) -> tuple[list[str], list[str]]:
    """Names of the columns, and the lines below them, which have as many cells as the header all together."""
    if not text:
        raise ValueError("expected a header and rows, got an empty file")
    head, *lines = text.split("\n")
    if not lines or lines.pop() != "":
        raise ValueError("its last line has no end: half a file?")
    if "\r" in text:
        head, lines = head.rstrip("\r"), [line.rstrip("\r") for line in lines]
    if text.count(",") != head.count(",") * (len(lines) + 1):
        raise ValueError("its lines have not all as many cells as its header")
    return head.split(","), lines


def _columns(rows: list[list[str]], width: int) -> list[list[float | None]]:
    """The cells of each column as numbers; a row may lack empty cells at its end."""
    shortest = min(map(len, rows), default=0)
    long = [(at, row) for at, row in enumerate(rows) if len(row) > len(_EVERY_STEP)]
    columns: list[list[float | None]] = []
    for i in range(width):
        if i < shortest:
            columns.append([float(row[i]) if row[i] else None for row in rows])
        elif i < len(_EVERY_STEP):
            columns.append([float(row[i]) if i < len(row) and row[i] else None for row in rows])
        else:
            column: list[float | None] = [None] * len(rows)
            for at, row in long:
                if i < len(row) and row[i]:
                    column[at] = float(row[i])
            columns.append(column)
    return columns
