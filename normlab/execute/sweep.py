"""One sitting of a study: take the folder, write the manifest, run what is to be done, note how it went."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from normlab.config.dump import study_yaml
from normlab.config.engine import SWITCHES
from normlab.config.plan import PlannedRun
from normlab.config.schema import Study
from normlab.execute.cluster import Cluster
from normlab.execute.dask_pool import DaskPool
from normlab.execute.devices import Device
from normlab.execute.display import counted
from normlab.execute.events import Event, Failed, Finished
from normlab.execute.hold import taken, writable
from normlab.execute.lease import changing_manifest, remove_stale_locks
from normlab.execute.local import Pool
from normlab.execute.manifest import add_session, cores, differing, now, plan_facts, write_manifest
from normlab.execute.reuse import check_sources, other_code, reusable
from normlab.execute.shards import Shard, check_unstarted, runs_of
from normlab.execute.signals import Interrupts
from normlab.execute.stacks import MAX_LANES, Stack, make_stacks
from normlab.execute.target import Refused, check_folder, clear, remaining
from normlab.execute.worker import TRAINER, Setup
from normlab.manifests import find_manifest, looks_ours
from normlab.store import publish_copy, write_file


@dataclass(frozen=True)
class Options:
    """How to run, none of which changes a result. `jobs` None: a worker a core. `derived` are the tables and figures
    that `overwrite` deletes with the runs. `shard` None: all runs of the plan. `executor` is local, or dask, which runs
    on `cluster`."""

    output: Path
    resume: bool = False
    overwrite: bool = False
    derived: Sequence[Path] = ()
    jobs: int | None = None
    fail_fast: bool = False
    reuse: Sequence[Path] = ()
    trainer: str = TRAINER
    shard: Shard | None = None
    executor: str = "local"
    cluster: Cluster = Cluster()


@dataclass(frozen=True)
class Job:
    """What a sitting is asked to do. `command` is the canonical one; `shortened` says in sentences what a quick
    reproduction cut, and is written into the manifest."""

    study: Study
    plan: Sequence[PlannedRun]
    options: Options
    device: Device
    command: str
    shortened: Sequence[str] = ()

    @property
    def folder(self) -> Path:
        """The results folder."""
        return self.options.output

    def facts(self) -> dict[str, Any]:
        """The part of the manifest that is the same for the same job."""
        cut = {"shortened": list(self.shortened)} if self.shortened else {}
        return plan_facts(self.study, self.plan, self.command) | cut

    def setup(self, env: Mapping[str, Any]) -> Setup:
        """What its workers are told, `env` being the circumstances."""
        return Setup(
            root=self.folder.resolve(),
            thresholds=self.study.thresholds,
            plugins=self.study.plugins,
            device=self.device.name,
            facts=tuple((key, env[key]) for key in ("commit", "dirty", "device_name")),
            trainer=self.options.trainer,
            engine=self.device.engine,
        )


class Watcher(Protocol):
    """Who is told what happens."""

    def begin(self, todo: Sequence[PlannedRun], planned: int, workers: int) -> None: ...

    def see(self, event: Event) -> None: ...

    def warn(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def end(self) -> None: ...


@dataclass
class Summary:
    """How the sitting went: numbers of runs."""

    planned: int = 0
    todo: int = 0
    reused: int = 0
    done: int = 0
    failed: list[Failed] = field(default_factory=list)


class Executor(Protocol):
    """What runs stacks, inside a `with` block."""

    def events(self, stacks: Iterable[Stack]) -> Iterator[Event]: ...


def worker_count(jobs: int | None, device: str, runs: int) -> int:
    """Workers for so many runs: as asked, else one a core (one in all on a GPU), never more than runs."""
    wanted = jobs or (cores() if device == "cpu" else 1)
    return max(1, min(wanted, runs))


def cut(todo: Sequence[PlannedRun], jobs: int | None, device: Device) -> tuple[list[Stack], int]:
    """The stacks for `todo` and the number of workers that will share them."""
    workers = worker_count(jobs, device.name, len(todo))
    stacks = make_stacks(todo, workers, MAX_LANES if device.name == "cpu" else None, device.engine)
    return stacks, min(workers, max(1, len(stacks)))


def run_study(job: Job, interrupts: Interrupts, watcher: Watcher) -> Summary:
    """Run what the job's folder still lacks; raise `Refused`, `Stopped`, OSError or `CannotStart`."""
    folder, options = job.folder, job.options
    check_sources(options.reuse)
    check_options(options)

    def check() -> None:
        # The other shards have begun perhaps; what of this one lies there is looked at later.
        check_folder(folder, options.resume or options.shard is not None, options.overwrite)

    with taken(folder, lambda: looks_ours(folder), check, options.shard):
        return _sitting(job, interrupts, watcher)


