"""A sitting of a reproduction: all studies and measures of the article that a folder still lacks, one after another."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from normlab.execute.devices import Device
from normlab.execute.hold import taken, writable
from normlab.execute.journal import (
    check_same,
    check_target,
    clear_reproduction,
    is_reproduction,
    known_hashes,
    read_journal,
    write_journal,
)
from normlab.execute.manifest import now
from normlab.execute.measuring import measure
from normlab.execute.outstanding import (
    Todo,
    distinct,
    expected_seconds,
    find_sources,
    outstanding,
    own_sources,
    past_seconds,
    training_seconds,
)
from normlab.execute.overall import Overall
from normlab.execute.parts import Measuring, Plan, Training
from normlab.execute.signals import Interrupts
from normlab.execute.sweep import Job, Options, cut, run_study, sweep_leftovers


@dataclass
class Tally:
    """How the sitting went: distinct runs planned, parts to do, runs done, ids of failed ones, names of measures."""

    planned: int = 0
    todo: int = 0
    runs: int = 0
    failed_runs: set[str] = field(default_factory=set)
    measures: list[str] = field(default_factory=list)
    failed_measures: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return bool(self.failed_runs or self.failed_measures)


def reproduce(
    plan: Plan, options: Options, device: Device, interrupts: Interrupts, watcher: Overall, timed: bool = True
) -> Tally:
    """Do what of `plan` the folder `options.output` lacks; `timed` calibrates a time estimate first.

    Raise `Refused`, `Stopped`, OSError or `CannotStart`; a failed run or measure is told and counted."""
    folder = options.output
    sources = find_sources(options.reuse)

    def check() -> None:
        check_target(folder, options.resume, options.overwrite)

    with taken(folder, lambda: is_reproduction(folder), check):
        env = device.environment()
        past = past_seconds(plan, folder)
        with writable(folder):
            if options.overwrite:
                clear_reproduction(folder, plan, options.derived)
            old = read_journal(folder)
            if old:
                check_same(folder, old, plan)
            sweep_leftovers(folder)
            todo = outstanding(plan, folder, sources, env)
        tally = Tally(planned=len(distinct(plan)), todo=len(todo))
        if not todo:
            return tally
        sitting = _Sitting(plan, options, device, interrupts, watcher, sources, tally)
        try:
            sitting.open(todo, past, timed)
            with writable(folder):
                write_journal(folder, plan, env, old.get("sessions", []), known_hashes(old))
            with interrupts.deferring():
                sitting.run(todo, env, old)
        finally:
            watcher.close()
    return tally


@dataclass
class _Sitting:
    plan: Plan
    options: Options
    device: Device
    interrupts: Interrupts
    watcher: Overall
    sources: Sequence[Path]
    tally: Tally

    def open(self, todo: Sequence[Todo], past: Mapping[str, float], timed: bool) -> None:
        """Begin to show the progress, then estimate the time: that trains a few steps, and nobody should wait for
        it before a word is said."""
        measures = expected_seconds(todo, past)
        fresh = {one.part.name: one.fresh for one in todo if one.fresh}
        _, workers = cut([run for group in fresh.values() for run in group], self.options.jobs, self.device)
        self.watcher.start(fresh, measures, len(distinct(self.plan)), workers)
        if timed:
            training = training_seconds(todo, self.options.jobs, self.device)
            self.watcher.promise(training, [name for name in measures if name not in past])

    def run(self, todo: Sequence[Todo], env: Mapping[str, Any], old: Mapping[str, Any]) -> None:
        """Do one part after another, and note how it went in the manifest, which was `old`."""
        tally, start = self.tally, time.monotonic()
        session: dict[str, Any] = {"started": now(), "ended": None}
        try:
            for one in todo:
                self.interrupts.check()
                place = f"{self.plan.parts.index(one.part) + 1} of {len(self.plan.parts)}"
                fine = self._measure(one, place) if isinstance(one.part, Measuring) else self._train(one, place)
                if not fine and self.options.fail_fast:
                    break
        finally:
            session |= {"ended": now(), "runs": tally.runs, "failed_runs": len(tally.failed_runs)}
            session |= {"measures": tally.measures, "failed_measures": tally.failed_measures}
            session["seconds"] = round(time.monotonic() - start, 3)
            sessions = [*old.get("sessions", []), session]
            known = known_hashes(old, [one.part.name for one in todo])
            write_journal(self.options.output, self.plan, env, sessions, known)

    def _measure(self, one: Todo, place: str) -> bool:
        assert isinstance(one.part, Measuring)
        self.watcher.turn_to(one.part.name, place, self.options.output)
        fine = measure(one.part, self.options.output, self.interrupts, self.watcher.see)
        (self.tally.measures if fine else self.tally.failed_measures).append(one.part.name)
        return fine

    def _train(self, one: Todo, place: str) -> bool:
        part = one.part
        assert isinstance(part, Training)
        folder = self.options.output / "studies" / part.name
        others = [path for path in own_sources(self.plan, self.options.output) if path != folder]
        self.watcher.turn_to(part.name, place, folder, len(one.fresh), len(one.missing) - len(one.fresh))
        options = replace(
            self.options, output=folder, resume=True, overwrite=False, derived=(), reuse=[*others, *self.sources]
        )
        job = Job(part.study, part.plan, options, self.device, part.command, part.shortened)
        summary = run_study(job, self.interrupts, self.watcher)
        self.tally.runs += summary.done
        self.tally.failed_runs |= {event.id for event in summary.failed}
        return not summary.failed
