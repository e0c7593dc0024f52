"""The options that say where stacks are trained: on this machine's cores, or on the workers of a dask cluster."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from normlab.cli.choices import Choices
    from normlab.execute.devices import Device
    from normlab.execute.sweep import Options

EXECUTORS = ("local", "dask")

ExecutorName = Annotated[
    str,
    typer.Option(
        "--executor",
        metavar="local|dask",
        help="dask: on a dask cluster, one of this machine by default (needs normlab[cluster]).",
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="With dask: the scheduler to use, tcp://HOST:PORT."
        " Its workers need normlab, and the study's plugins at the same paths.",
    ),
]
SchedulerFile = Annotated[
    Path | None, typer.Option("--scheduler-file", metavar="FILE", help="With dask: the file that names the scheduler.")
]
Listen = Annotated[
    str | None,
    typer.Option(
        "--listen",
        metavar="ADDRESS[:PORT]",
        help="With dask's own cluster: let workers of other machines join at this address, not this machine's only."
        " Whoever reaches the port can run code as you.",
    ),
]


def to_resume(how: Choices) -> list[str]:
    """The words of these options in the command that goes on."""
    words = [f"--executor {how.executor}"] if how.executor != "local" else []
    words += [f"--scheduler {shlex.quote(how.scheduler)}"] if how.scheduler else []
    words += [f"--scheduler-file {shlex.quote(str(how.scheduler_file))}"] if how.scheduler_file else []
    return words + ([f"--listen {shlex.quote(how.listen)}"] if how.listen else [])


def placed(options: Options, how: Choices) -> Options:
    """`options` with the executor that was asked for and the number of workers that stacks are cut for; `Refused` if
    the options contradict each other, dask is not installed or the scheduler cannot be reached."""
    from normlab.execute.cluster import LOOPBACK, Cluster, expected_workers
    from normlab.execute.target import Refused

    if how.executor not in EXECUTORS:
        raise Refused(f"--executor: expected local or dask, got '{how.executor}'")
    values = {"--scheduler": how.scheduler, "--scheduler-file": how.scheduler_file, "--listen": how.listen}
    given = [name for name, value in values.items() if value is not None]
    if how.executor == "local":
        if given:
            raise Refused(f"{given[0]} needs --executor dask")
        return options
    cluster = Cluster(how.scheduler, how.scheduler_file, how.listen or LOOPBACK)
    return replace(options, executor="dask", cluster=cluster, jobs=expected_workers(cluster, how.jobs))


def device_of(how: Choices) -> Device:
    """The device of the runs. Where the workers are other machines, CUDA is looked for there, not here."""
    from normlab.execute.devices import Device, check_name, resolve_device

    elsewhere = how.executor == "dask" and (how.scheduler or how.scheduler_file)
    if elsewhere and how.device.startswith("cuda") and not how.dry_run:
        check_name(how.device)
        return Device(f"cuda:{how.device.partition(':')[2] or 0}", "a GPU of the cluster")
    return resolve_device(how.device)
