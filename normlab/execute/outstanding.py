"""What a reproduction's folder still lacks, what of it lies elsewhere already, and how long the rest will take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normlab.config.plan import PlannedRun
from normlab.execute import estimate
from normlab.execute.devices import Device
from normlab.execute.journal import check_same, check_target, is_reproduction, read_journal
from normlab.execute.measuring import done, last
from normlab.execute.parts import Measuring, Part, Plan, Training
from normlab.execute.reuse import reusable
from normlab.execute.sweep import Options, cut
from normlab.execute.target import Refused, remaining
from normlab.manifests import NAME, looks_ours
from normlab.store import finished_ids

# Structures that the time estimate trains a few steps of: the cheapest and the dearest, as one costs seconds.
MEASURED = 2


@dataclass(frozen=True)
class Todo:
    """What of a part is still to be done: the runs that its folder lacks, and of them those that must be trained (the
    others lie in other results, or an earlier part trains them)."""

    part: Part
    missing: tuple[PlannedRun, ...] = ()
    fresh: tuple[PlannedRun, ...] = ()


def distinct(plan: Plan) -> set[str]:
    """Ids of all runs of the plan; studies share some."""
    return {run.id for part in plan.training for run in part.plan}


def outstanding(plan: Plan, folder: Path | None, sources: Sequence[Path], env: Mapping[str, Any]) -> list[Todo]:
    """The parts that are not complete in `folder` (None: all), with what they lack. Refuse if a study there asks other
    questions; ResultsError if something there cannot be read."""
    found: list[Todo] = []
    known = [*(own_sources(plan, folder) if folder else []), *sources]
    coming: set[tuple[str, str]] = set()
    for part in plan.parts:
        inner = folder / "studies" / part.name if folder else None
        if isinstance(part, Measuring):
            found += [] if inner and done(part, inner) else [Todo(part)]
            continue
        missing = remaining(inner, part.study, part.plan) if inner else part.plan
        if not missing:
            continue
        lie = reusable(missing, known, part.study, env)
        judged = part.study.thresholds.model_dump_json()
        fresh = [run for run in missing if run.id not in lie and (run.id, judged) not in coming]
        coming |= {(run.id, judged) for run in fresh}
        found.append(Todo(part, tuple(missing), tuple(fresh)))
    return found


@dataclass(frozen=True)
class Preview:
    """What a sitting would do: parts, distinct runs planned, runs to train, workers, seconds by measure, and the
    measures whose seconds are only stated."""

    todo: tuple[Todo, ...]
    planned: int
    fresh: int
    workers: int
    measures: Mapping[str, float]
    stated: tuple[str, ...]

    def seconds(self, jobs: int | None, device: Device) -> float:
        """Seconds that all of it will take; trains a few steps to tell, which takes some seconds itself."""
        return training_seconds(self.todo, jobs, device) + sum(self.measures.values())

    def facts(self, seconds: float) -> dict[str, Any]:
        """As plain values, with the `seconds` that it will take."""
        parts = [
            {"name": one.part.name, "kind": one.part.kind, "runs": len(one.missing), "to_train": len(one.fresh)}
            for one in self.todo
        ]
        facts = {"studies": parts, "distinct_runs": self.planned, "to_train": self.fresh, "workers": self.workers}
        return facts | {"seconds": round(seconds, 1), "stated_seconds": list(self.stated)}


def preview(plan: Plan, options: Options, device: Device) -> Preview:
    """What `reproduce` would do with the same arguments; reads, trains nothing, writes nothing."""
    folder = options.output
    # Nothing is written, so results in the folder are no reason to refuse.
    check_target(folder, options.resume, options.overwrite or not options.resume)
    old = read_journal(folder) if options.resume else {}
    if old:
        check_same(folder, old, plan)
    env = device.environment()
    todo = outstanding(plan, folder if options.resume else None, find_sources(options.reuse), env)
    past = past_seconds(plan, folder)
    measures = expected_seconds(todo, past)
    fresh = [run for one in todo for run in one.fresh]
    return Preview(
        todo=tuple(todo),
        planned=len(distinct(plan)),
        fresh=len(fresh),
        workers=cut(fresh, options.jobs, device)[1],
        measures=measures,
        stated=tuple(name for name in measures if name not in past),
    )


def own_sources(plan: Plan, folder: Path) -> list[Path]:
    """Folders of the reproduction's studies that hold runs."""
    places = [folder / "studies" / part.name for part in plan.training]
    return [place for place in places if looks_ours(place) and finished_ids(place)]


def find_sources(given: Sequence[Path]) -> list[Path]:
    """The results folders that `--reuse` names: each itself one, a reproduction, or a folder of results folders."""
    return [source for folder in given for source in _sources_in(folder)]


def _sources_in(folder: Path) -> Iterator[Path]:
    if looks_ours(folder):
        yield folder
        return
    inside = folder / "studies" if is_reproduction(folder) else folder
    found = [path.parent for path in sorted(inside.glob(f"*/{NAME}")) if looks_ours(path.parent)]
    if not found:
        raise Refused(f"--reuse {folder}: expected the results folder of a study, or a folder of such folders")
    yield from found


def training_seconds(todo: Sequence[Todo], jobs: int | None, device: Device) -> float:
    """Seconds that the training will take: a few real steps here, scaled to the runs of each study."""
    cuts = [cut(one.fresh, jobs, device) for one in todo if one.fresh]
    if not cuts:
        return 0.0
    studies = [one.part.study for one in todo if isinstance(one.part, Training)]
    stacks = [stack for some, _ in cuts for stack in some]
    pace = estimate.calibrate(stacks, studies[0].thresholds, device, MEASURED)
    return sum(estimate.schedule(some, workers, pace) for some, workers in cuts)


def past_seconds(plan: Plan, folder: Path) -> dict[str, float]:
    """Seconds that the measures in `folder` took, where they were as short or long as the plan's."""
    found = [(part, last(folder / "studies" / part.name)) for part in plan.parts if isinstance(part, Measuring)]
    return {part.name: old.seconds for part, old in found if old and old.quick == part.quick}


def expected_seconds(todo: Sequence[Todo], past: Mapping[str, float]) -> dict[str, float]:
    """Seconds for each measure: as it took the last time, else as stated."""
    parts = [one.part for one in todo if isinstance(one.part, Measuring)]
    return {part.name: past.get(part.name, part.seconds) for part in parts}
