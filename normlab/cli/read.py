"""The commands that read results: `tables` and `report`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from normlab.cli.answer import write_and_answer
from normlab.cli.options import Json, Verbose
from normlab.config.errors import ConfigError

if TYPE_CHECKING:
    from normlab.analysis.evidence import Evidence


def register(app: typer.Typer) -> None:
    """Add the commands of this file to `app`."""
    app.command("tables")(tables)
    app.command("report")(report)


def tables(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Results: a study, a measure or a reproduction.")],
    lang: Annotated[
        str | None, typer.Option("--lang", metavar="en|zh", help="Print the article's tables, in this language.")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", metavar="md|csv|tex|html", help="Print the article's tables, as this.")
    ] = None,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Print the article's tables, with what it prints beside ours."),
    ] = False,
    json: Json = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Write the files, print nothing.")] = False,
    verbose: Verbose = False,
) -> None:
    """Write the tables and figures of a results folder again, and print its answer.

    With --lang, --format or --compare nothing is written: the article's own tables that the folder feeds are printed.
    A reproduction always gives the article's tables.
    """
    from normlab.analysis.evidence import Evidence

    evidence = Evidence.open(folder)
    if lang or form or compare or evidence.whole:
        code = _article(evidence, _choice("--lang", lang or "en"), _choice("--format", form or "md"), compare, json,
                        quiet, write=not (lang or form or compare))  # fmt: skip
    elif evidence.names and evidence.measure(evidence.names[0]):
        code = _measure(folder, json, quiet)
    else:
        code = write_and_answer(folder, json, silent=quiet)
    if code:
        raise typer.Exit(code)


def _choice(option: str, value: str) -> str:
    from normlab.analysis.article_formats import FORMATS
    from normlab.analysis.article_heads import LANGUAGES

    known = LANGUAGES if option == "--lang" else FORMATS
    if value not in known:
        raise ConfigError([f"{option}: expected {', '.join(known[:-1])} or {known[-1]}, got '{value}'"])
    return value


def _article(evidence: Evidence, lang: str, form: str, compare: bool, json: bool, quiet: bool, write: bool) -> int:
    """The article's tables: written if asked for, printed unless `quiet`."""
    from normlab.analysis.article import write_tables
    from normlab.analysis.article_formats import render_tables
    from normlab.analysis.article_tables import article_tables, tables_json
    from normlab.analysis.terminal import file_lines, say
    from normlab.analysis.verdicts import judge_all
    from normlab.store import strict_json

    judged = judge_all(evidence)
    found = article_tables(evidence, judged, lang)
    if not found:
        what = f"{evidence.root}: {', '.join(evidence.names)} feeds none of the article's tables"
        raise ConfigError([f"{what}; without --lang, --format and --compare its own are printed"])
    files, code = _written(lambda: write_tables(evidence, judged)) if write else ([], 0)
    if json:
        say(strict_json({"tables": tables_json(found), "files": [str(file) for file in files]}), end="")
    elif not quiet:
        say(render_tables(found, form, compare), end="")
        for line in file_lines(files):
            say(f"\n{line}", end="\n")
    return code


def _measure(folder: Path, json: bool, quiet: bool) -> int:
    from normlab.analysis.measured import print_measure, write_measure_figures, write_measure_tables

    files, code = _written(lambda: [*write_measure_tables(folder), *write_measure_figures(folder)])
    if json or not quiet:
        print_measure(folder, files, json)
    return code


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Results: a study, a measure or a reproduction.")],
    json: Json = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Write the files, print nothing.")] = False,
    verbose: Verbose = False,
) -> None:
    """Judge every claim of the article by a results folder, and write REPORT.md and report.html there.

    Claims that the folder cannot speak to are told as not run. Studies of readings that lie beside a reproduction
    (`readings*`) are told in its report; where none does, a line says so.
    """
    from normlab.analysis.article import write_article
    from normlab.analysis.evidence import Evidence
    from normlab.analysis.readings import folders_beside
    from normlab.analysis.terminal import say
    from normlab.analysis.verdicts import judge_all, verdicts_json
    from normlab.store import strict_json

    evidence = Evidence.open(folder)
    judged = judge_all(evidence)
    answer = verdicts_json(judged)
    files, code = _written(lambda: write_article(evidence, judged))
    if json:
        say(strict_json({**answer, "files": [str(file) for file in files]}), end="")
    elif not quiet:
        say(", ".join(f"{count} {verdict}" for verdict, count in answer["counts"].items()))
        for name in ("report.html", "REPORT.md", "verdicts.json"):
            if (folder / name) in files:
                say(f"{folder / name}")
        if evidence.whole and not folders_beside(folder):
            say(_no_readings(folder))
    if code:
        raise typer.Exit(code)


def _no_readings(folder: Path) -> str:
    """One line: what the report lacks, and the command that makes it."""
    outer = folder.resolve().parent
    if folder.parent.resolve() == outer:  # It is not for `.` and for a link.
        outer = folder.parent
    command = shlex.join(["normlab", "run", "readings", "-o", str(outer / "readings")])
    return f"no study of readings (readings*) lies beside {folder}, so the report tells of none; to make one: {command}"


def _written(write: Callable[[], Sequence[Path]]) -> tuple[list[Path], int]:
    """The files that `write` wrote and 0, or none and 1 where the disk refuses, told in one line."""
    try:
        return list(write()), 0
    except OSError as error:
        sys.stdout.flush()
        what = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
        print(f"normlab: error: the files could not be written: {what}", file=sys.stderr)
        return [], 1
