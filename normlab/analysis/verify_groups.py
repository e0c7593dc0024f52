"""The findings of a verification, a group a cause: a swap of two runs is one fault, however many cells it moves."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from normlab import measures
from normlab.analysis.verify_findings import Finding

SHOWN = 3  # Findings of a group that a person is shown.
_PLACE = re.compile(r"(?P<study>(?:studies/[^/]+/)?)(?P<inner>.*)")
_RUN = re.compile(r"runs/[^/]+")


@dataclass(frozen=True)
class Group:
    """Findings with one cause; `cause` is empty where they are few enough to speak for themselves."""

    cause: str
    findings: tuple[Finding, ...]

    def lines(self) -> Iterator[str]:
        """The cause, then the first findings and how many more there are."""
        indent = "  " if self.cause else ""
        if self.cause:
            yield self.cause
        shown = self.findings[:SHOWN] if self.cause else self.findings
        yield from (f"{indent}{finding.line()}" for finding in shown)
        if len(self.findings) > len(shown):
            yield f"{indent}and {len(self.findings) - len(shown)} more"


def grouped(findings: Sequence[Finding], labels: Mapping[str, str]) -> list[Group]:
    """The findings by cause: runs first, then other files, then what is derived from a study of which something else
    is wrong. `labels` are those of the runs by their folders."""
    by_place: dict[str, list[Finding]] = defaultdict(list)
    derived = []
    fed = _fed(findings)
    for finding in findings:
        if fed(finding):
            derived.append(finding)
        else:
            by_place[_place(finding)].append(finding)
    groups = list(_swaps(by_place, labels))
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for place, inside in by_place.items():
        alike[_signature(place, inside)].append(place)
    for places in alike.values():
        groups += _of_places(places, by_place, labels)
    order = {id(finding): number for number, finding in enumerate(findings)}
    groups.sort(key=lambda group: order[id(group.findings[0])])
    if derived:
        files = len({finding.file for finding in derived})
        groups.append(_group(f"{_counted(files, 'file')} derived from these differ{'s' * (files == 1)} too", derived))
    return groups


def _group(cause: str, findings: Sequence[Finding]) -> Group:
    return Group(cause if len(findings) > 1 else "", tuple(findings))


def _fed(findings: Sequence[Finding]) -> Callable[[Finding], bool]:
    """Whether a finding is a cell or a line of tables or verdicts that something else follows from that is wrong: runs
    or a measure of the same study, for what belongs to no study any of them."""
    sources = {study for study, inner in map(_split, findings) if inner.startswith(("runs/", measures.NAME))}

    def fed(finding: Finding) -> bool:
        study, inner = _split(finding)
        follows = study in sources if study else bool(sources)
        return follows and bool(finding.where) and inner.startswith(("tables/", "verdicts.json"))

    return fed


def _split(finding: Finding) -> tuple[str, str]:
    """`studies/x/` (empty outside of them) and the rest of the file's name."""
    place = _PLACE.fullmatch(finding.file)
    assert place
    return place["study"], place["inner"]


def _place(finding: Finding) -> str:
    """The folder of a run for all that is in it, else the file."""
    study, inner = _split(finding)
    run = _RUN.match(inner)
    return study + (run[0] if run else inner)


def _swaps(by_place: dict[str, list[Finding]], labels: Mapping[str, str]) -> Iterator[Group]:
    """Take out the runs that lie in each other's places: one has the id, or the hash of a file, that another should."""
    owners = {_key(place, f, f.expected): place for place, fs in by_place.items() for f in fs}
    holds: dict[str, str] = {}
    moved: dict[str, set[str]] = defaultdict(set)
    for place, findings in by_place.items():
        for finding in findings:
            if finding.where in ("id", "sha256") and (owner := owners.get(_key(place, finding, finding.found))):
                holds[place] = owner
                moved[place].add("" if finding.where == "id" else PurePosixPath(finding.file).name)
    for start in holds:
        ring = [start]
        while (following := holds.get(ring[-1])) and following not in ring:
            ring.append(following)
        if following == start and all(place in by_place for place in ring):
            names = _and([_named(place, labels) for place in ring])
            what = "" if "" in moved[start] else f"{', '.join(sorted(moved[start]))} of "
            found = [finding for place in ring for finding in by_place.pop(place)]
            yield Group(f"{what}{names} have changed places", tuple(found))


def _key(place: str, finding: Finding, value: str) -> tuple[str, str, str, str]:
    """Alike for two runs of one study of which one holds the `value` that belongs to the other."""
    return str(PurePosixPath(place).parent), finding.file.removeprefix(place), finding.where, value


def _signature(place: str, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Alike for runs of one study of which the same is wrong; a file that is no run's is like no other."""
    if not _RUN.search(place):
        return (place,)
    what = [(f.file.removeprefix(place), f.where or f.found) for f in findings]
    return (str(PurePosixPath(place).parent), *(f"{file} {where}" for file, where in what))


def _of_places(
    places: Sequence[str], by_place: Mapping[str, Sequence[Finding]], labels: Mapping[str, str]
) -> list[Group]:
    """One group for more than a few runs of which the same is wrong, else one each."""
    if len(places) > SHOWN:
        findings = [finding for place in places for finding in by_place[place]]
        return [_group(f"{len(places)} runs with the same fault", findings)]
    groups = []
    for place in places:
        inside = by_place[place]
        cause = f"{_named(place, labels)}: {len(inside)} differences" if len(inside) > SHOWN else ""
        groups.append(Group(cause, tuple(inside)))
    return groups


def _named(place: str, labels: Mapping[str, str]) -> str:
    return f"{place} ({labels[place]})" if place in labels else place


def _and(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
