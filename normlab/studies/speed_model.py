"""The whole toy in training: one step with each norm in turn, and with no norm at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from normlab.config.schema import ModelSpec, OptimSpec, RunSpec
from normlab.studies.flops import norm_share, step_flops
from normlab.studies.speed_clock import Call, saved, summary
from normlab.studies.speed_norms import TIMED
from normlab.studies.speed_shapes import Pace, Subject, visit
from normlab.train.stack import Stack
from normlab.train.tasks import TASKS, TrainingData

BATCHES = 16
# Small enough that no net becomes non-finite within the steps that are timed.
RATE = 1e-4
WIDTHS = (64, 256, 1024, 4096)  # of the share of the operations, by formula alone


def specs() -> dict[str, RunSpec]:
    """The default net by norm. `none` has none anywhere, the final one included: what the others take longer than it
    is the time of their norms."""
    nets = {norm: ModelSpec(norm=norm, final_norm="none" if norm == "none" else "auto") for norm in TIMED}
    return {norm: RunSpec(model=model, optim=OptimSpec(lr=RATE)) for norm, model in nets.items()}


def step_call(spec: RunSpec, device: str) -> tuple[Stack, Call]:
    """A stack of one lane, and the call that moves it by one step, batch after batch."""
    data = TrainingData(TASKS[spec.task.name](spec.task), spec)
    stack, done = Stack([spec], device), 0
    batches = np.stack([data.next()[None] for _ in range(BATCHES)])
    inputs = stack.inputs(1, batches, np.full((BATCHES, 1), spec.optim.lr))

    def call() -> object:
        nonlocal done
        done += 1
        return stack.step(inputs.at(done % BATCHES))

    return stack, call


def measure_model(pace: Pace, device: str) -> dict[str, Any]:
    """`model-speed` and `norm-runtime-share`; times are of one training step, in microseconds."""
    nets = specs()
    subjects, flops = {}, {}
    for norm, spec in nets.items():
        stack, call = step_call(spec, device)
        call()
        subjects[norm] = Subject(_always(call), pace.rounds)
        flops[norm] = step_flops(spec, stack.params_SP.shape[1])
    visit(list(subjects.values()), pace, device)
    rounds = {norm: subject.timed.medians for norm, subject in subjects.items()}
    rows = [
        {"norm": norm}
        | {f"{key}_us" if key != "n" else key: value for key, value in summary(_microseconds(subject)).items()}
        | {"faster_by_than_layernorm": saved(rounds[norm], rounds["layernorm"])}
        | {"time_share": saved(rounds["none"], rounds[norm]), "flops_share": norm_share(flops[norm])}
        | {f"flops_{part}": count for part, count in flops[norm].items()}
        for norm, subject in subjects.items()
    ]
    own = {row["norm"]: row for row in rows}
    return {
        "model-speed": {"faster_by": own["rmsnorm"]["faster_by_than_layernorm"], "rows": rows},
        "norm-runtime-share": {
            "time_share": own["layernorm"]["time_share"],
            "flops_share": own["layernorm"]["flops_share"],
            "flops_share_by_width": {str(width): share_at(width) for width in WIDTHS},
        },
    }


def share_at(width: int) -> float:
    """LayerNorm's share of the operations in the same net at another width, with a feed-forward twice as wide."""
    spec = RunSpec(model=ModelSpec(width=width, hidden=2 * width))
    m, vocab = spec.model, spec.task.vocab
    parameters = 2 * vocab * width + m.depth * width * (width + 2 * m.hidden)
    return norm_share(step_flops(spec, parameters))


def _always(call: Call) -> Callable[[], Call]:
    return lambda: call


def _microseconds(subject: Subject) -> list[float]:
    return [1e6 * t for t in subject.timed.all]
