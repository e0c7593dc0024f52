"""The typed configuration tree: `RunSpec` is one question put to one net, `Study` a grid of them.

Everything is frozen and strict: an unknown key, a string where a number belongs or a value out of range is an error,
and a field that the chosen task, norm or optimiser would not read must keep its default. Sizes are bounded here,
before anything is allocated.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import Field, model_validator

from normlab import catalogue
from normlab.catalogue import Options
from normlab.config.errors import FieldError
from normlab.config.sections import NAMED, OPTIONS, ModelSpec, Node, OptimSpec, RampSpec, TaskSpec, TrainSpec

__all__ = ["LANE_FIELDS", "MAX_RUNS", "NAME", "NAMED", "OPTIONS", "Axis", "ModelSpec", "Node", "OptimSpec", "Outputs"]
__all__ += ["Point", "RampSpec", "RunSpec", "Study", "TaskSpec", "Thresholds", "TrainSpec"]

MAX_PARAMETERS = 2_000_000_000
MAX_BATCH_VALUES = 4_000_000_000
MAX_DRAWN_VALUES = 500_000_000
MAX_RUNS = 100_000

# A study's name is also that of its results folder.
NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"

# Fields in which the lanes of one stack may differ; everything else is structure and must be equal.
LANE_FIELDS = ("seed", "optim.lr", "optim.warmup", "optim.weight_decay", "optim.clip")

# Part of every id: to be raised when a default changes its value, or a field its meaning.
SCHEMA = 2


class RunSpec(Node):
    """One run: the whole question. Its id depends on nothing else."""

    task: TaskSpec = TaskSpec()
    model: ModelSpec = ModelSpec()
    optim: OptimSpec = OptimSpec()
    train: TrainSpec = TrainSpec()
    seed: int = Field(0, ge=0, le=2**63 - 1, description="of the weights and of the training data")

    @model_validator(mode="after")
    def _check(self) -> RunSpec:
        if self.optim.warmup >= self.train.steps:
            steps = f"expected less than train.steps ({self.train.steps}), or the full rate is never reached"
            raise FieldError(f"{steps}, got {self.optim.warmup}", "optim.warmup", "train.steps")
        m, t = self.model, self.task
        parameters = 2 * t.vocab * m.width + m.depth * m.width * (m.width + 2 * m.hidden)
        if parameters > MAX_PARAMETERS:
            sizes = ("model.width", "model.depth", "model.hidden", "task.vocab")
            raise FieldError(f"the net would have {parameters:,} parameters, more than {MAX_PARAMETERS:,}", *sizes)
        self._check_data()
        return self

    def _check_data(self) -> None:
        m, t, batch = self.model, self.task, self.train.batch
        # Evaluation goes chunk by chunk; a training step keeps what its backward pass needs, ten values or so a unit.
        values = batch * t.length * (2 * t.vocab + m.depth * (10 * m.width + 2 * m.hidden))
        if values > MAX_BATCH_VALUES:
            message = f"a training step would hold {values:,} values, more than {MAX_BATCH_VALUES:,}"
            wide = ("train.batch", "task.length", "model.depth", "model.width", "model.hidden", "task.vocab")
            raise FieldError(message, *wide)
        drawn = max(t.train_size or 0, t.val_size, batch)
        tokens = drawn * (t.vocab if t.name == "markov" else t.length + 1)
        if tokens > MAX_DRAWN_VALUES:
            message = f"drawing the data would hold {tokens:,} values at once, more than {MAX_DRAWN_VALUES:,}"
            raise FieldError(message, "task.train_size", "task.val_size", "task.length", "train.batch")

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits of the SHA-256 of the canonical JSON of what the run asks: the fields that differ
        from their defaults, the number of the schema, and the versions of its entries that are not 1."""
        asked = {**_changed(self), "schema": SCHEMA}
        entries = self.model.entries() | {"task": catalogue.TASKS[self.task.name]}
        entries |= {"optimizer": catalogue.OPTIMIZERS[self.optim.name]}
        versions = {of: entry.version for of, entry in entries.items()}
        if raised := {of: version for of, version in versions.items() if version != 1}:
            asked["versions"] = raised
        canonical = json.dumps(asked, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def canonical(self) -> RunSpec:
        """The same run, with only those options marked as set that differ from their defaults: equal questions have
        equal dumps."""
        changed: dict[str, dict[str, Options]] = {}
        for path in OPTIONS:
            section, field = path.split(".")
            changed.setdefault(section, {})[field] = getattr(getattr(self, section), field).changed()
        return self.model_copy(
            update={name: getattr(self, name).model_copy(update=fields) for name, fields in changed.items()}
        )


def _changed(node: catalogue.Node) -> dict[str, Any]:
    """The fields of a node that differ from their defaults, as JSON values."""
    if isinstance(node, Options):
        return node.changed().model_dump(mode="json")
    found: dict[str, Any] = {}
    for name, field in type(node).model_fields.items():
        value = getattr(node, name)
        if isinstance(value, catalogue.Node):
            found |= {name: inner} if (inner := _changed(value)) else {}
        elif value != field.default:
            found[name] = value
    return found


class Thresholds(Node):
    """Where the outcomes begin, in nats; see `normlab.outcome.judge`."""

    diverged_margin: float = Field(0.5, ge=0, description="mean of the last 3 evaluations above max(initial, guess)")
    stalled_margin: float = Field(0.05, ge=0, description="last evaluation this close to the best constant guess")
    unsteady_margin: float = Field(0.3, ge=0, description="last evaluation this far above the best one")
    spike_margin: float = Field(0.5, gt=0, description="training loss this far above the median of the last 100 steps")


class Outputs(Node):
    """What the tables show; derived, so it may change without training again."""

    rows: str | None = Field(None, description="axis that makes the rows of the outcome table; null: optim.lr or first")
    steps: tuple[int, ...] = Field((0, 500, 1000, 2000, 3000), description="rows of the loss-by-step table")
    reach: tuple[float, ...] = Field((3.5, 3.0, 2.5), description="losses whose first step is looked up")

    @model_validator(mode="after")
    def _check(self) -> Outputs:
        for name, values in (("steps", self.steps), ("reach", self.reach)):
            if values and min(values) < 0:
                raise FieldError(f"expected no value below 0, got {min(values)}", name)
        return self


class Point(Node):
    """One value of an axis: its label and the dotted settings that it stands for."""

    label: str
    settings: dict[str, Any]


class Axis(Node):
    """One axis of the grid: a dotted path with its values, or a name with named variants."""

    name: str
    points: tuple[Point, ...] = Field(min_length=1)


class Study(Node):
    """A question, the base run, the axes that vary it, the seeds, and how the answer is read."""

    name: str = Field(pattern=f"^{NAME}$")
    question: str
    base: RunSpec = RunSpec()
    axes: tuple[Axis, ...] = ()
    seeds: tuple[int, ...] = Field((0,), min_length=1)
    thresholds: Thresholds = Thresholds()
    outputs: Outputs = Outputs()
    plugins: tuple[str, ...] = Field((), description="modules or .py files that register norms or placements")
