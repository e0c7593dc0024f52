"""The commands that train: `run`, `sweep-lr`, `collapse`, and `status`."""

from __future__ import annotations

import json as jsonlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from normlab.cli.choices import StudyChoices, takes
from normlab.cli.options import Json, Quiet, Verbose
from normlab.cli.training import Request, train

Config = Annotated[str, typer.Argument(metavar="CONFIG", help="A YAML file, or the name of a shipped config.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Overrides: optim.lr=1e-3,3e-3 model.depth=6")
]


def register(app: typer.Typer) -> None:
    """Add the commands of this file to `app`."""
    app.command("run")(run)
    app.command("sweep-lr")(sweep_lr)
    app.command("collapse")(collapse)
    app.command("status")(status)


@takes(StudyChoices)
def run(
    config: Config,
    overrides: Overrides = None,
    *,
    how: StudyChoices,
) -> None:
    """Train every run of a study and write its tables and figures."""
    train(Request(["run", config, *(overrides or [])], config, overrides or [], how))


@takes(StudyChoices)
def sweep_lr(
    config: Config,
    overrides: Overrides = None,
    *,
    how: StudyChoices,
) -> None:
    """Train a study that varies the learning rate, and say up to which rate each setting trains."""
    train(Request(["sweep-lr", config, *(overrides or [])], config, overrides or [], how, needs_axis="optim.lr"))


@takes(StudyChoices)
def collapse(
    overrides: Overrides = None,
    layers: Annotated[str | None, typer.Option("--layers", metavar="N", help="Depths: 20 or 6,12.")] = None,
    norms: Annotated[str | None, typer.Option("--norms", metavar="NORMS", help="none,layernorm,rmsnorm")] = None,
    lr: Annotated[str | None, typer.Option("--lr", metavar="LR", help="Learning rates: 1e-3 or 1e-3,3e-3.")] = None,
    steps: Annotated[str | None, typer.Option("--steps", metavar="STEPS", help="Training steps.")] = None,
    *,
    how: StudyChoices,
) -> None:
    """Train a deep net without norm, with LayerNorm and with RMSNorm: does it collapse without?"""
    options = {"--layers": layers, "--norms": norms, "--lr": lr, "--steps": steps}
    paths = {"--layers": "model.depth", "--norms": "model.norm", "--lr": "optim.lr", "--steps": "train.steps"}
    given = {name: value for name, value in options.items() if value is not None}
    spelled = [word for name, value in given.items() for word in (name, value)]
    typed = {f"{paths[name]}={value}": f"{name} {value}" for name, value in given.items()}
    changes = [*typed, *(overrides or [])]
    train(Request(["collapse", *spelled, *(overrides or [])], "collapse", changes, how, typed=typed, shorthand=True))


def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A results folder.")],
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Say what a results folder holds and what it lacks, also while it is being written."""
    from normlab.config.errors import ConfigError
    from normlab.execute.journal import is_reproduction
    from normlab.execute.status import read_status, status_lines
    from normlab.execute.whole_status import whole_lines, whole_status
    from normlab.measures import NAME, read_measure

    if (folder / NAME).is_file():
        try:
            measure = read_measure(folder)
        except ValueError as error:
            raise ConfigError([str(error)]) from error
        facts = {"folder": str(folder), "measure": measure.name, "command": measure.command, "started": measure.started}
        print(
            jsonlib.dumps(facts, indent=1) if json else f"{folder}: measured by `{measure.command}`, {measure.started}"
        )
        return
    whole = is_reproduction(folder)
    found = whole_status(folder) if whole else read_status(folder)
    if found is None:
        what = "is not a results folder (no manifest.json in it)" if folder.exists() else "does not exist"
        print(f"normlab: error: {folder} {what}", file=sys.stderr)
        raise typer.Exit(2)
    print(jsonlib.dumps(found, indent=1) if json else "\n".join((whole_lines if whole else status_lines)(found)))
