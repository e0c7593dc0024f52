"""What a check of a results folder finds: one line a finding, and what was looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be: `file` from the verified folder, `where` in it ("" for all of it)."""

    file: str
    where: str
    expected: str
    found: str

    def line(self) -> str:
        """`tables/outcome.csv: row 2 (depth=6), column mean: expected 0.5, found 0.6`."""
        where = f"{self.where}: " if self.where else ""
        text = f"{self.file}: {where}expected {self.expected}, found {self.found}"
        return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


@dataclass
class Report:
    """Everything that one verification found.

    kind      study, measure or reproduction
    findings  what is not as it should be
    notes     what could not be checked, and why
    checked   how many runs, hashes, tables, verdicts were checked
    labels    of the planned runs, by their folders
    """

    root: Path
    kind: str
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    checked: Counter[str] = field(default_factory=Counter)
    labels: dict[str, str] = field(default_factory=dict)

    def add(self, file: str, where: str, expected: object, found: object) -> None:
        """Note a finding; values are shown as JSON would show them."""
        self.findings.append(Finding(file, where, show(expected), show(found)))

    def take(self, inner: Report, folder: str) -> None:
        """Take over what was found in a folder inside of this one."""
        self.findings += [Finding(f"{folder}/{f.file}", f.where, f.expected, f.found) for f in inner.findings]
        self.notes += [f"{folder}: {note}" for note in inner.notes]
        self.checked += inner.checked
        self.labels |= {f"{folder}/{run}": label for run, label in inner.labels.items()}

    def summary(self) -> list[str]:
        """What was checked and what could not be, for a person."""
        counts = [f"{count} {name if count != 1 else name[:-1]}" for name, count in self.checked.items() if count]
        found = len(self.findings)
        fine = "everything is as it should be" if self.checked["hashes"] else "what could be checked is as it should be"
        verdict = f"{found} difference{'s' if found != 1 else ''}" if found else fine
        return [
            *(f"note: {note}" for note in self.notes),
            f"{self.root}: checked {', '.join(counts) or 'nothing'}: {verdict}",
        ]

    def to_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "folder": str(self.root),
            "kind": self.kind,
            "ok": not self.findings,
            "checked": dict(self.checked),
            "notes": self.notes,
            "findings": [vars(finding) for finding in self.findings],
        }


def show(value: object) -> str:
    """A value in a finding: text as it is, cut where it is long; `null` for None."""
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 160 else f"{text[:150]}... ({len(text)} characters)"


def differences(expected: Any, found: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Leaf by leaf where two trees of JSON values differ: path, expected, found (`nothing` where one side has none).

    Entries of a list are named by their id, study or row and column where they have them, else by their number."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        for key in [*expected, *(key for key in found if key not in expected)]:
            inner = f"{at}.{key}" if at else str(key)
            yield from differences(expected.get(key, _NOTHING), found.get(key, _NOTHING), inner)
    elif isinstance(expected, list) and isinstance(found, list):
        a, b = _named(expected), _named(found)
        for key in [*a, *(key for key in b if key not in a)]:
            yield from differences(a.get(key, _NOTHING), b.get(key, _NOTHING), f"{at}[{key}]")
    elif expected != found or isinstance(expected, bool) != isinstance(found, bool):
        yield at, expected, found


class _Nothing:
    def __str__(self) -> str:
        return "nothing"


_NOTHING = _Nothing()


def _named(items: list[Any]) -> dict[str, Any]:
    named = {}
    for number, item in enumerate(items):
        label = str(number)
        if isinstance(item, Mapping):
            parts = [str(item[key]) for key in ("id", "name", "row", "column") if item.get(key) not in (None, "")]
            label = ", ".join(parts) or label
        named[label if label not in named else f"{label} #{number}"] = item
    return named
