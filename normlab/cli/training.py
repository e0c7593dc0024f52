"""What the training commands share: from the command line to the plan, the run, the answer and the exit code."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from normlab.config.plan import PlannedRun
    from normlab.config.schema import Study
    from normlab.execute.signals import Interrupts
    from normlab.execute.sweep import Summary, Watcher


@dataclass(frozen=True)
class Request:
    """A training command as it was typed; `command` is its first words, without any option of `_tail`."""

    command: list[str]
    config: str
    overrides: list[str] = field(default_factory=list)
    seeds: str | None = None
    output: Path | None = None
    resume: bool = False
    overwrite: bool = False
    dry_run: bool = False
    device: str = "auto"
    jobs: int | None = None
    fail_fast: bool = False
    json: bool = False
    quiet: bool = False
    verbose: bool = False
    needs_axis: str | None = None

    def canonical(self) -> str:
        """The command that asks the same question, without what changes no result."""
        seeds = ["--seeds", self.seeds] if self.seeds is not None else []
        return shlex.join(["normlab", *self.command, *seeds])

    def to_resume(self) -> str:
        """The command that goes on where this one stopped."""
        words = [self.canonical()]
        words += [f"-o {shlex.quote(str(self.output))}"] if self.output else []
        words += [f"--device {self.device}"] if self.device != "auto" else []
        words += [f"--jobs {self.jobs}"] if self.jobs else []
        return " ".join([*words, "--resume"])


def fail(message: str, code: int) -> typer.Exit:
    """Print the message as an error and return the exit to raise."""
    print(f"normlab: error: {message}", file=sys.stderr)
    return typer.Exit(code)


def train(request: Request) -> None:
    """Do what the command asks; ends with `typer.Exit` unless all went well."""
    from normlab.execute.signals import Stopped, catching

    with catching() as interrupts:
        try:
            code = _train(request, interrupts)
        except Stopped as stopped:
            print(f"\nstopped by {stopped}; finished runs are kept. Go on with:", file=sys.stderr)
            print(f"  {request.to_resume()}", file=sys.stderr)
            code = stopped.code
    if code:
        raise typer.Exit(code)


def _train(request: Request, interrupts: Interrupts) -> int:
    from normlab.config.load import find_config, load_study
    from normlab.config.plan import expand
    from normlab.execute.devices import resolve_device
    from normlab.execute.local import CannotStart
    from normlab.execute.sweep import Options, run_study
    from normlab.execute.target import Refused
    from normlab.execute.worker import FULL

    study = load_study(find_config(request.config), request.overrides, request.seeds)
    plan = expand(study)
    folder = request.output or Path("results") / study.name
    options = Options(folder, request.resume, request.overwrite, request.jobs, request.fail_fast)
    try:
        _check_axis(request, study)
        device = resolve_device(request.device)
        if request.dry_run:
            return _dry_run(request, study, plan, device.name)
        watcher = _watcher(request, folder)
        summary = run_study(study, plan, options, device, request.canonical(), interrupts, watcher)
        _answer(request, folder, summary)
    except Refused as refused:
        raise fail(str(refused), 2) from None
    except CannotStart as cause:
        raise fail(f"a worker could not start:\n{cause}", 1) from None
    except OSError as error:
        if error.errno not in FULL:
            raise
        hint = f"make room and go on with:\n  {request.to_resume()}"
        raise fail(f"no room to write results: {error}; the runs finished before are intact, {hint}", 1) from None
    return 1 if summary.failed else 0


def _check_axis(request: Request, study: Study) -> None:
    from normlab.execute.target import Refused

    wanted = request.needs_axis
    if wanted and not any(wanted in point.settings for axis in study.axes for point in axis.points):
        raise Refused(
            f"{request.command[0]} needs a study with the axis {wanted}, and '{study.name}' has none:"
            f" add {wanted}=1e-4,1e-3 to the command, or use `normlab run`"
        )


def _watcher(request: Request, folder: Path) -> Watcher:
    from normlab.execute.display import Lines

    if request.quiet or not sys.stderr.isatty():
        return Lines(folder, request.quiet, request.verbose)
    from rich.console import Console

    from normlab.execute.live import LiveTable

    return LiveTable(folder, Console(stderr=True))


def _answer(request: Request, folder: Path, summary: Summary) -> None:
    from normlab.analysis import write_outputs
    from normlab.analysis.terminal import print_answer

    if not request.quiet and not summary.todo:
        print(f"all {summary.planned} runs are already in {folder}", file=sys.stderr)
    write_outputs(folder)
    print_answer(folder, json=request.json)
    if summary.failed:
        resume = f"{len(summary.failed)} of {summary.planned} runs failed; try them again with:\n  {request.to_resume()}"
        print(resume, file=sys.stderr)


def _dry_run(request: Request, study: Study, plan: Sequence[PlannedRun], device: str) -> int:
    from normlab.config.plugins import load_plugins
    from normlab.execute.display import duration
    from normlab.execute.estimate import estimate
    from normlab.execute.sweep import cut
    from normlab.execute.target import check_folder, remaining

    folder = request.output or Path("results") / study.name
    check_folder(folder, request.resume, request.overwrite)
    todo = remaining(folder, study, plan) if request.resume else list(plan)
    load_plugins(study.plugins)
    stacks, workers = cut(todo, request.jobs, device)
    seconds = estimate(stacks, workers, study.thresholds, device) if todo else 0.0
    if request.json:
        facts: dict[str, Any] = {"runs": [{"id": run.id, "label": run.label} for run in todo], "stacks": len(stacks)}
        print(_json({**facts, "workers": workers, "seconds": round(seconds, 1), "output": str(folder)}))
        return 0
    for run in todo:
        print(f"{run.id}  {run.label}")
    print(f"{len(todo)} runs in {len(stacks)} stacks on {workers} workers, about {duration(seconds)}; nothing written")
    return 0


def _json(value: Any) -> str:
    from json import dumps

    return dumps(value, indent=1)
