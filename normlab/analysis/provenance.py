"""What every table and figure says of its origin: seeds, outcomes, thresholds, commit, device, command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pandas as pd

from normlab.analysis.frames import OUTCOMES, Results, finished

_MOST_LISTED = 24  # seeds or rates in a sentence
_SWITCHES = {"fused": "fused step ({})", "tf32": "products in TF32"}


@dataclass(frozen=True)
class Provenance:
    """What is written around a table. `counts` and `rules` are clauses without a full stop (seeds, outcomes; how the
    outcomes were judged), `origin` says where the numbers were made, `command` is the canonical command."""

    name: str
    question: str
    counts: tuple[str, ...]
    rules: tuple[str, ...]
    origin: str
    command: str


def provenance(results: Results) -> Provenance:
    """Of the results of a study."""
    return Provenance(
        name=results.study.name,
        question=results.study.question,
        counts=(seeds_text(results), outcomes_text(results), *shortened_text(results), *notes_texts(results)),
        rules=(thresholds_text(results),),
        origin=f"{commit_text(results)}; {device_text(results)}",
        command=command_text(results),
    )


def seeds_text(results: Results) -> str:
    """`1 seed (0)` or `3 seeds (0, 1, 2)`."""
    seeds = results.study.seeds
    return f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''} ({listed(list(map(str, seeds)))})"


def listed(names: Sequence[str]) -> str:
    """`0, 1, 2`; of very many the first and the last: `0, 1, ... 999`."""
    return ", ".join(names) if len(names) <= _MOST_LISTED else f"{names[0]}, {names[1]}, ... {names[-1]}"


def outcomes_text(results: Results) -> str:
    """`30 runs: 20 trained, 4 stalled, 6 nan`."""
    counts = results.runs["outcome"].value_counts()
    ended = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if outcome in counts)
    return f"{len(results.runs)} run{'s' if len(results.runs) != 1 else ''}: {ended}"


def shortened_text(results: Results) -> list[str]:
    """`shortened: 300 of 3000 training steps, ...` for a study of a quick reproduction; nothing otherwise."""
    cut = results.manifest.get("shortened")
    return [f"shortened: {'; '.join(map(str, cut))}"] if isinstance(cut, list) and cut else []


def notes_texts(results: Results) -> list[str]:
    """`leaks the future: 6 of 12 runs (model.norm=batchnorm)`: what must be said of some runs, a clause a note, with
    the points of as few axes as tell these runs from all others."""
    runs = finished(results.runs)
    notes = dict.fromkeys(note for noted in runs["notes"] for note in noted)
    return [_note_text(results, runs, note) for note in notes]


def _note_text(results: Results, runs: pd.DataFrame, note: str) -> str:
    noted = runs["notes"].map(lambda notes: note in notes).astype(bool)
    if noted.all():
        return f"{note}: all {len(runs)} runs" if len(runs) > 1 else note
    labels = results.labels.loc[runs.index]
    points = {axis: list(dict.fromkeys(labels.loc[noted, axis])) for axis in results.varied}
    for axes in (some for count in range(1, len(points) + 1) for some in combinations(points, count)):
        inside = labels[list(axes)].isin({axis: points[axis] for axis in axes}).all(axis=1)
        if not (inside & ~noted).any():
            at = " and ".join(f"{axis}={listed(points[axis])}" for axis in axes)
            return f"{note}: {noted.sum()} of {len(runs)} runs ({at})"
    return f"{note}: {noted.sum()} of {len(runs)} runs"


def thresholds_text(results: Results) -> str:
    """The rule of the outcomes with the study's numbers (nats)."""
    t = results.study.thresholds
    return (
        f"Outcomes, first that fits: nan, something became non-finite (at the step after @); diverged, mean of the"
        f" last three evaluations above max(initial, best constant guess) + {t.diverged_margin:g} nats; stalled, last"
        f" evaluation above the guess - {t.stalled_margin:g}; unsteady, last evaluation above the best +"
        f" {t.unsteady_margin:g}; otherwise trained"
    )


def commit_text(results: Results) -> str:
    """The commits that the runs were made at; `unknown` outside a repository, `(modified)` for a dirty tree."""
    if results.manifest.get("commit") is None:
        return "commit unknown"
    others = sorted(set(results.runs["commit"].dropna()) - {results.manifest["commit"]})
    modified = " (modified)" if results.manifest.get("dirty") else ""
    return f"commit {results.manifest['commit']}{modified}" + "".join(f" and {other}" for other in others)


def device_text(results: Results) -> str:
    """`cpu, 1 thread, torch 2.13.0`; the model of a GPU instead of the word cuda."""
    there = finished(results.runs)
    parts = [machine_text({key: value for key, value in results.manifest.items() if key not in _SWITCHES})]
    for key, words in _SWITCHES.items():
        # By the runs' own word: a folder may have been gone on with, or merged, under another switch.
        for value, count in there.loc[there[key] != "", key].value_counts(sort=False).items():
            told = words.format(value)
            parts.append(told if count == len(there) else f"{told} in {count} of {len(there)} runs")
    return ", ".join(parts)


def machine_text(environment: Mapping[str, Any]) -> str:
    """The same from the facts that `normlab.execute.manifest.environment` gives."""
    device = str(environment.get("device", "unknown device"))
    if not device.startswith("cpu"):
        device = str(environment.get("device_name") or device)
    threads, torch = environment.get("threads"), _torch(environment.get("torch"))
    parts = [device, f"{threads} thread{'s' if threads != 1 else ''}" if threads else "", torch]
    parts += [words.format(environment[key]) for key, words in _SWITCHES.items() if environment.get(key)]
    return ", ".join(part for part in parts if part)


def _torch(version: object) -> str:
    return f"torch {version}" if version else ""


def command_text(results: Results) -> str:
    """The canonical command that made the results."""
    return str(results.manifest.get("command", "unknown command"))


def origin_text(results: Results) -> str:
    """One line for a figure's foot: seeds, outcomes, commit, device, command."""
    counts = provenance(results).counts
    return " · ".join([*counts, commit_text(results), device_text(results), command_text(results)])
