"""The ledger of published claims: `normlab/published/article.yaml`, typed and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from normlab.analysis.extract import EXTRACTORS
from normlab.config.source import parse

Cell = tuple[str, str]  # (row, column); empty where the published value has none


class Node(BaseModel):
    """Frozen, no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _matches(cell: Cell, rows: Sequence[str], columns: Sequence[str]) -> bool:
    return (not rows or cell[0] in rows) and (not columns or cell[1] in columns)


class Among(Node):
    """Base of the predicates: which cells it judges (their rows and columns; empty: all that it fits)."""

    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    reason: str = Field(description="why this tolerance, bound or margin")

    def takes(self, cell: Cell) -> bool:
        """Whether the predicate judges the cell."""
        return _matches(cell, self.rows, self.columns)


class ValueIs(Among):
    """Published numbers within a tolerance; cells with a published outcome (nan, ...) are judged by it."""

    kind: Literal["value"]
    tolerance: float = Field(ge=0)
    above: float | None = Field(None, ge=0, description="tolerance upwards, where it differs")
    relative: bool = Field(False, description="the tolerance is a share of the published value")
    log10: bool = Field(False, description="the tolerance is in decades")
    single: bool = Field(True, description="the published value is one run's, so it meets a prediction interval")


class Bound(Among):
    """A number above or below a bound."""

    kind: Literal["bound"]
    at_least: float | None = None
    at_most: float | None = None
    single: bool = False
    each: bool = Field(False, description="said of any run: every seed must hold, no interval is taken")


class Order(Among):
    """Pairs of cells [low, high], each `row|column`: low < high + margin."""

    kind: Literal["order"]
    pairs: tuple[tuple[str, str], ...] = Field(min_length=1)
    margin: float = 0.0


class Monotone(Among):
    """Lists of cells (`row|column`) that only fall."""

    kind: Literal["monotone"]
    falling: tuple[tuple[str, ...], ...] = Field(min_length=1)
    margin: float = 0.0


class Rank(Among):
    """The published order of all cells, by Kendall's tau-b."""

    kind: Literal["rank"]
    at_least: float = Field(gt=0, le=1)


class Fails(Among):
    """Cells whose runs fail to train, in whatever way."""

    kind: Literal["fails"]


Predicate = Annotated[ValueIs | Bound | Order | Monotone | Rank | Fails, Field(discriminator="kind")]


class Measured(Node):
    """Where the measured cells come from: an extractor, and the selector of a cell as base + column's + row's."""

    by: str
    base: dict[str, Any] = {}
    rows: dict[str, dict[str, Any]] | str | None = Field(None, description="a selector a row, or the key the row sets")
    columns: dict[str, dict[str, Any]] = {}
    only_rows: tuple[str, ...] = ()
    only_columns: tuple[str, ...] = Field((), description="cells that this way measures, where there are several ways")

    @model_validator(mode="after")
    def _known(self) -> Measured:
        if self.by not in EXTRACTORS:
            raise ValueError(f"expected one of {', '.join(EXTRACTORS)}, got '{self.by}'")
        return self

    def takes(self, cell: Cell) -> bool:
        """Whether the cell is measured this way."""
        return _matches(cell, self.only_rows, self.only_columns)

    def selector(self, cell: Cell) -> dict[str, Any]:
        """The selector of one cell; `{row}`, `{column}` and its own plain keys are filled into its text."""
        row, column = cell
        picked = {**self.base, **self.columns.get(column, {})}
        if isinstance(self.rows, str):
            picked[self.rows] = row
        elif self.rows:
            picked |= self.rows.get(row, {})
        fill = {**{name: part for name, part in picked.items() if "." not in name}, "row": row, "column": column}
        return {k: v.format(**fill) if isinstance(v, str) and "{" in v else v for k, v in picked.items()}


class Entry(Node):
    """One claim: what is printed, where, in which setting; how ours measures it; the predicate that judges it."""

    id: str
    section: str
    source: str = "the article"
    claim: str
    their_setting: str
    our_setting: str = ""
    published: Any = Field(
        None, description="a value, {column: value}, {row: {column: value}} or a list (rows 0, 1, ...)"
    )
    unit: Literal["", "%"] = Field("", description="%: percentages are printed and judged, the measure holds shares")
    measured: tuple[Measured, ...] = ()
    predicates: tuple[Predicate, ...] = ()
    direction: tuple[Predicate, ...] = Field((), description="what must hold for `direction only`")
    seeds: int = Field(1, ge=1, description="least number of seeds")
    not_run: str | None = Field(None, description="why no study measures it yet")
    not_testable: str | None = Field(None, description="why a toy, or this machine, cannot test it")
    remark: str = ""

    @model_validator(mode="after")
    def _whole(self) -> Entry:
        ways = [bool(self.predicates), self.not_run is not None, self.not_testable is not None]
        if sum(ways) != 1:
            raise ValueError(f"{self.id}: expected predicates, not_run or not_testable, and one of them only")
        if self.predicates and not (self.measured and self.our_setting):
            raise ValueError(f"{self.id}: predicates need `measured` and `our_setting`")
        return self

    @property
    def studies(self) -> tuple[str, ...]:
        """Names of the studies that the claim is measured by."""
        return tuple(dict.fromkeys(name for measured in self.measured for name in _studies(measured)))

    @property
    def study(self) -> str | None:
        """The first of them."""
        return self.studies[0] if self.studies else None

    def way_of(self, cell: Cell) -> Measured | None:
        """How the cell is measured: the first way that takes it; None where none does."""
        return next((measured for measured in self.measured if measured.takes(cell)), None)

    def study_of(self, cell: Cell) -> str:
        """Name of the study that measures the cell; empty where none does."""
        way = self.way_of(cell)
        return str(way.selector(cell).get("study", "")) if way else ""

    def cells(self) -> dict[Cell, float | str]:
        """Published value of each cell."""
        return dict(_cells(self.published))


def _studies(measured: Measured) -> Iterator[str]:
    rows = list(measured.rows.values()) if isinstance(measured.rows, dict) else []
    for selector in (measured.base, *measured.columns.values(), *rows):
        for node in (selector, selector.get("against", {})):
            if "study" in node:
                yield node["study"]


def _cells(published: Any) -> Iterator[tuple[Cell, Any]]:
    if isinstance(published, Mapping):
        for key, value in published.items():
            if isinstance(value, Mapping):
                yield from (((str(key), str(column)), inner) for column, inner in value.items())
            elif isinstance(value, list):
                yield from (((str(i), str(key)), inner) for i, inner in enumerate(value))
            else:
                yield ("", str(key)), value
    elif isinstance(published, list):
        yield from (((str(i), ""), value) for i, value in enumerate(published))
    elif published is not None:
        yield ("", ""), published


class Erratum(Node):
    """Two places where the article contradicts itself (or what a machine can do)."""

    a: str
    b: str
    note: str = ""


class Ledger(Node):
    """All claims in the article's order, and its contradictions."""

    entries: tuple[Entry, ...]
    errata: tuple[Erratum, ...]

    @model_validator(mode="after")
    def _unique(self) -> Ledger:
        ids = [entry.id for entry in self.entries]
        doubled = sorted({name for name in ids if ids.count(name) > 1})
        if doubled:
            raise ValueError(f"ids given twice: {', '.join(doubled)}")
        return self


@cache
def load_ledger(name: str = "article") -> Ledger:
    """The ledger that ships under `normlab/published`."""
    text = (files("normlab.published") / f"{name}.yaml").read_text(encoding="utf-8")
    source = parse(text, f"{name}.yaml")
    source.raise_problems()
    return Ledger.model_validate(source.data)
