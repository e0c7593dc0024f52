"""The loop around the step: batches in, statistics out, evaluations between, records at the end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from normlab.config.engine import PLAIN, Engine
from normlab.config.plan import structure_of
from normlab.config.schema import RunSpec, Thresholds
from normlab.fused.build import library_for
from normlab.fused.cover import engine_for
from normlab.store import RunRecord
from normlab.train.circumstances import describe_built, describe_machine, reset_peak_memory
from normlab.train.guard import inspect
from normlab.train.hints import blocked_norms, scale_overflow
from normlab.train.log import Log, due_evaluations, make_record
from normlab.train.memory import halves, lanes_that_fit
from normlab.train.optim import rate
from normlab.train.probes import find_in_parameters, find_producer
from normlab.train.program import Statistics, program_for
from normlab.train.stack import Stack
from normlab.train.tasks import TASKS, TrainingData, validation_set

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
    engine: Engine = PLAIN,
    on_progress: Callable[[Progress], None] | None = None,
) -> list[RunRecord]:
    """Train all `specs`, one lane each, and return their records in the same order.

    The specs must share their structure (`structure_of`). A lane that becomes non-finite is frozen and its record says
    where; the others go on as if it were not there. Lanes that do not fit into a GPU's memory together are trained in
    parts, one after the other. `on_progress` is called about twice a second and may raise to stop. Raises ValueError
    for specs of several structures, and for a net that would give wrong results (`guard.inspect`).
    """
    if len({structure_of(spec) for spec in specs}) != 1:
        raise ValueError("expected specs of one structure (only seed, rate, warm-up, decay and clip may differ)")
    records: list[RunRecord] = []
    parts = deque(lanes_that_fit(specs, device))
    while parts:
        part = parts.popleft()
        try:
            records += _train(part, thresholds, device, engine, on_progress)
        except torch.OutOfMemoryError:
            if len(part) == 1:
                raise
        else:
            continue
        # Here the error and all that it held are gone.
        parts.extendleft(reversed(halves(part, device)))
    return records


def _train(
    specs: Sequence[RunSpec],
    thresholds: Thresholds,
    device: str,
    engine: Engine,
    on_progress: Callable[[Progress], None] | None,
) -> list[RunRecord]:
    if device != "cpu":
        torch.cuda.set_device(device)  # streams and captures belong to the current device
    reset_peak_memory(device)
    torch.set_float32_matmul_precision("high" if engine.tf32 else "highest")
    started = said = time.monotonic()
    marks = inspect(specs[0])
    task = TASKS[specs[0].task.name](specs[0].task)
    data = [TrainingData(task, spec) for spec in specs]
    held_out_BT = torch.from_numpy(validation_set(task)).to(device)
    # The fused step is for CPUs, whatever the engine says.
    library = library_for(engine_for(engine, specs[0])) if device == "cpu" else None
    engine = replace(engine, fused=library.name if library else "")
    stack, log = Stack(specs, device, library), Log(len(specs))
    marks += blocked_norms(stack)
    program = program_for(stack)
    peak_rate_S = np.zeros(len(specs))

    def evaluate(step: int) -> None:
        loss_S, rms_LS = stack.evaluate(held_out_BT)
        log.add_evaluation(step, loss_S, rms_LS)
        for lane, finite in enumerate(loss_S.isfinite().tolist()):
            if not finite and log.lanes[lane].alive:
                found = find_producer(specs[lane], stack.lane(lane), held_out_BT, device, False, library)
                log.lanes[lane].onset = {"step": step, "kind": "loss", **found}
        stack.alive_S &= loss_S.isfinite()

    def draw(first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        tokens_KSBT = np.stack([[lane.next() for lane in data] for _ in range(first, last + 1)])
        return tokens_KSBT, np.array([[rate(spec, step) for spec in specs] for step in range(first, last + 1)])

    due, chunks = set(due_evaluations(specs[0])), [*_chunks(specs[0], program.chunk)]
    following = draw(*chunks[0])
    stack.profile(torch.from_numpy(following[0][0]).to(device))
    evaluate(0)
    for (first, last), after in zip(chunks, [*chunks[1:], None], strict=True):
        if not any(lane.alive for lane in log.lanes):
            break
        tokens_KSBT, rates_KS = following
        program.start(stack.inputs(first, tokens_KSBT, rates_KS))
        if after:  # Drawn while a GPU is busy with the chunk.
            following = draw(*after)
        stats = program.read()
        _note(stack, log, first, stats, tokens_KSBT)
        for lane, entry in enumerate(log.lanes):  # A lane's steps after its onset are its neighbours' only.
            done = max(len(entry.train_loss) - first + 1, 0)
            peak_rate_S[lane] = max(peak_rate_S[lane], *rates_KS[:done, lane], 0.0)
        if last in due and any(lane.alive for lane in log.lanes):
            evaluate(last)
        if on_progress and time.monotonic() - said > PROGRESS_SECONDS:
            said = time.monotonic()
            alive = [lane.alive for lane in log.lanes]
            on_progress(Progress(last, specs[0].train.steps, stats.loss_KS[-1].tolist(), alive))

    timing = describe_machine(device, time.monotonic() - started, len(specs)) | engine.facts()
    built = describe_built(stack, peak_rate_S)
    losses = task.losses()
    return [
        make_record(spec, log.lanes[lane], built[lane], losses, thresholds, timing, marks)
        for lane, spec in enumerate(specs)
    ]


def _chunks(spec: RunSpec, size: int) -> Iterator[tuple[int, int]]:
    """First and last steps of the chunks: at most `size` steps, and none reaches across an evaluation."""
    done = 0
    for due in due_evaluations(spec):
        while done < due:
            last = min(done + size, due)
            yield done + 1, last
            done = last


def _note(stack: Stack, log: Log, first: int, stats: Statistics, tokens_KSBT: np.ndarray) -> None:
    """Put a chunk of steps into the log and find the producer for each lane that ended in it.

    A frozen lane still has the state that it had before its onset step, so that step can be run again."""
    lived = [lane.alive for lane in log.lanes]
    log.add_steps(first, *stats)
    for lane, entry in enumerate(log.lanes):
        if lived[lane] and entry.onset:
            if entry.onset["kind"] == "parameter":
                found = find_in_parameters(stack.model, stack.optimizer, lane)
            else:
                spec, step = stack.specs[lane], entry.onset["step"]
                tokens_BT = torch.from_numpy(tokens_KSBT[step - first, lane]).to(stack.device)
                state = stack.lane(lane)._replace(clock_1=torch.full_like(stack.model.clock, step))
                found = find_producer(spec, state, tokens_BT, stack.device, library=stack.library)
                if entry.onset["kind"] == "gradient":
                    entry.notes += scale_overflow(spec, state, tokens_BT, stack.device, step)
            entry.onset.update(found)
