"""The commands that read results: `tables`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from normlab.cli.answer import write_and_answer
from normlab.cli.options import Json, Verbose


def register(app: typer.Typer) -> None:
    """Add the commands of this file to `app`."""
    app.command("tables")(tables)


def tables(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A results folder.")],
    json: Json = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Write the files, print nothing.")] = False,
    verbose: Verbose = False,
) -> None:
    """Write the tables and figures of a results folder again, and print its answer."""
    code = write_and_answer(folder, json, silent=quiet)
    if code:
        raise typer.Exit(code)
