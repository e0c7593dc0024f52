"""The commands that check results: `verify` a folder against itself, `compare` it with another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from normlab.cli.options import Json, Verbose

DIFFERENT = 3


def register(app: typer.Typer) -> None:
    """Add the commands of this file to `app`."""
    app.command("verify")(verify)


def verify(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Results: a study, a measure or a reproduction.")],
    json: Json = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print the findings only.")] = False,
    verbose: Verbose = False,
) -> None:
    """Check that tables, verdicts and records still follow from the runs; exit 3 with a line a difference."""
    from normlab.analysis.terminal import say
    from normlab.analysis.verify import verify as check
    from normlab.store import strict_json

    report = check(folder)
    if json:
        say(strict_json(report.to_json()), end="")
    else:
        for finding in report.findings:
            say(finding.line())
        for line in [] if quiet else report.summary():
            say(line)
    if report.findings:
        raise typer.Exit(DIFFERENT)
