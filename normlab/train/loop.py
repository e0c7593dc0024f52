"""The loop around the step: batches in, statistics out, evaluations between, records at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from normlab.config.plan import structure_of
from normlab.config.schema import RunSpec, Thresholds
from normlab.store import RunRecord
from normlab.train.circumstances import describe_built, describe_machine, reset_peak_memory
from normlab.train.log import Log, due_evaluations, make_record
from normlab.train.optim import rate
from normlab.train.probes import find_in_parameters, find_producer
from normlab.train.stack import Stack, StepStats
from normlab.train.tasks import TASKS, TrainingData, validation_set

CHUNK = 10  # steps whose batches are drawn, and whose statistics are read, together
PROGRESS_SECONDS = 0.5


@dataclass(frozen=True)
class Progress:
    """Where a stack stands: the last step done, its training losses in nats and which lanes still live."""

    step: int
    steps: int
    losses: list[float]
    alive: list[bool]


def train_stack(
    specs: Sequence[RunSpec],
    *,
    thresholds: Thresholds,
    device: str = "cpu",
    on_progress: Callable[[Progress], None] | None = None,
) -> list[RunRecord]:
    """Train all `specs`, one lane each, and return their records in the same order.

    The specs must share their structure (`structure_of`). A lane that becomes non-finite is frozen and its record says
    where; the others go on as if it were not there. `on_progress` is called about twice a second and may raise to stop.
    Raises ValueError for specs of several structures.
    """
    if len({structure_of(spec) for spec in specs}) != 1:
        raise ValueError("expected specs of one structure (only seed, rate, warm-up, decay and clip may differ)")
    reset_peak_memory(device)
    started = said = time.monotonic()
    task = TASKS[specs[0].task.name](specs[0].task)
    data = [TrainingData(task, spec) for spec in specs]
    held_out_BT = torch.from_numpy(validation_set(task)).to(device)
    stack, log = Stack(specs, device), Log(len(specs))
    peak_rate_S = np.zeros(len(specs))

    def evaluate(step: int) -> None:
        loss_S, rms_LS = stack.evaluate(held_out_BT)
        log.add_evaluation(step, loss_S, rms_LS)
        for lane, finite in enumerate(loss_S.isfinite().tolist()):
            if not finite and log.lanes[lane].alive:
                found = find_producer(specs[lane], stack.params_SP[lane], held_out_BT, device, train=False)
                log.lanes[lane].onset = {"step": step, "kind": "loss", **found}
        stack.alive_S &= loss_S.isfinite()

    evaluate(0)
    done = 0
    for due in due_evaluations(specs[0]):
        while done < due and any(lane.alive for lane in log.lanes):
            count = min(CHUNK, due - done)
            tokens_KSBT = torch.from_numpy(np.stack([[lane.next() for lane in data] for _ in range(count)])).to(device)
            rates_KS = np.array([[rate(spec, done + 1 + k) for spec in specs] for k in range(count)])
            peak_rate_S = np.maximum(peak_rate_S, rates_KS.max(0))
            rates_KS1 = torch.from_numpy(rates_KS).to(stack.params_SP.dtype).to(device).unsqueeze(-1)
            stats = [stack.step(done + 1 + k, tokens_KSBT[k], rates_KS1[k]) for k in range(count)]
            _note(stack, log, done + 1, stats, tokens_KSBT)
            done += count
            if on_progress and time.monotonic() - said > PROGRESS_SECONDS:
                said = time.monotonic()
                on_progress(Progress(done, specs[0].train.steps, stats[-1].loss_S.tolist(), stack.alive_S.tolist()))
        if not any(lane.alive for lane in log.lanes):
            break
        evaluate(due)

    timing = describe_machine(device, time.monotonic() - started, len(specs))
    built = describe_built(stack, peak_rate_S)
    losses = task.losses()
    return [
        make_record(spec, log.lanes[lane], built[lane], losses, thresholds, timing) for lane, spec in enumerate(specs)
    ]


def _note(stack: Stack, log: Log, first: int, stats: Sequence[StepStats], tokens_KSBT: torch.Tensor) -> None:
    """Put a chunk of steps into the log and find the producer for each lane that ended in it.

    A frozen lane still has the parameters that it had before its onset step, so that step can be run again."""
    lived = [lane.alive for lane in log.lanes]
    loss_KS, norm_KS = (torch.stack([getattr(s, name) for s in stats]).cpu().numpy() for name in ("loss_S", "norm_S"))
    fine_K3S = torch.stack([torch.stack(s[2:]) for s in stats]).cpu().numpy()
    log.add_steps(first, loss_KS, norm_KS, fine_K3S)
    for lane, entry in enumerate(log.lanes):
        if lived[lane] and entry.onset:
            if entry.onset["kind"] == "parameter":
                found = find_in_parameters(stack.model, stack.optimizer, lane)
            else:
                tokens_BT = tokens_KSBT[entry.onset["step"] - first, lane]
                found = find_producer(stack.specs[lane], stack.params_SP[lane], tokens_BT, stack.device)
            entry.onset.update(found)
