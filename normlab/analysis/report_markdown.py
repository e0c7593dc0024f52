"""The report as Markdown: REPORT.md, with its figures beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from normlab.analysis import markdown
from normlab.analysis.article_formats import to_markdown
from normlab.analysis.report import Claim, Report
from normlab.analysis.report_text import HOW_TO_READ, TITLE

_SHORT = 8  # tables of more cells are folded


def report_markdown(report: Report) -> str:
    """The whole text."""
    return "\n\n".join(_blocks(report)) + "\n"


def _blocks(report: Report) -> Iterator[str]:
    say = markdown.escape
    yield f"# {TITLE}"
    yield say(report.lead)
    if report.banner:
        yield f"> **Shortened run (`--quick`).** {say(report.banner)}"
    yield markdown.grid(["verdict", "claims"], [[name, str(n)] for name, n in report.counts.items()]).rstrip()
    yield "## How to read a verdict"
    yield "\n".join(f"- **{name}**: {say(text)}." for name, text in HOW_TO_READ.items())
    yield "## Verdicts"
    yield verdict_table(report)
    for section in report.sections:
        yield f"## {' '.join(part for part in (section.number, section.title) if part)}"
        for claim in section.claims:
            yield from _claim(claim)
    if report.readings:
        yield "## Readings"
        for table in report.readings:
            yield f"**{say(table.title)}**"
            yield text_grid(table.header, table.rows)
    yield "## Errata: where the article contradicts itself"
    yield text_grid(["here", "there", "note"], [[e.a, e.b, e.note] for e in report.errata])
    yield "## Limitations"
    yield "\n".join(f"- {say(text)}" for text in report.limitations)
    yield "## Environment"
    yield "\n".join(f"- {say(name)}: {markdown.code(text)}" for name, text in report.environment)
    yield text_grid(report.studies.header, report.studies.rows)


def text_grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table of words: all columns to the left, no padding."""
    lines = [f"| {' | '.join(map(markdown.escape, row))} |" for row in (header, *rows)]
    return "\n".join([lines[0], f"|{' --- |' * len(header)}", *lines[1:]])


def verdict_table(report: Report) -> str:
    """One row an entry of the ledger, its id a link to what is said of it."""
    head = ["claim", "verdict", "section", "what is claimed", "published", "measured"]
    lines = [text_grid(head, [])]
    for claim in report.claims:
        entry = claim.judged.entry
        texts = [claim.judged.verdict, entry.section, entry.claim, claim.judged.published, claim.measured]
        lines.append(f"| [{markdown.escape(entry.id)}](#{entry.id}) | {' | '.join(map(markdown.escape, texts))} |")
    return "\n".join(lines)


def _claim(claim: Claim) -> Iterator[str]:
    one, entry = claim.judged, claim.judged.entry
    yield f"### {markdown.escape(claim.id)}"
    yield f"**{one.verdict}**: {markdown.escape(one.reason)}."
    facts = [
        ("claim", entry.claim),
        ("source", f"{entry.source}, section {entry.section}" if entry.section[:1].isdigit() else entry.source),
        ("their setting", entry.their_setting),
        ("our setting", entry.our_setting),
        ("published", one.published),
        ("measured", claim.measured),
        ("rule", "; ".join(claim.rules)),
        ("remark", entry.remark),
    ]
    yield "\n".join(f"- {name}: {markdown.escape(text)}" for name, text in facts if text)
    if claim.table is not None:
        yield to_markdown(claim.table, compare=True).rstrip()
    if claim.cell_rows:
        yield from _cells(claim)
    for picture in claim.pictures:
        yield f"![{markdown.escape(picture.alt)}]({picture.file}.png)"
    if one.command:
        yield f"```sh\n{one.command}\n```"
    if one.run_ids:
        yield from _folded(f"{len(one.run_ids)} runs", [markdown.code(claim.run_ids)])


def _cells(claim: Claim) -> Iterator[str]:
    grid = text_grid(claim.cell_header, claim.cell_rows)
    if claim.table is None and len(claim.cell_rows) <= _SHORT:
        yield grid
    else:
        yield from _folded(f"{len(claim.cell_rows)} cells with intervals", [grid])


def _folded(summary: str, blocks: Sequence[str]) -> Iterator[str]:
    yield f"<details><summary>{summary}</summary>"
    yield from blocks
    yield "</details>"
