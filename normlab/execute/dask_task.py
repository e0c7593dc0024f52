"""What a worker of a dask cluster does for us: it says who it is, and trains stacks. It writes no results.

`normlab` must be installed where the worker runs, with the plugins of the study at the same paths.
"""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

import normlab
from normlab.config.plugins import plugin_digests
from normlab.config.schema import RunSpec
from normlab.execute.devices import resolve_device
from normlab.execute.manifest import checkout
from normlab.execute.worker import Crashed, Setup, boot, crashed, reporter, with_facts
from normlab.fused.build import library_for
from normlab.store import RunRecord


@dataclass(frozen=True)
class Greeting:
    """Who a worker is: process and machine, what may change last digits, and the plugins' sources by SHA-256."""

    pid: int
    host: str
    versions: dict[str, str]
    plugins: dict[str, str]


class Abandoned(BaseException):
    """Nobody waits any more for the stack that is being trained."""


def greet(setup: Setup) -> Greeting:
    """Import all that the runs need; raise what keeps this worker from training them."""
    boot(setup)
    resolve_device(setup.device)
    fused = library_for(setup.engine)
    return Greeting(
        os.getpid(), socket.gethostname(), versions(fused.name if fused else ""), plugin_digests(setup.plugins)
    )


def versions(fused: str = "") -> dict[str, str]:
    """Of this process, with the name of its fused step: what is told when it differs between client and worker."""
    return {
        "python": platform.python_version(),
        "torch": version("torch"),
        "normlab": normlab.__version__,
        "fused": fused or "off",
    }


def train_stack(setup: Setup, specs: Sequence[RunSpec], key: str, topic: str) -> list[RunRecord] | Crashed | None:
    """The records of one stack; None if nobody waits for them any more. Progress goes to the events of `topic`."""
    from distributed import get_worker

    try:
        train = boot(setup)
        report = _reporter(get_worker(), key, topic)
        how = {"thresholds": setup.thresholds, "device": setup.device, "engine": setup.engine}
        records = train(specs, **how, on_progress=report)
        return [with_facts(record, _circumstances(setup.device)) for record in records]
    except Abandoned:
        return None
    except Exception as error:
        return crashed(error, setup)


@cache
def _circumstances(device: str) -> dict[str, Any]:
    """The facts of this machine that timing.json holds."""
    commit, dirty = checkout()
    return {"commit": commit, "dirty": dirty, "device_name": resolve_device(device).title}


def _reporter(worker: Any, key: str, topic: str) -> Callable[[Any], None]:
    def check() -> None:
        if _abandoned(worker, key):
            raise Abandoned

    def say(progress: Any) -> None:
        losses, alive = [float(loss) for loss in progress.losses], [bool(lives) for lives in progress.alive]
        message = {"key": key, "step": progress.step, "steps": progress.steps, "losses": losses, "alive": alive}
        worker.log_event(topic, message)

    return reporter(check, say)


def _abandoned(worker: Any, key: str) -> bool:
    """Whether the client has taken the task back or is gone, or this worker is leaving. A thread cannot be stopped from
    outside, so the training asks."""
    task = worker.state.tasks.get(key)
    return task is None or task.state == "cancelled" or worker.status.name in ("closing", "closed", "failed")
