"""Tables and figures of measures: which function reads which, and how they are written into the measure's folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from normlab.analysis import latex, markdown
from normlab.analysis.outputs import write_bytes
from normlab.analysis.provenance import Provenance, machine_text
from normlab.analysis.table import Table
from normlab.measures import Measure, read_measure

Figures = Iterator[tuple[str, dict[str, bytes]]]

# The module that reads a measure, by the measure's name: `tables(measure)`, the main one first.
TABLES = {
    "numerics": "measured_numerics",
    "initial": "measured_initial",
    "mechanism": "measured_mechanism",
    "speed": "measured_speed",
    "params": "measured_params",
}
# The module that draws it, where a figure helps: `draw_all(measure, provenance)` gives name and images by suffix.
FIGURES = {"initial": "figure_initial", "mechanism": "figure_mechanism"}


def measure_tables(measure: Measure) -> list[Table]:
    """The tables of a measure, the one that answers its question first; ValueError for a measure of another name."""
    if measure.name not in TABLES:
        raise ValueError(f"expected a measure that is one of {', '.join(TABLES)}, got '{measure.name}'")
    tables: Callable[[Measure], list[Table]] = _module(TABLES[measure.name]).tables
    return tables(measure)


def measure_figures(measure: Measure) -> Figures:
    """Name and images (by suffix, svg and png) of each figure of a measure; most have none."""
    if measure.name in FIGURES:
        from normlab.analysis.canvas import styled

        with styled():
            yield from _module(FIGURES[measure.name]).draw_all(measure, measure_provenance(measure))


def _module(name: str) -> Any:
    return import_module(f"normlab.analysis.{name}")


def measure_provenance(measure: Measure) -> Provenance:
    """What is written around a measure's tables. Its settings may hold `seeds`, `rules` (definitions, clauses without
    a full stop) and `shortened` (what `--quick` left out)."""
    settings = measure.settings
    seeds = settings.get("seeds") or []
    listed = ", ".join(map(str, seeds))
    counts = [f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''} ({listed})"] if seeds else []
    if measure.quick:
        counts.append(f"shortened by --quick: {'; '.join(settings.get('shortened') or ['nothing to shorten'])}")
    commit, modified = measure.environment.get("commit"), " (modified)" if measure.environment.get("dirty") else ""
    origin = f"commit {commit}{modified}" if commit else "commit unknown"
    return Provenance(
        name=measure.name,
        question=measure.question,
        counts=tuple(counts),
        rules=tuple(settings.get("rules") or ()),
        origin=f"{origin}; {machine_text(measure.environment)}",
        command=measure.command,
    )


def table_texts(table: Table, source: Provenance) -> dict[str, str]:
    """The table by suffix: csv, md, tex. In the CSV, origin stands in columns, the same in every row."""
    extra = {"origin": source.origin, "command": source.command}
    data = table.data.assign(**{key: text for key, text in extra.items() if key not in table.data})
    return {
        "csv": data.to_csv(index=False, lineterminator="\n"),
        "md": markdown.document(table, source),
        "tex": latex.document(table, source),
    }


def write_measure_tables(folder: Path) -> list[Path]:
    """Write `tables/*.{csv,md,tex}` of the measure in `folder`, each by one rename; the same measure gives the same
    bytes. Returns the files. ValueError if there is no measure."""
    measure = read_measure(folder)
    source = measure_provenance(measure)
    files = []
    for table in measure_tables(measure):
        for suffix, text in table_texts(table, source).items():
            files.append(folder / "tables" / f"{table.name}.{suffix}")
            write_bytes(files[-1], text.encode())
    return files


def write_measure_figures(folder: Path) -> list[Path]:
    """The same for `figures/*.{svg,png}`."""
    files = []
    for name, images in measure_figures(read_measure(folder)):
        for suffix, content in images.items():
            files.append(folder / "figures" / f"{name}.{suffix}")
            write_bytes(files[-1], content)
    return files


def print_measure(folder: Path, files: list[Path], json: bool = False) -> None:
    """Print the measure's main table and where its files are; with `json` every table, as one strict JSON object."""
    from normlab.analysis.terminal import file_lines, plain_row, print_table, say
    from normlab.store import strict_json

    measure = read_measure(folder)
    tables = measure_tables(measure)
    if json:
        answer: dict[str, Any] = {"measure": measure.name, "question": measure.question, "command": measure.command}
        answer["tables"] = {table.name: [plain_row(row) for row in table.data.to_dict("records")] for table in tables}
        say(strict_json(answer | {"files": [str(file) for file in files]}), end="")
        return
    say(f"{measure.name}: {measure.question}\n")
    print_table(tables[0])
    counts = measure_provenance(measure).counts
    say(f"\n{'; '.join([*counts, f'{measure.seconds:.0f} s'])}")
    for line in file_lines(files):
        say(line)
