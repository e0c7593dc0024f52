"""The commands that measure time and count parameters: `speed`, `params`."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from normlab.cli.choices import takes
from normlab.cli.options import Json, Plugins, Quiet, Verbose
from normlab.cli.studies import MeasureOverwrite, Measuring, measure_command
from normlab.config.plugins import load_plugins

if TYPE_CHECKING:
    from normlab.studies.params import Shape


def register(app: typer.Typer) -> None:
    """Add the commands of this file to `app`."""
    app.command("speed")(speed)
    app.command("params")(params)


@takes(Measuring)
def speed(
    how: Measuring,
    device: Annotated[str, typer.Option("--device", metavar="DEVICE", help="cpu, cuda or cuda:N.")] = "cpu",
) -> None:
    """Time the norms at the article's shapes, and a training step with each norm, on one thread."""
    from normlab.cli.training import fail
    from normlab.execute.devices import resolve_device
    from normlab.execute.target import Refused

    try:
        found = resolve_device(device)
    except Refused as refused:
        raise fail(str(refused), 2) from None
    from normlab.studies import speed as study

    words = ["normlab", "speed", *(["--quick"] if how.quick else [])]
    words += ["--device", found.name] if found.name != "cpu" else []
    timed = partial(study.measure, device=found.name)
    measure_command("speed", study.QUESTION, timed, how, shlex.join(words), found)


def params(
    width: Annotated[int | None, typer.Option("--width", metavar="D", help="Width; default 4096.")] = None,
    depth: Annotated[int | None, typer.Option("--depth", metavar="N", help="Layers; default 32.")] = None,
    norms_per_layer: Annotated[
        int | None, typer.Option("--norms-per-layer", metavar="N", help="Norms a layer; default 2.")
    ] = None,
    final_norm: Annotated[
        bool | None, typer.Option("--final-norm/--no-final-norm", help="A norm before the head; default none.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option("--preset", metavar="MODEL", help="llama-2-7b, gpt2 or toy instead of the defaults.")
    ] = None,
    plugins: Plugins = (),  # type: ignore[assignment]
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Also write the counts into this results folder.")
    ] = None,
    overwrite: MeasureOverwrite = False,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Count the parameters and reductions of a model's norms, with each norm of the catalogue in turn."""
    from normlab.studies import params as study

    load_plugins(plugins)

    numbers = {"width": width, "depth": depth, "norms_per_layer": norms_per_layer}
    given = {name: value for name, value in numbers.items() if value is not None}
    shape = _shape(preset, given, final_norm)
    words = ["normlab", "params", *(["--preset", preset] if preset is not None else [])]
    words += [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    words += [] if final_norm is None else ["--final-norm" if final_norm else "--no-final-norm"]
    words += [word for plugin in plugins for word in ("--plugins", plugin)]
    if output is None:
        _print_counts(shape, shlex.join(words), json)
        return
    how = Measuring(output, overwrite, False, json, quiet, verbose)
    measure_command("params", study.QUESTION, lambda **_: study.measure(shape), how, shlex.join(words))


def _shape(preset: str | None, given: dict[str, int], final_norm: bool | None) -> Shape:
    """The preset with what was given in its place; the size of the whole model holds for an unchanged preset only."""
    from normlab.studies import params as study

    start = study.preset(preset) if preset is not None else study.ARTICLE
    changes: dict[str, Any] = dict(given)
    if final_norm is not None:
        there = start.final_norm if start.final_norm != "none" else "same"
        changes["final_norm"] = there if final_norm else "none"
    changed = replace(start, **changes)
    return (changed if changed == start else replace(changed, norm=None, total=None)).check()


def _print_counts(shape: Shape, command: str, json: bool) -> None:
    from normlab.analysis.measured_params import tables
    from normlab.analysis.terminal import print_table, say
    from normlab.measures import Measure
    from normlab.store import strict_json
    from normlab.studies import params as study

    settings, values = study.measure(shape)
    if json:
        say(strict_json({"measure": "params", "command": command, "settings": settings, "values": values}), end="")
        return
    made = Measure("params", study.QUESTION, command, False, settings, values, {}, "", 0.0)
    (table,) = tables(made)
    print_table(table)
    say(f"\n{table.notes}")
