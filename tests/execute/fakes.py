"""Trainers that stand in for the real one in the workers: instant, and some of them crash. No torch."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import normlab
from normlab.config.schema import RunSpec, Thresholds
from normlab.store import RunRecord
from normlab.train.code import code_digest


def record(spec: RunSpec) -> RunRecord:
    """A finished run whose numbers follow from the seed and the rate alone."""
    loss = spec.seed + spec.optim.lr
    run: dict[str, Any] = {"id": spec.id, "status": "complete", "outcome": "trained", "onset": None}
    run["loss"] = {"initial": loss + 1, "final": loss, "best": loss, "best_step": spec.train.steps}
    curve = {"step": [0, 1], "train_loss": [None, loss], "grad_norm": [None, 1.0], "val_loss": [loss + 1, loss]}
    return RunRecord(spec.id, run, curve, {"seconds": 0.0})


def quick(specs: Sequence[RunSpec], **_: Any) -> list[RunRecord]:
    return [record(spec) for spec in specs]


def dies_once(specs: Sequence[RunSpec], **_: Any) -> list[RunRecord]:
    marker = Path(os.environ["FAKE_MARKER"])
    if any(spec.seed == 1 for spec in specs) and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return quick(specs)


def dies_for_seed_1(specs: Sequence[RunSpec], **_: Any) -> list[RunRecord]:
    if any(spec.seed == 1 for spec in specs):
        print("last words", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return quick(specs)


def raises_for_seed_1(specs: Sequence[RunSpec], **_: Any) -> list[RunRecord]:
    if any(spec.seed == 1 for spec in specs):
        raise RuntimeError("no such luck\nsecond line")
    return quick(specs)


def raises_always(specs: Sequence[RunSpec], **_: Any) -> list[RunRecord]:
    raise RuntimeError("never works")


def fills_the_disk(specs: Sequence[RunSpec], **_: Any) -> list[RunRecord]:
    if any(spec.seed == 1 for spec in specs):
        raise OSError(errno.ENOSPC, "No space left on device", "r/run.json")
    return quick(specs)


def here_and_now(specs: Sequence[RunSpec], **_: Any) -> list[RunRecord]:
    """As `quick`, with the circumstances that `--reuse` compares, as the real trainer writes them."""
    same = {"device": "cpu", "threads": 1, "torch": version("torch"), "normlab": normlab.__version__}
    same |= {"code": code_digest()}
    judged = {"thresholds": Thresholds().model_dump(mode="json")}
    made = [record(spec) for spec in specs]
    return [RunRecord(one.id, {**one.run, **judged}, one.curve, {**one.timing, **same}) for one in made]


def never_ends(specs: Sequence[RunSpec], **_: Any) -> list[RunRecord]:
    if any(spec.seed == 1 for spec in specs):
        time.sleep(3600)
    return here_and_now(specs)
