"""The report of a results folder, apart from how it is written: every claim with its verdict, by section."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from normlab.analysis.article_notes import outcome_counts, place_text, shortened
from normlab.analysis.article_tables import ArticleTable, article_tables
from normlab.analysis.evidence import Evidence
from normlab.analysis.figure_overlay import Drawn, overlay_figures
from normlab.analysis.frames import Results
from normlab.analysis.ledger import Erratum, load_ledger
from normlab.analysis.provenance import listed
from normlab.analysis.readings import beside
from normlab.analysis.report_text import (
    SECTIONS,
    environment_rows,
    interval_text,
    lead,
    limitations,
    measured_text,
    rule_text,
)
from normlab.analysis.samples import printed
from normlab.analysis.table import Table
from normlab.analysis.verdicts import VERDICTS, CellVerdict, Judged

MOST_IDS = 300  # run ids that a page lists for one claim


@dataclass(frozen=True)
class Picture:
    """A figure: `file` without suffix, relative to the results folder, the text that stands for it, its images."""

    file: str
    alt: str
    images: Mapping[str, bytes]


@dataclass(frozen=True)
class Claim:
    """One entry of the ledger as the report shows it."""

    judged: Judged
    measured: str
    rules: tuple[str, ...]
    cell_header: tuple[str, ...]
    cell_rows: tuple[tuple[str, ...], ...]
    cell_verdicts: tuple[str, ...]
    table: ArticleTable | None
    pictures: tuple[Picture, ...]

    @property
    def id(self) -> str:
        """Id in the ledger."""
        return self.judged.entry.id

    @property
    def run_ids(self) -> str:
        """The ids of the runs that it was judged by; of very many the first, and where the others stand."""
        ids = self.judged.run_ids
        rest = len(ids) - MOST_IDS
        return " ".join(ids[:MOST_IDS]) + (f" and {rest} more, all of them in verdicts.json" if rest > 0 else "")


@dataclass(frozen=True)
class Section:
    """Claims of one section of the article."""

    number: str
    title: str
    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class Report:
    """All that a report says."""

    evidence: Evidence
    judged: tuple[Judged, ...]
    lead: str
    counts: dict[str, int]
    sections: tuple[Section, ...]
    readings: tuple[Table, ...]
    errata: tuple[Erratum, ...]
    limitations: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    studies: Table

    @property
    def banner(self) -> str:
        """What `--quick` shortened and what follows from it; empty for a full run."""
        cut = shortened(self.evidence, self.evidence.names)
        undecided = " No trained claim is decided by it." if self.evidence.quick else ""
        return f"{'; '.join(cut)}.{undecided}" if cut else ""

    @property
    def claims(self) -> list[Claim]:
        """All claims, in the ledger's order."""
        by_id = {claim.id: claim for section in self.sections for claim in section.claims}
        return [by_id[one.entry.id] for one in self.judged]


def make_report(evidence: Evidence, judged: Sequence[Judged]) -> Report:
    """The report of a reproduction or of one results folder, figures drawn."""
    drawn = dict(overlay_figures(evidence, judged))
    tables = {table.layout.id: table for table in article_tables(evidence, judged)}
    pictures = _pictures(evidence, judged, drawn)
    claims = [_claim(one, tables.get(one.entry.id), pictures.get(one.entry.id, ())) for one in judged]
    return Report(
        evidence,
        tuple(judged),
        lead(evidence, len(judged)),
        {verdict: sum(one.verdict == verdict for one in judged) for verdict in VERDICTS},
        _sections(claims),
        tuple(beside(evidence.root)) if evidence.whole else (),
        load_ledger().errata,
        tuple(limitations(evidence, judged)),
        tuple(environment_rows(evidence)),
        _studies(evidence),
    )


def _sections(claims: Sequence[Claim]) -> tuple[Section, ...]:
    groups: dict[str, list[Claim]] = {}
    for claim in claims:
        found = re.match(r"(\d+)\.", claim.judged.entry.section)
        groups.setdefault(found[1] if found else "", []).append(claim)
    return tuple(Section(number, SECTIONS.get(number, number), tuple(inner)) for number, inner in groups.items())


def _pictures(
    evidence: Evidence, judged: Sequence[Judged], drawn: Mapping[str, Drawn]
) -> dict[str, tuple[Picture, ...]]:
    """Figures by claim: those with printed points, then those that a measure drew, beside its first claim."""
    found: dict[str, tuple[Picture, ...]] = {
        id: (Picture(f"figures/{one.name}", one.alt, one.images),) for id, one in drawn.items()
    }
    for name in evidence.names:
        measure = evidence.measure(name)
        first = next((one.entry.id for one in judged if one.entry.study == name), None)
        if measure is None or first is None:
            continue
        for path in sorted((evidence.folders[name] / "figures").glob("*.png")):
            at = path.relative_to(evidence.root).with_suffix("").as_posix()
            alt = f"Figure {path.stem} of the study {name}: {measure.question}"
            images = {file.suffix[1:]: file.read_bytes() for file in (path, path.with_suffix(".svg")) if file.is_file()}
            found[first] = (*found.get(first, ()), Picture(at, alt, images))
    return found


def _claim(one: Judged, table: ArticleTable | None, pictures: tuple[Picture, ...]) -> Claim:
    seeds, unit = one.entry.seeds, one.entry.unit
    rules = [rule_text(predicate, seeds, unit) for predicate in one.entry.predicates]
    rules += [f"for the direction: {rule_text(predicate, seeds, unit)}" for predicate in one.entry.direction]
    header, rows = _cells(one.cells, unit)
    verdicts = tuple(cell.verdict for cell in one.cells)
    return Claim(one, measured_text(one), tuple(rules), header, rows, verdicts, table, pictures)


def _cells(cells: Sequence[CellVerdict], unit: str) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """The cells of a claim that has more than one, as a table; empty columns are left out."""
    if len(cells) < 2:
        return (), ()
    columns = {
        "row": [cell.row for cell in cells],
        "column": [cell.column for cell in cells],
        "published": [printed(cell.published, unit) for cell in cells],
        "measured": [cell.measured for cell in cells],
        "interval": [interval_text(cell) for cell in cells],
        "n": [str(cell.n or "") for cell in cells],
        "verdict": [cell.verdict for cell in cells],
        "why": [cell.reason for cell in cells],
    }
    kept = {name: values for name, values in columns.items() if any(values)}
    return tuple(kept), tuple(zip(*kept.values(), strict=True))


def _studies(evidence: Evidence) -> Table:
    """A row a study: kind, seeds and outcomes, commit and device, command."""
    rows = []
    for name in evidence.names:
        found = evidence.results(name) or evidence.measure(name)
        assert found is not None  # its folder is there
        counts = outcome_counts(found, "en") if isinstance(found, Results) else found.question
        seeds = listed(list(map(str, found.study.seeds))) if isinstance(found, Results) else "–"
        rows.append([name, seeds, counts, place_text(found), evidence.command(name)])
    header = ["study", "seeds", "what was done", "made at", "command"]
    return Table("studies", "studies", header, rows, pd.DataFrame(rows, columns=header))
