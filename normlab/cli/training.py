"""What the training commands share: from the command line to the plan, the run, the answer and the exit code."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from normlab.cli.answer import write_and_answer
from normlab.cli.choices import Choices, StudyChoices
from normlab.cli.clusters import device_of, placed
from normlab.cli.sharded import answer_shard

if TYPE_CHECKING:
    from normlab.config.plan import PlannedRun
    from normlab.config.schema import RunSpec, Study
    from normlab.execute.devices import Device
    from normlab.execute.display import Lines
    from normlab.execute.live import LiveTable
    from normlab.execute.shards import Shard
    from normlab.execute.signals import Interrupts
    from normlab.execute.sweep import Options, Summary


@dataclass(frozen=True)
class Request:
    """A training command as it was typed; `command` is its first words, without the options in `how`.

    `typed` are the overrides that were typed as an option of the command, with that spelling; a `shorthand` has its
    shipped config in its name, as `collapse`."""

    command: list[str]
    config: str
    overrides: list[str]
    how: StudyChoices
    needs_axis: str | None = None
    typed: Mapping[str, str] = field(default_factory=dict)
    shorthand: bool = False

    def study(self) -> Study:
        """The study that is asked for; ConfigError in the words that were typed."""
        from normlab.config.errors import ConfigError
        from normlab.config.load import find_config, load_study, shipped_configs

        if self.shorthand:  # Whatever lies in the user's folder under that name.
            path = next(shipped for shipped in shipped_configs() if shipped.stem == self.config)
        else:
            path = find_config(self.config)
        try:
            return load_study(path, self.overrides, self.how.seeds, inspect=inspect_entries)
        except ConfigError as error:
            raise ConfigError([self._as_typed(problem) for problem in error.problems]) from None

    def _as_typed(self, problem: str) -> str:
        for override, option in self.typed.items():
            problem = problem.replace(f"override '{override}'", f"option '{option}'")
            problem = problem.replace(f"set by '{override}'", f"set by '{option}'")
        return problem

    def spelled(self, config: str) -> str:
        """The command with another spelling of the config, without what changes no result."""
        words = [self.command[0], *(config if word == self.config else word for word in self.command[1:])]
        seeds = ["--seeds", self.how.seeds] if self.how.seeds is not None else []
        return shlex.join(["normlab", *words, *seeds])

    def canonical(self) -> str:
        """The command as the manifest keeps it: the same on every machine for a shipped config."""
        from normlab.config.load import find_config, shipped_configs

        if self.shorthand:
            return self.spelled(self.config)
        path = find_config(self.config)
        if path.resolve() in [shipped.resolve() for shipped in shipped_configs()]:
            return self.spelled(f"configs/{path.name}")
        inside = path.resolve().is_relative_to(Path.cwd())
        return self.spelled(str(path.resolve().relative_to(Path.cwd()) if inside else path))

    def to_resume(self) -> str:
        """The command that goes on where this one stopped."""
        return self.how.to_resume(self.spelled(self.config))


def inspect_entries(spec: RunSpec) -> None:
    """Look at the net of a run before it trains; ValueError if it must not. It loads torch."""
    from normlab.train.guard import inspect

    inspect(spec)


def fail(message: str, code: int) -> typer.Exit:
    """Print the message as an error and return the exit to raise."""
    print(f"normlab: error: {message}", file=sys.stderr)
    return typer.Exit(code)


def train(request: Request) -> None:
    """Do what the command asks; ends with `typer.Exit` unless all went well."""
    stoppable(lambda interrupts: _train(request, interrupts), None if request.how.dry_run else request.to_resume())


def stoppable(command: Callable[[Interrupts], int], again: str | None) -> None:
    """Run `command` under our handlers of Ctrl-C and SIGTERM and leave with its exit code, if any; where it is stopped,
    tell how to go on: `again`, if it wrote something."""
    from normlab.execute.signals import Stopped, catching

    with catching() as interrupts:
        try:
            code = command(interrupts)
        except Stopped as stopped:
            go_on = f"; finished runs are kept. Go on with:\n  {again}" if again else ""
            print(f"\nstopped by {stopped}{go_on}", file=sys.stderr)
            code = stopped.code
    if code:
        raise typer.Exit(code)


def _train(request: Request, interrupts: Interrupts) -> int:
    from normlab.config.plan import expand
    from normlab.execute.outstanding import find_sources
    from normlab.execute.shards import parse_shard
    from normlab.execute.sweep import Job, Options, run_study

    study = request.study()
    plan = expand(study)
    folder = request.how.output or Path("results") / study.name
    how = request.how
    derived = _derived(folder) if how.overwrite else []
    with faults_told(folder, request.to_resume()):
        reuse, shard = find_sources(how.reuse), parse_shard(how.shard)
        options = Options(folder, how.resume, how.overwrite, derived, how.jobs, how.fail_fast, reuse, shard=shard)
        options = placed(options, how)
        _check_axis(request, study)
        device = device_of(how).switched(how.engine, how.tf32, how.say)
        device.check_nets(how.engine, plan, how.say)
        if request.how.dry_run:
            return _dry_run(request, study, plan, device, options)
        watcher = make_watcher(how, folder)
        summary = run_study(Job(study, plan, options, device, request.canonical()), interrupts, watcher)
        return _answer(request, folder, summary, shard)


@contextmanager
def faults_told(folder: Path, again: str) -> Iterator[None]:
    """Tell what keeps a command from writing `folder`, and leave with the exit code; `again` is how to go on."""
    from normlab.execute.children import CannotStart
    from normlab.execute.cluster import SchedulerLost
    from normlab.execute.target import Refused
    from normlab.execute.worker import FULL

    try:
        yield
    except Refused as refused:
        raise fail(str(refused), 2) from None
    except CannotStart as cause:
        raise fail(f"a worker could not start:\n{cause}", 1) from None
    except SchedulerLost as lost:
        hint = f"with a scheduler again, or with --executor local instead, go on with:\n  {again}"
        raise fail(f"{lost}; the runs finished before are intact, {hint}", 1) from None
    except OSError as error:
        if error.errno not in FULL:
            raise
        what = f"{error.strerror}: {error.filename or folder}"
        hint = f"make room and go on with:\n  {again}"
        raise fail(f"no room to write results: {what}; the runs finished before are intact, {hint}", 1) from None


def _check_axis(request: Request, study: Study) -> None:
    from normlab.execute.target import Refused

    wanted = request.needs_axis
    if not wanted or any(axis.name == wanted for axis in study.axes):
        return
    setters = [axis.name for axis in study.axes if any(wanted in point.settings for point in axis.points)]
    instead = f" (the variants of '{setters[0]}' set it: take it out of them)" if setters else ""
    raise Refused(
        f"{request.command[0]} needs a study with the axis {wanted}, and '{study.name}' has none{instead}:"
        f" add {wanted}=1e-4,1e-3 to the command, or use `normlab run`"
    )


def _derived(folder: Path) -> list[Path]:
    from normlab.analysis.outputs import output_files, report_files

    return [*output_files(folder), *report_files(folder)]


def make_watcher(how: Choices, folder: Path) -> Lines | LiveTable:
    """The live table on a terminal, plain lines off it or where quiet is asked for."""
    from normlab.execute.display import Lines

    if how.quiet or not sys.stderr.isatty():
        return Lines(folder, how.quiet, how.verbose)
    from rich.console import Console

    from normlab.execute.live import LiveTable

    return LiveTable(folder, Console(stderr=True))


def _answer(request: Request, folder: Path, summary: Summary, shard: Shard | None) -> int:
    from normlab.execute.display import counted

    if not summary.todo and not summary.reused and summary.planned:
        already = "the run is" if summary.planned == 1 else f"all {summary.planned} runs are"
        request.how.say(f"{already} already in {folder}")
    json = request.how.json
    code = answer_shard(folder, shard, json) if shard else write_and_answer(folder, json)
    if summary.failed:
        again = f"try {'it' if len(summary.failed) == 1 else 'them'} again with:\n  {request.to_resume()}"
        print(f"{counted(len(summary.failed), 'run')} failed; {again}", file=sys.stderr)
    return 1 if summary.failed else code


def _dry_run(request: Request, study: Study, plan: Sequence[PlannedRun], device: Device, options: Options) -> int:
    from normlab.config.plugins import load_plugins
    from normlab.execute.display import counted, duration
    from normlab.execute.estimate import estimate
    from normlab.execute.shards import runs_of
    from normlab.execute.sweep import check_options, cut
    from normlab.execute.target import check_folder, remaining
    from normlab.store import finished_ids

    how, folder = request.how, options.output
    check_options(options)
    # Nothing is written, so results in the folder are no reason to refuse.
    check_folder(folder, how.resume, how.overwrite or not how.resume)
    mine = runs_of(options.shard, plan)
    todo = remaining(folder, study, plan, mine) if how.resume else mine
    already = len({run.id for run in mine} & finished_ids(folder))
    todo = _not_reusable(options.reuse, study, todo, device)
    load_plugins(study.plugins)
    stacks, workers = cut(todo, options.jobs, device)
    seconds = estimate(stacks, workers, study.thresholds, device) if todo else 0.0
    if how.json:
        facts: dict[str, Any] = {"runs": [{"id": run.id, "label": run.label} for run in todo], "stacks": len(stacks)}
        facts |= {"workers": workers, "seconds": round(seconds, 1), "output": str(folder), "already": already}
        print(_json(facts))
        return 0
    for run in todo:
        print(f"{run.id}  {run.label}")
    if already:
        print(f"{already} of {counted(len(mine), 'run')} already in {folder}")
    size = f"{counted(len(todo), 'run')} in {counted(len(stacks), 'stack')} on {counted(workers, 'worker')}"
    print(f"{size}, about {duration(seconds)}; nothing written")
    return 0


def _not_reusable(reuse: Sequence[Path], study: Study, todo: Sequence[PlannedRun], device: Device) -> list[PlannedRun]:
    from normlab.execute.reuse import check_sources, reusable

    check_sources(reuse)
    found = reusable(todo, reuse, study, device.environment())
    return [run for run in todo if run.id not in found]


def _json(value: Any) -> str:
    from json import dumps

    return dumps(value, indent=1)
