"""The commands that train: `run`, `sweep-lr`, `collapse`, and `status`."""

from __future__ import annotations

import json as jsonlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from normlab.cli.options import Json, Quiet, Verbose
from normlab.cli.training import Choices, Request, train

Config = Annotated[str, typer.Argument(metavar="CONFIG", help="A YAML file, or the name of a shipped config.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Overrides: optim.lr=1e-3,3e-3 model.depth=6")
]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="The results folder itself; default results/<study>.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Run what is missing or failed in the results folder.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Delete the results in the folder first.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the runs and a time estimate; write nothing.")]
Seeds = Annotated[str | None, typer.Option("--seeds", metavar="SEEDS", help="Seeds: 0-4 or 0,3,7.")]
DeviceName = Annotated[str, typer.Option("--device", metavar="DEVICE", help="auto, cpu, cuda or cuda:N.")]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="Worker processes; default: one a core.")]
FailFast = Annotated[bool, typer.Option("--fail-fast", help="Stop at the first run that crashes.")]
Reuse = Annotated[
    list[Path] | None, typer.Option("--reuse", metavar="DIR", help="Take runs that this results folder holds already.")
]


def register(app: typer.Typer) -> None:
    """Add the commands of this file to `app`."""
    app.command("run")(run)
    app.command("sweep-lr")(sweep_lr)
    app.command("collapse")(collapse)
    app.command("status")(status)


def run(
    config: Config,
    overrides: Overrides = None,
    output: Output = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
    seeds: Seeds = None,
    device: DeviceName = "auto",
    jobs: Jobs = None,
    fail_fast: FailFast = False,
    reuse: Reuse = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train every run of a study and write its tables and figures."""
    how = Choices(seeds, output, resume, overwrite, dry_run, device, jobs, fail_fast, json, quiet, verbose, reuse or [])
    train(Request(["run", config, *(overrides or [])], config, overrides or [], how))


def sweep_lr(
    config: Config,
    overrides: Overrides = None,
    output: Output = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
    seeds: Seeds = None,
    device: DeviceName = "auto",
    jobs: Jobs = None,
    fail_fast: FailFast = False,
    reuse: Reuse = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train a study that varies the learning rate, and say up to which rate each setting trains."""
    how = Choices(seeds, output, resume, overwrite, dry_run, device, jobs, fail_fast, json, quiet, verbose, reuse or [])
    train(Request(["sweep-lr", config, *(overrides or [])], config, overrides or [], how, needs_axis="optim.lr"))


def collapse(
    overrides: Overrides = None,
    layers: Annotated[str | None, typer.Option("--layers", metavar="N", help="Depths: 20 or 6,12.")] = None,
    norms: Annotated[str | None, typer.Option("--norms", metavar="NORMS", help="none,layernorm,rmsnorm")] = None,
    lr: Annotated[str | None, typer.Option("--lr", metavar="LR", help="Learning rates: 1e-3 or 1e-3,3e-3.")] = None,
    steps: Annotated[str | None, typer.Option("--steps", metavar="STEPS", help="Training steps.")] = None,
    output: Output = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
    seeds: Seeds = None,
    device: DeviceName = "auto",
    jobs: Jobs = None,
    fail_fast: FailFast = False,
    reuse: Reuse = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train a deep net without norm, with LayerNorm and with RMSNorm: does it collapse without?"""
    options = {"--layers": layers, "--norms": norms, "--lr": lr, "--steps": steps}
    paths = {"--layers": "model.depth", "--norms": "model.norm", "--lr": "optim.lr", "--steps": "train.steps"}
    given = {name: value for name, value in options.items() if value is not None}
    spelled = [word for name, value in given.items() for word in (name, value)]
    typed = {f"{paths[name]}={value}": f"{name} {value}" for name, value in given.items()}
    changes = [*typed, *(overrides or [])]
    how = Choices(seeds, output, resume, overwrite, dry_run, device, jobs, fail_fast, json, quiet, verbose, reuse or [])
    train(Request(["collapse", *spelled, *(overrides or [])], "collapse", changes, how, typed=typed, shorthand=True))


def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A results folder.")],
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Say what a results folder holds and what it lacks, also while it is being written."""
    from normlab.execute.status import read_status, status_lines

    found = read_status(folder)
    if found is None:
        print(f"normlab: error: {folder} is not a results folder (no manifest.json in it)", file=sys.stderr)
        raise typer.Exit(2)
    print(jsonlib.dumps(found, indent=1) if json else "\n".join(status_lines(found)))
