"""Makes results folders without training: each run ends as a story told in one word."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from normlab.config.dump import study_yaml
from normlab.config.plan import PlannedRun, expand
from normlab.config.schema import Axis, Outputs, Point, RunSpec, Study
from normlab.store import RunRecord, publish, publish_failure, strict_json, write_file

UNIFORM, FLOOR = math.log(8), 0.25
STEPS, EVERY, DEPTH = 60, 20, 2
BASE = RunSpec.model_validate(
    {
        "task": {"vocab": 8, "length": 4, "val_size": 16},
        "model": {"depth": DEPTH, "width": 8, "hidden": 8},
        "train": {"steps": STEPS, "eval_every": EVERY},
    }
)
# The validation losses at steps 0, 20, 40, 60 of a story; a nan run ends at the onset behind the @.
STORIES: dict[str, list[float]] = {
    "trained": [2.1, 1.5, 1.0, 0.5],
    "better": [2.1, 1.2, 0.7, 0.4],
    "unsteady": [2.1, 1.0, 0.6, 1.3],
    "stalled": [2.1, 2.09, 2.08, 2.08],
    "diverged": [2.1, 5.0, 7.0, 9.0],
}
OUTCOME_OF = {"better": "trained"}


def axis(name: str, *labels: str) -> Axis:
    """An axis of a dotted name: numbers where the labels are some, text otherwise."""
    return Axis(name=name, points=tuple(Point(label=label, settings={name: _value(name, label)}) for label in labels))


def _value(name: str, label: str) -> Any:
    return float(label) if name == "optim.lr" else int(label) if label.isdigit() else label


def study(*axes: Axis, seeds: tuple[int, ...] = (0,), **outputs: Any) -> Study:
    """A study named `toy` whose runs have 60 steps, evaluated every 20."""
    outputs = {"steps": (0, 20, 60, 500), "reach": (1.0, 0.1), **outputs}
    return Study(name="toy", question="Does it train?", base=BASE, axes=axes, seeds=seeds, outputs=Outputs(**outputs))


def make_results(root: Path, of: Study, story: Callable[[PlannedRun], str]) -> Path:
    """Publish a run for each planned one: `story` names an entry of STORIES, `nan@37`, `missing` or `failed`."""
    planned = expand(of)
    root.mkdir(parents=True, exist_ok=True)
    runs = [{"id": r.id, "label": r.label, "cell": r.cell, "seed": r.spec.seed} for r in planned]
    manifest = {
        "format": 1,
        "study": of.model_dump(mode="json"),
        "command": "normlab run configs/toy.yaml",
        "runs": runs,
        **{"commit": "abc1234", "dirty": False, "device": "cpu", "device_name": "A CPU", "threads": 1, "torch": "2.13"},
        "sessions": [],
    }
    write_file(root / "manifest.json", strict_json(manifest))
    write_file(root / "config.yaml", study_yaml(of))
    for run in planned:
        kind = story(run)
        if kind == "failed":
            publish_failure(root, run.id, "Traceback\nMemoryError: too large\n")
        elif kind != "missing":
            publish(root, record(run, of, kind))
    return root


def record(run: PlannedRun, of: Study, kind: str) -> RunRecord:
    """The record of one run that ends like `kind`."""
    onset = int(kind.split("@")[1]) if kind.startswith("nan@") else None
    # Seeds differ a little, so that there is a spread.
    losses = [loss + 0.01 * run.spec.seed for loss in STORIES.get(kind, STORIES["trained"])]
    losses[0] = 2.1
    last = STEPS if onset is None else onset
    taken = {step: loss for step, loss in zip(range(0, STEPS + 1, EVERY), losses, strict=True) if step <= last}
    taken.pop(onset if onset is not None else -1, None)
    best = min(taken, key=lambda step: taken[step])
    finite = onset is None
    summary = {
        "initial": losses[0],
        "final": losses[-1] if finite else None,
        "best": taken[best] if finite else None,
        "best_step": best if finite else None,
    }
    content = {
        "format": 1,
        "id": run.id,
        "spec": run.spec.model_dump(mode="json"),
        "built": {"parameters": 1234},
        "task": {"uniform": UNIFORM, "guess": UNIFORM, "floor": FLOOR},
        "thresholds": of.thresholds.model_dump(mode="json"),
        "status": "complete",
        "outcome": OUTCOME_OF.get(kind, kind) if finite else "nan",
        "onset": None if finite else _onset(last),
        "steps": last,
        "loss": summary,
        "spikes": 0,
    }
    timing = {"seconds": 1.5, "peak_memory_mb": 100.0, "device": "cpu", "commit": "abc1234"}
    return RunRecord(run.id, content, _curve(taken, last, run.spec.model.depth), timing)


def _onset(step: int) -> dict[str, Any]:
    return {"step": step, "kind": "loss", "phase": "forward", "producer": "blocks.1.ffn.out", "nan": 3, "inf": 1}


def _curve(taken: dict[int, float], last: int, depth: int) -> dict[str, list[float | None]]:
    steps = range(last + 1)
    curve: dict[str, list[Any]] = {"step": list(steps)}
    curve["train_loss"] = [None, *(taken[max(s for s in taken if s <= step)] + 0.01 for step in steps[1:])]
    if last < STEPS:  # The onset, in the loss.
        curve["train_loss"][-1] = math.nan
    curve["grad_norm"] = [None, *(1.0 for _ in steps[1:])]
    curve["val_loss"] = [taken.get(step) for step in steps]
    for layer in range(depth + 1):
        curve[f"act_rms_{layer}"] = [(layer + 1) * 1.1**step if step in taken else None for step in steps]
    return curve
