"""The commands that read results: `tables`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the commands of this file to `app`."""
    app.command("tables")(tables)


def tables(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A results folder.")],
    json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Write the files, print nothing.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="A traceback in full, should there be one.")] = False,
) -> None:
    """Write the tables and figures of a results folder again, and print its answer."""
    from normlab.analysis import write_outputs
    from normlab.analysis.terminal import print_answer

    write_outputs(folder)
    if json or not quiet:
        print_answer(folder, json=json)