def check_options(options: Options) -> None:
    """Refuse options that contradict each other."""
    if options.shard and options.overwrite:
        what = f"--overwrite would delete what the other shards write into {options.output}"
        raise Refused(f"{what}: delete that folder before the shards start, or continue them with --resume")


def _sitting(job: Job, interrupts: Interrupts, watcher: Watcher) -> Summary:
    folder, study, options = job.folder, job.study, job.options
    facts, env, shard = job.facts(), job.device.environment(), options.shard
    mine = runs_of(shard, job.plan)
    with writable(folder), changing_manifest(folder):
        if options.overwrite:
            clear(folder, options.derived)
        todo = remaining(folder, study, job.plan, mine, f"shard {shard}" if shard else "--resume")
        if shard and not options.resume:
            check_unstarted(folder, shard, mine)
        sweep_leftovers(folder, mine if shard else None)
        old = find_manifest(folder) or {}
        if old and not todo:
            env = {key: old[key] for key in (*env, *SWITCHES) if key in old}
        write_manifest(folder, facts, env, old.get("sessions", []))
        write_file(folder / "config.yaml", study_yaml(study))
    if changed := differing(old, env) if old else []:
        watcher.warn(f"the runs in {folder} were made under other circumstances: {', '.join(changed)}")
    if shard:
        watcher.note(f"shard {shard}: {len(mine)} of {counted(len(job.plan), 'run')}")
    reused = reusable(todo, options.reuse, study, env)
    for run in reused.values():
        publish_copy(folder, run)
    if reused and (line := other_code(reused.values(), env["code"])):
        watcher.warn(line)
    if options.reuse:
        sources = sorted(map(str, options.reuse))
        watcher.note(f"{len(reused)} of {counted(len(todo), 'run')} taken from {', '.join(sources)}")
    todo = [run for run in todo if run.id not in reused]
    stacks, workers = cut(todo, options.jobs, job.device)
    summary = Summary(planned=len(mine), todo=len(todo), reused=len(reused))
    session: dict[str, Any] = {"started": now(), "ended": None, "jobs": workers, "reused": len(reused)}
    session |= {"shard": str(shard), "host": socket.gethostname()} if shard else {}
    start = time.monotonic()
    if not todo:
        if reused:
            add_session(folder, facts, env, session | {"ended": now(), "done": 0, "failed": 0})
        return summary
    with interrupts.deferring():
        try:
            with _open_pool(job, env, workers, interrupts, watcher) as pool:
                watcher.begin(todo, len(mine), workers)
                _drive(pool, stacks, options.fail_fast, summary, watcher)
        finally:
            watcher.end()
            seconds = round(time.monotonic() - start, 3)
            session |= {"ended": now(), "done": summary.done, "failed": len(summary.failed), "seconds": seconds}
            add_session(folder, facts, env, session)
    return summary


def _open_pool(
    job: Job, env: Mapping[str, Any], workers: int, interrupts: Interrupts, watcher: Watcher
) -> AbstractContextManager[Executor]:
    if job.options.executor == "dask":
        return DaskPool(job.setup(env), workers, interrupts, job.options.cluster, watcher.warn)
    return Pool(job.setup(env), workers, interrupts)


def _drive(pool: Executor, stacks: Sequence[Stack], fail_fast: bool, summary: Summary, watcher: Watcher) -> None:
    for event in pool.events(stacks):
        watcher.see(event)
        if isinstance(event, Finished):
            summary.done += 1
        elif isinstance(event, Failed):
            summary.failed.append(event)
            if fail_fast:
                return


def sweep_leftovers(folder: Path, mine: Sequence[PlannedRun] | None = None) -> None:
    """Remove what a sitting that was killed had half written. The lease says that nobody else is writing, or nobody
    else these runs: of a shard (`mine` given) only the folders of its own runs are removed."""
    ids = None if mine is None else {run.id for run in mine}
    if ids is None:
        remove_stale_locks(folder)
    for pattern in (".tmp-*", "*/.tmp-*"):
        for path in folder.glob(pattern):
            if ids is None or path.name.removeprefix(".tmp-").rpartition("-")[0] in ids:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
