"""The options that all commands share that train: declared once, here."""

from __future__ import annotations

import functools
import inspect
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from normlab.cli import clusters
from normlab.cli.clusters import ExecutorName, Listen, Scheduler, SchedulerFile
from normlab.cli.options import Json, Quiet, Verbose

Seeds = Annotated[str | None, typer.Option("--seeds", metavar="SEEDS", help="Seeds: 0-4 or 0,3,7.")]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="The results folder itself; by default one in results/.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Run what is missing or failed in the results folder.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Delete the results in the folder first.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the runs and a time estimate; write nothing.")]
DeviceName = Annotated[str, typer.Option("--device", metavar="DEVICE", help="auto, cpu, cuda or cuda:N.")]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="Worker processes; default: one a core.")]
FailFast = Annotated[bool, typer.Option("--fail-fast", help="Stop at the first run that crashes.")]
Reuse = Annotated[
    list[Path],
    typer.Option("--reuse", metavar="DIR", help="Take runs that this results folder holds, or those below it."),
]

EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="ENGINE",
        help="auto, fused (C++ step, CPU) or plain (torch's operations); other last digits.",
    ),
]
Tf32 = Annotated[bool, typer.Option("--tf32", help="On a GPU: matrix products in TF32, 10 bits of mantissa.")]

ShardText = Annotated[
    str | None, typer.Option("--shard", metavar="I/N", help="Only every N-th run, from the I-th on: 1/4 to 4/4.")
]


@dataclass(frozen=True)
class Choices:
    """The options of a command that trains; but for `seeds` none of them changes what is asked."""

    seeds: Seeds = None
    output: Output = None
    resume: Resume = False
    overwrite: Overwrite = False
    dry_run: DryRun = False
    device: DeviceName = "auto"
    jobs: Jobs = None
    fail_fast: FailFast = False
    json: Json = False
    quiet: Quiet = False
    verbose: Verbose = False
    reuse: Reuse = ()  # type: ignore[assignment]
    engine: EngineName = "auto"
    tf32: Tf32 = False
    executor: ExecutorName = "local"
    scheduler: Scheduler = None
    scheduler_file: SchedulerFile = None
    listen: Listen = None

    def say(self, text: str) -> None:
        """Tell something beside the answer."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def to_resume(self, command: str) -> str:
        """The command that goes on where `command`, with these options, stopped."""
        words = [command, *([f"-o {shlex.quote(str(self.output))}"] if self.output else [])]
        words += [f"--device {self.device}"] if self.device != "auto" else []
        words += [f"--jobs {self.jobs}"] if self.jobs else []
        words += [f"--reuse {shlex.quote(str(folder))}" for folder in self.reuse]
        words += [f"--engine {self.engine}"] if self.engine != "auto" else []
        words += ["--tf32"] if self.tf32 else []
        words += clusters.to_resume(self)
        return " ".join([*words, "--resume"])


@dataclass(frozen=True)
class StudyChoices(Choices):
    """The options of a command that trains one study."""

    shard: ShardText = None

    def to_resume(self, command: str) -> str:
        """The command that goes on where `command`, with these options, stopped."""
        shard = f" --shard {shlex.quote(self.shard)}" if self.shard else ""
        return super().to_resume(command) + shard


def takes(kind: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of the dataclass `kind` behind its own parameters; it receives them as `how`."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in inspect.signature(function, eval_str=True).parameters.values() if p.name != "how"]
        hints, names = get_type_hints(kind, include_extras=True), [field.name for field in fields(kind)]
        keyword = inspect.Parameter.KEYWORD_ONLY
        shared = [
            inspect.Parameter(field.name, keyword, default=field.default, annotation=hints[field.name])
            for field in fields(kind)
        ]
        parameters = [parameter.replace(kind=keyword) for parameter in own] + shared

        @functools.wraps(function)
        def command(**given: Any) -> None:
            how = kind(**{name: given.pop(name) for name in names})
            function(**given, how=how)

        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorate
