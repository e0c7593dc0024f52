"""What a stack leaves behind while it trains, lane by lane, and the records made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from normlab.config.schema import RunSpec, Thresholds
from normlab.outcome import count_spikes, judge
from normlab.store import FORMAT, RunRecord


@dataclass
class LaneLog:
    """The history of one lane: a row a step for losses and norms, a row an evaluation for the rest."""

    train_loss: list[Any] = field(default_factory=list)
    grad_norm: list[Any] = field(default_factory=list)
    evaluations: dict[int, tuple[Any, list[Any]]] = field(default_factory=dict)
    onset: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)
    overflowed: set[str] = field(default_factory=set)  # what `notes` has told already

    @property
    def alive(self) -> bool:
        return self.onset is None

    def curve(self, depth: int) -> dict[str, list[Any]]:
        """Columns of curve.csv, from step 0 to the last step done (or the onset)."""
        steps = range(len(self.train_loss) + 1)
        blank = (None, [None] * (depth + 1))
        rows = [self.evaluations.get(step, blank) for step in steps]
        return {
            "step": list(steps),
            "train_loss": [None, *self.train_loss],
            "grad_norm": [None, *self.grad_norm],
            "val_loss": [loss for loss, _ in rows],
            **{f"act_rms_{layer}": [rms[layer] for _, rms in rows] for layer in range(depth + 1)},
        }


class Log:
    """One LaneLog a lane."""

    def __init__(self, lanes: int) -> None:
        self.lanes = [LaneLog() for _ in range(lanes)]

    def add_evaluation(self, step: int, loss_S: Tensor, rms_LS: Tensor) -> None:
        losses, rms = loss_S.cpu().numpy(), rms_LS.cpu().numpy()
        for lane, log in enumerate(self.lanes):
            if log.alive:
                log.evaluations[step] = (losses[lane], list(rms[:, lane]))

    def add_steps(self, first: int, loss_KS: np.ndarray, norm_KS: np.ndarray, fine_K4S: np.ndarray) -> None:
        """Append K steps from step `first` on; a lane's history ends with its onset, whose kind is noted.

        `fine_K4S` says whether loss, gradient, parameters and the optimiser's second moment were finite."""
        for lane, log in enumerate(self.lanes):
            if not log.alive:
                continue
            bad = np.flatnonzero(~fine_K4S[:, :3, lane].all(axis=1))
            count = int(bad[0]) + 1 if len(bad) else len(loss_KS)
            log.train_loss.extend(loss_KS[:count, lane])
            log.grad_norm.extend(norm_KS[:count, lane])
            for what, over_K in overflows(norm_KS[:count, lane], fine_K4S[:count, :, lane]).items():
                if over_K.any() and what not in log.overflowed:
                    log.overflowed.add(what)
                    log.notes.append(what.format(step=first + int(np.argmax(over_K))))
            if len(bad):
                kind = ("loss", "gradient", "parameter")[int(np.argmin(fine_K4S[bad[0], :3, lane]))]
                log.onset = {"step": first + count - 1, "kind": kind}


def overflows(norm_K: np.ndarray, fine_K4: np.ndarray) -> dict[str, np.ndarray]:
    """What can overflow although nothing that trains does, as a clause with a blank for the step, and at which steps it
    did."""
    return {
        "gradient norm overflowed at step {step} although every gradient was finite": fine_K4[:, 1] & np.isinf(norm_K),
        "the optimizer's second moment overflowed at step {step} although every gradient was finite: the weights "
        "concerned stand still from there on": fine_K4[:, 1] & ~fine_K4[:, 3],
    }


def shortest(value: Any) -> float:
    """The double with the fewest digits that reads back as `value` in its own precision."""
    return float(str(value))


def make_record(
    spec: RunSpec,
    log: LaneLog,
    built: dict[str, Any],
    task_losses: dict[str, float],
    thresholds: Thresholds,
    timing: dict[str, Any],
    notes: Sequence[str] = (),
) -> RunRecord:
    """The record of one lane: its question, what was built, how it ended, its curve; `notes` before the log's own."""
    losses = {step: shortest(loss) for step, (loss, _) in log.evaluations.items()}
    onset_step = log.onset["step"] if log.onset else None
    outcome = judge(list(losses.values()), task_losses["guess"], onset_step, thresholds)
    # A run that ended in NaN has no final and no best loss.
    best_step = min(losses, key=lambda step: losses[step]) if outcome != "nan" else None
    run = {
        "format": FORMAT,
        "id": spec.id,
        "spec": spec.model_dump(mode="json"),
        "built": built,
        "task": task_losses,
        "thresholds": thresholds.model_dump(mode="json"),
        "status": "complete",
        "outcome": outcome,
        "onset": log.onset,
        "steps": len(log.train_loss),
        "loss": {
            "initial": losses.get(0),
            "final": None if best_step is None else losses[max(losses)],
            "best": None if best_step is None else losses[best_step],
            "best_step": best_step,
        },
        "spikes": count_spikes([float(loss) for loss in log.train_loss], thresholds.spike_margin),
        "notes": [*notes, *log.notes],
    }
    return RunRecord(spec.id, run, log.curve(spec.model.depth), timing)


def due_evaluations(spec: RunSpec) -> Sequence[int]:
    """Steps after which the lanes are evaluated: every `eval_every`-th and the last."""
    steps, every = spec.train.steps, spec.train.eval_every
    return [*range(every, steps, every), steps]
