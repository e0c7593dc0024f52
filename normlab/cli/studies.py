"""The commands that measure without a sweep, `numerics`, `initial`, `mechanism`, and what all such commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from normlab.cli.choices import takes
from normlab.cli.options import Json, Quiet, Verbose
from normlab.cli.training import fail

if TYPE_CHECKING:
    from normlab.execute.devices import Device
    from normlab.execute.signals import Interrupts

MeasureOutput = Annotated[
    Path | None, typer.Option("-o", "--output", help="The results folder itself; default results/<command>.")
]
MeasureOverwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the results in the folder.")]
Quick = Annotated[bool, typer.Option("--quick", help="A shortened measurement; every table says so.")]
# Called with quick= and say=; gives settings and values.
MeasureFunction = Callable[..., tuple[dict[str, Any], dict[str, Any]]]


@dataclass(frozen=True)
class Measuring:
    """The options of a measuring command; of them `quick` alone changes what is measured."""

    output: MeasureOutput = None
    overwrite: MeasureOverwrite = False
    quick: Quick = False
    json: Json = False
    quiet: Quiet = False
    verbose: Verbose = False


def register(app: typer.Typer) -> None:
    """Add the commands of this file to `app`."""
    app.command("numerics")(numerics)
    app.command("initial")(initial)
    app.command("mechanism")(mechanism)


@takes(Measuring)
def numerics(how: Measuring) -> None:
    """Run the article's seeded experiments on untrained nets, and say which printed numbers come out."""
    from normlab.studies import numerics as study

    measure_command("numerics", study.QUESTION, study.measure, how)


@takes(Measuring)
def initial(how: Measuring) -> None:
    """Measure gradient norms and stream growth by layer at initialisation: Post-LN, Pre-LN, no norm."""
    from normlab.studies import initial as study

    measure_command("initial", study.QUESTION, study.measure, how)


@takes(Measuring)
def mechanism(how: Measuring) -> None:
    """Train the 20-layer nets with and without norm again and watch norms, GELU and gradients."""
    from normlab.studies import mechanism as study

    measure_command("mechanism", study.QUESTION, study.measure, how)


def measure_command(
    name: str,
    question: str,
    measure_fn: MeasureFunction,
    how: Measuring,
    command: str = "",
    device: Device | None = None,
) -> None:
    """Measure, write `measure.json`, tables and figures, print the main table.

    `measure_fn(quick=..., say=...)` returns settings and values; `say` takes a line of progress. `command` is the
    canonical command where options other than `--quick` change what is measured; `device` None: the CPU. Ends with
    `typer.Exit(2)` for a folder that may not be written to, 130 after Ctrl-C (nothing is written then)."""
    from normlab.execute.signals import Stopped, catching

    folder = how.output or Path("results") / name
    _check_folder(folder, name, how.overwrite)
    with catching() as interrupts:
        try:
            files = _measure(folder, name, question, measure_fn, how, command, device, interrupts)
        except Stopped as stopped:
            print(f"\nstopped by {stopped}; nothing was written", file=sys.stderr)
            raise typer.Exit(stopped.code) from None
        except OSError as error:
            what = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
            raise fail(f"results could not be written: {what}", 1) from None
    from normlab.analysis.measured import print_measure

    print_measure(folder, files, json=how.json)


def _check_folder(folder: Path, name: str, overwrite: bool) -> None:
    from normlab.measures import read_measure

    if not folder.exists():
        return
    if not folder.is_dir():
        raise fail(f"{folder} is not a folder", 2)
    if not any(folder.iterdir()):
        return
    try:
        ours = read_measure(folder).name == name
    except ValueError:
        ours = False
    if not ours:
        raise fail(f"{folder} holds files but no results of `normlab {name}`: choose another folder with -o", 2)
    if not overwrite:
        raise fail(f"{folder} already holds results: replace them with --overwrite or choose another with -o", 2)


def _measure(
    folder: Path,
    name: str,
    question: str,
    measure_fn: MeasureFunction,
    how: Measuring,
    command: str,
    device: Device | None,
    interrupts: Interrupts,
) -> list[Path]:
    import time

    import torch

    from normlab.execute.devices import Device
    from normlab.execute.manifest import cpu_name, now
    from normlab.measures import Measure, write_measure

    torch.set_num_threads(1)
    device = device or Device("cpu", cpu_name())
    started, begun = now(), time.monotonic()
    settings, values = measure_fn(quick=how.quick, say=_quiet if how.quiet else _say)
    made = Measure(
        name=name,
        question=question,
        command=command or f"normlab {name}{' --quick' if how.quick else ''}",
        quick=how.quick,
        settings=settings,
        values=values,
        environment=device.environment(),
        started=started,
        seconds=round(time.monotonic() - begun, 1),
    )
    with interrupts.deferring():  # All files of one measurement or none.
        write_measure(folder, made)
        return write_derived(folder)


def write_derived(folder: Path) -> list[Path]:
    """Write the tables and figures of the measure in `folder` again; returns the files."""
    from normlab.analysis.measured import write_measure_figures, write_measure_tables

    return [*write_measure_tables(folder), *write_measure_figures(folder)]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _quiet(line: str) -> None:
    pass
