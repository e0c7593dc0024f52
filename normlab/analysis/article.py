"""The write-up of a results folder: the article's tables and figures, the verdicts, and the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from normlab.analysis.article_formats import FORMATS, render_tables
from normlab.analysis.article_heads import LANGUAGES, LAYOUTS
from normlab.analysis.article_tables import article_tables
from normlab.analysis.evidence import Evidence
from normlab.analysis.figure_overlay import FIGURES, overlay_figures
from normlab.analysis.outputs import write_bytes
from normlab.analysis.report import Report, make_report
from normlab.analysis.report_html import report_html
from normlab.analysis.report_markdown import report_markdown
from normlab.analysis.verdicts import Judged, judge_all, verdicts_json
from normlab.store import strict_json


def write_article(folder: str | Path | Evidence, judged: Sequence[Judged] | None = None) -> list[Path]:
    """Write tables, figures, verdicts.json, REPORT.md and report.html of a reproduction; the same inputs give the same
    bytes. A single results folder gets all of it but the tables, which its own stand for. Returns the files written;
    older ones that no longer apply are removed. `judged`: what `judge_all` gave, where it was asked already.
    ResultsError if the folder is no results folder."""
    evidence = folder if isinstance(folder, Evidence) else Evidence.open(folder)
    judged = judge_all(evidence) if judged is None else judged
    files = dict(_files(evidence, judged, make_report(evidence, judged)))
    for name in _possible(evidence):
        if name not in files:
            (evidence.root / name).unlink(missing_ok=True)
    for name, content in files.items():
        write_bytes(evidence.root / name, content)
    return [evidence.root / name for name in files]


def _files(evidence: Evidence, judged: Sequence[Judged], report: Report) -> Iterator[tuple[str, bytes]]:
    """Name, relative to the results folder, and content of each file."""
    if evidence.whole:
        for name, text in table_files(evidence, judged).items():
            yield f"tables/{name}", text.encode()
    for claim in report.claims:
        for picture in claim.pictures:
            # Those of a measure lie where it drew them.
            if picture.file.startswith("figures/article-"):
                for suffix, content in picture.images.items():
                    yield f"{picture.file}.{suffix}", content
    yield "verdicts.json", strict_json(verdicts_json(judged)).encode()
    yield "REPORT.md", report_markdown(report).encode()
    yield "report.html", report_html(report).encode()


def write_tables(evidence: Evidence, judged: Sequence[Judged]) -> list[Path]:
    """Write the article's tables of a reproduction, and its figures."""
    files = {f"tables/{name}": text.encode() for name, text in table_files(evidence, judged).items()}
    for _, drawn in overlay_figures(evidence, judged):
        files |= {f"figures/{drawn.name}.{suffix}": content for suffix, content in drawn.images.items()}
    for name, content in files.items():
        write_bytes(evidence.root / name, content)
    return [evidence.root / name for name in files]


def table_files(evidence: Evidence, judged: Sequence[Judged]) -> dict[str, str]:
    """Text of every table of the article by file name, in both languages and all formats, the printed values beside
    the measured ones."""
    files = {}
    for lang in LANGUAGES:
        for table in article_tables(evidence, judged, lang):
            for form in FORMATS:
                files[f"article-{table.layout.id}.{lang}.{form}"] = render_tables([table], form, compare=True)
    return files


def _possible(evidence: Evidence) -> Iterator[str]:
    """Files that an earlier write-up may have left."""
    for name in FIGURES:
        yield from (f"figures/article-{name}.{suffix}" for suffix in ("svg", "png"))
    for layout in LAYOUTS if evidence.whole else ():
        yield from (f"tables/article-{layout.id}.{lang}.{form}" for lang in LANGUAGES for form in FORMATS)
