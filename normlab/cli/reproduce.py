"""The command `reproduce`: everything that the article prints, run, judged and written up."""

from __future__ import annotations

import json as jsonlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from normlab.cli.choices import Choices, takes
from normlab.cli.clusters import placed
from normlab.cli.training import faults_told, make_watcher, stoppable

if TYPE_CHECKING:
    from normlab.execute.devices import Device
    from normlab.execute.outstanding import Preview
    from normlab.execute.parts import Plan
    from normlab.execute.reproduce import Tally
    from normlab.execute.signals import Interrupts
    from normlab.execute.sweep import Options

# Not results/article: a checkout holds the committed results there, which are not to be mixed with a user's own.
FOLDER = Path("results/reproduction")
Quick = Annotated[
    bool, typer.Option("--quick", help="A fifteenth of the steps, seed 0, short measures; every table says so.")
]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("reproduce")(reproduce)


@takes(Choices)
def reproduce(quick: Quick = False, *, how: Choices) -> None:
    """Re-run everything that the article prints, judge each figure, and write the report; into results/reproduction.

    Seeds are 0-2, with --quick 0. Stopped or failed, it goes on with --resume.
    """
    seeds = ["--seeds", how.seeds] if how.seeds is not None else []
    again = how.to_resume(" ".join(["normlab reproduce", *(["--quick"] if quick else []), *seeds]))

    def command(interrupts: Interrupts) -> int:
        with faults_told(how.output or FOLDER, again):
            return _reproduce(quick, how, interrupts, again)

    stoppable(command, None if how.dry_run else again)


def _reproduce(quick: bool, how: Choices, interrupts: Interrupts, again: str) -> int:
    from normlab.execute import reproduce as sitting
    from normlab.execute.devices import resolve_device
    from normlab.execute.overall import Overall
    from normlab.execute.parts import make_plan
    from normlab.execute.sweep import Options

    folder, device = how.output or FOLDER, resolve_device(how.device)
    device = device.switched(how.engine, how.tf32, how.say)
    plan = make_plan(quick, how.seeds, device.name)
    device.check_nets(how.engine, [run for part in plan.training for run in part.plan], how.say)
    derived = _derived(folder, plan) if how.overwrite else []
    options = placed(Options(folder, how.resume, how.overwrite, derived, how.jobs, how.fail_fast, how.reuse), how)
    if how.dry_run:
        return _dry_run(plan, options, device, how)
    watcher = Overall(make_watcher(how, folder))
    tally = sitting.reproduce(plan, options, device, interrupts, watcher, timed=not how.quiet)
    code = _write_up(folder, plan, tally, how)
    if tally.failed:
        what = [f"{len(tally.failed_runs)} runs"] if tally.failed_runs else []
        what += tally.failed_measures
        print(f"failed: {', '.join(what)}; try again what is missing with:\n  {again}", file=sys.stderr)
    return 1 if tally.failed else code


def _derived(folder: Path, plan: Plan) -> list[Path]:
    from normlab.analysis.outputs import output_files

    return [path for part in plan.training for path in output_files(folder / "studies" / part.name)]


def _dry_run(plan: Plan, options: Options, device: Device, how: Choices) -> int:
    from normlab.execute.outstanding import preview
    from normlab.execute.overall import time_text

    found = preview(plan, options, device)
    if how.json:
        facts = found.facts(found.seconds(options.jobs, device))
        print(jsonlib.dumps(facts | {"output": str(options.output)}, indent=1))
        return 0
    for line in _plan_lines(plan, found):
        print(line, flush=True)
    if found.fresh:
        how.say("training a few steps to estimate the time")
    print(f"{time_text(found.seconds(options.jobs, device), found.stated)}; nothing written")
    return 0


def _plan_lines(plan: Plan, found: Preview) -> Iterator[str]:
    """What would be done, part by part, and how much that is in all."""
    from normlab.execute.display import counted, duration

    for one in found.todo:
        name = f"{one.part.kind:9} {one.part.name:10}"
        if one.part.kind == "measure":
            yield f"{name} about {duration(found.measures[one.part.name])}"
        else:
            yield f"{name} {counted(len(one.missing), 'run')}, {len(one.fresh)} to train"
    for sentence in plan.shortened:
        yield f"shortened: {sentence}"
    size = f"{counted(found.planned, 'distinct run')}, {found.fresh} to train on {counted(found.workers, 'worker')}"
    yield f"{size}; {counted(len(found.measures), 'measure')}"


def _write_up(folder: Path, plan: Plan, tally: Tally, how: Choices) -> int:
    """Tables, figures, verdicts and report; then the answer. Return 1 if they could not be written."""
    from normlab.analysis.article import write_article
    from normlab.execute.display import counted

    if not tally.todo:
        size = f"{counted(tally.planned, 'run')} and {counted(len(plan.parts) - len(plan.training), 'measure')}"
        how.say(f"all {size} are already in {folder}")
    try:
        # Half a minute that a quick answer is not worth: `normlab tables` writes those of any study later.
        if not plan.quick:
            _write_studies(folder, plan)
        write_article(folder)
        counts = jsonlib.loads((folder / "verdicts.json").read_text(encoding="utf-8"))["counts"]
    except OSError as error:
        what = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
        print(f"normlab: error: tables and report could not be written: {what}", file=sys.stderr)
        return 1
    _answer(folder, plan, tally, counts, how.json)
    return 0


def _write_studies(folder: Path, plan: Plan) -> None:
    """The tables and figures of each study that has a run."""
    from normlab.analysis import write_outputs
    from normlab.store import finished_ids

    for part in plan.training:
        inner = folder / "studies" / part.name
        if finished_ids(inner):
            write_outputs(inner)


def _answer(folder: Path, plan: Plan, tally: Tally, counts: dict[str, int], json: bool) -> None:
    report = folder / "REPORT.md"
    if json:
        facts: dict[str, Any] = {"folder": str(folder), "report": str(report), "verdicts": counts}
        facts |= {"quick": plan.quick, "shortened": plan.shortened, "seeds": list(plan.seeds)}
        facts |= {"runs": tally.runs, "failed_runs": sorted(tally.failed_runs)}
        print(jsonlib.dumps(facts | {"failed_measures": tally.failed_measures}, indent=1))
        return
    for verdict, count in counts.items():
        print(f"{count:4}  {verdict}")
    for sentence in plan.shortened:
        print(f"shortened: {sentence}")
    print(f"report: {report} and {folder / 'report.html'}")
