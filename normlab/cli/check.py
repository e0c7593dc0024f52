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
    app.command("compare")(compare)


def verify(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Results: a study, a measure or a reproduction.")],
    json: Json = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print what was found only.")] = False,
    verbose: Verbose = False,
) -> None:
    """Check that tables, verdicts and records still follow from the runs; exit 3 if something does not.

    What has one cause is told together, cut after a few differences; -v prints a line for every one, --json all of it.
    """
    from normlab.analysis.terminal import say
    from normlab.analysis.verify import verify as check
    from normlab.analysis.verify_groups import grouped
    from normlab.store import strict_json

    report = check(folder)
    groups = grouped(report.findings, report.labels)
    if json:
        causes = [{"cause": group.cause, "differences": len(group.findings)} for group in groups if group.cause]
        say(strict_json({**report.to_json(), "causes": causes}), end="")
    else:
        for line in (f.line() for f in report.findings) if verbose else (line for g in groups for line in g.lines()):
            say(line)
        for line in [] if quiet else report.summary():
            say(line)
    if report.findings:
        raise typer.Exit(DIFFERENT)


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Results: a study, a measure or a reproduction.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Results of the same kind.")],
    json: Json = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print the counts and what is different only.")] = False,
    verbose: Verbose = False,
) -> None:
    """Compare two results cell by cell: equal, within the seeds' spread, or different (exit 3).

    Runs are compared by how they ended, their losses and the onsets of NaN, not by their curves; measures by their
    values. What each word means is printed below the tables.
    """
    from normlab.analysis.compare import RULE
    from normlab.analysis.compare import compare as check
    from normlab.analysis.terminal import print_table, say
    from normlab.store import strict_json

    found = check(a, b)
    if json:
        say(strict_json(found.to_json()), end="")
    else:
        for number, table in enumerate(found.tables(all_cells=not quiet)):
            say(end="\n" if number else "")
            print_table(table)
        for line in [] if quiet else ["", *found.notes, "", RULE]:
            say(line)
    if found.different:
        raise typer.Exit(DIFFERENT)
