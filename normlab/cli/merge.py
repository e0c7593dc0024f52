"""The command `merge`: results folders of one study, such as those of its shards, become one."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from normlab.cli.answer import write_and_answer
from normlab.cli.options import Json, Quiet, Verbose
from normlab.cli.training import faults_told, stoppable

if TYPE_CHECKING:
    from normlab.execute.merge import Joined

# Labels of missing runs that are told.
SHOWN = 10


def register(app: typer.Typer) -> None:
    """Add the command of this file to `app`."""
    app.command("merge")(merge)


def merge(
    folders: Annotated[list[Path], typer.Argument(metavar="A B...", help="Results folders of one study.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The joined results: a folder that is new or empty.")],
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Join results folders of one study into a new one, and write its tables and figures.

    A run that several folders hold must be the same in all of them; otherwise nothing is written. Runs that none holds
    are told. A run that finished in one folder wins over its failure in another.
    """
    from normlab.execute import merge as joining

    again = shlex.join(["normlab", "merge", *map(str, folders), "-o", str(output)])

    def command(_: object) -> int:
        with faults_told(output, again):
            joined = joining.merge(folders, output)
        _tell(joined, output, quiet)
        return write_and_answer(output, json)

    stoppable(command, None)


def _tell(joined: Joined, output: Path, quiet: bool) -> None:
    from normlab.execute.display import counted

    for text in joined.warnings:
        print(f"warning: {text}", file=sys.stderr)
    missing, planned = joined.missing, len(joined.sources[0].manifest["runs"])
    if not quiet:
        failed = f", {len(joined.failed)} failed" if joined.failed else ""
        there = f"{len(joined.finished)} of {counted(planned, 'run')} from {len(joined.sources)} folders -> {output}"
        print(f"{there}; {len(missing)} missing{failed}", file=sys.stderr)
    if missing:
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        print(f"missing: {', '.join(missing[:SHOWN])}{more}", file=sys.stderr)
