"""The typed configuration tree: `RunSpec` is one question put to one net, `Study` a grid of them.

Everything is frozen and strict: an unknown key, a string where a number belongs or a value out of range is an error,
and a field that the chosen task, norm or optimiser would not read must keep its default. Sizes are bounded here,
before anything is allocated.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from normlab.config.errors import FieldError
from normlab.config.names import check_name

MAX_PARAMETERS = 2_000_000_000
MAX_BATCH_VALUES = 4_000_000_000
MAX_DRAWN_VALUES = 500_000_000
MAX_RUNS = 100_000

# A study's name is also that of its results folder.
NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"

# Fields in which the lanes of one stack may differ; everything else is structure and must be equal.
LANE_FIELDS = ("seed", "optim.lr", "optim.warmup", "optim.weight_decay", "optim.clip")


def _named(kind: str, *also: str) -> Any:
    return AfterValidator(lambda name: check_name(kind, name, also))


class Node(BaseModel):
    """Base of every node of the tree: frozen, strict, no extra keys, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    def _only_for(self, user: str, used: dict[str, tuple[str, ...]], chooser: str = "name") -> None:
        """Refuse a non-default value in a field that `user` (the name in field `chooser`) does not read."""
        for field, readers in used.items():
            if user not in readers and getattr(self, field) != type(self).model_fields[field].default:
                raise FieldError(f"is read by {' and '.join(readers)} only, not by '{user}': remove it", field, chooser)


class TaskSpec(Node):
    """What the net learns: sequences made by one fixed rule. `length` tokens go in, the next of each is predicted."""

    name: Annotated[str, _named("tasks")] = Field("affine", description="the rule")
    vocab: int = Field(64, ge=2, le=65_536, description="number of distinct tokens V")
    length: int = Field(16, ge=2, le=4_096, description="tokens fed to the net, each with a target")
    a: int = Field(5, ge=0, description="affine: factor of the last token")
    b: int = Field(3, ge=0, description="affine: factor of the last but one; 0 makes the rule first order")
    c: int = Field(7, ge=0, description="affine: constant")
    k: int = Field(3, ge=1, le=64, description="sum: how many last tokens are added")
    noise: float = Field(0.0, ge=0, le=1, description="table: share of tokens replaced by uniform ones")
    concentration: float = Field(0.5, gt=0, description="markov: Dirichlet concentration of each row")
    seed: int = Field(0, ge=0, description="seed of the rule (table, markov) and of the validation set")
    train_size: int | None = Field(None, ge=1, le=10_000_000, description="sequences to train on; null: fresh ones")
    val_size: int = Field(512, ge=1, le=1_000_000, description="sequences in the fixed validation set")
    loss_on: Literal["all", "last"] = Field("all", description="positions that count in the loss")

    @model_validator(mode="after")
    def _check(self) -> TaskSpec:
        used = {"a": ("affine",), "b": ("affine",), "c": ("affine",), "k": ("sum",), "noise": ("table",)}
        self._only_for(self.name, {**used, "concentration": ("markov",)})
        if self.name == "sum" and self.k > self.length:
            raise FieldError(f"expected at most task.length ({self.length}), got {self.k}", "k", "length")
        if self.name in ("table", "markov") and self.vocab > 4_096:
            rule = f"task '{self.name}' keeps a vocab x vocab table"
            raise FieldError(f"expected at most 4096, since {rule}, got {self.vocab}", "vocab", "name")
        return self


class ModelSpec(Node):
    """The decoder: embedding, `depth` blocks of mixer and feed-forward, final norm, head without bias."""

    depth: int = Field(20, ge=1, le=1_000, description="number of blocks")
    width: int = Field(64, ge=1, le=16_384, description="width D of the residual stream")
    hidden: int = Field(128, ge=1, le=65_536, description="width F inside the feed-forward")
    norm: Annotated[str, _named("norms")] = Field("layernorm", description="norm of every block")
    placement: Annotated[str, _named("placements")] = Field("pre", description="where the norm stands in a block")
    mixer: Annotated[str, _named("mixers")] = Field("mean", description="what moves between tokens")
    init: Annotated[str, _named("inits")] = Field("small_normal", description="start values of the weights")
    init_std: float = Field(0.02, gt=0, le=1e30, description="small_normal: standard deviation of every weight")
    final_norm: Literal["auto", "layernorm", "same", "none"] = Field("auto", description="auto: layernorm for pre")
    norm_eps: float | None = Field(
        None, ge=0, le=1e30, description="null: the norm's own (layernorm 1e-5, rmsnorm 1e-6)"
    )
    dyt_alpha: float = Field(0.5, gt=0, le=1e6, description="dyt: start value of alpha")

    @model_validator(mode="after")
    def _check(self) -> ModelSpec:
        self._only_for(self.init, {"init_std": ("small_normal",)}, "init")
        if self.norm != "dyt" and self.dyt_alpha != 0.5:
            raise FieldError(f"is read by dyt only, not by '{self.norm}': remove it", "dyt_alpha", "norm")
        if self.norm in ("none", "dyt") and self.norm_eps is not None:
            raise FieldError(f"is not read by norm '{self.norm}': remove it", "norm_eps", "norm")
        return self


class OptimSpec(Node):
    """Optimiser, schedule and clipping. Step k = 1, 2, ... runs at lr * min(k / warmup, 1) * schedule."""

    name: Annotated[str, _named("optimizers")] = Field("adam", description="the optimiser")
    lr: float = Field(1e-3, gt=0, description="peak learning rate")
    beta1: float = Field(0.9, ge=0, lt=1, description="adam, adamw: decay of the mean of the gradient")
    beta2: float = Field(0.999, ge=0, lt=1, description="adam, adamw: decay of the mean of its square")
    eps: float = Field(1e-8, ge=0, description="adam, adamw: added to the root of the mean square")
    momentum: float = Field(0.0, ge=0, lt=1, description="sgd: heavy-ball momentum")
    weight_decay: float = Field(0.0, ge=0, description="adam, sgd: added to the gradient; adamw: decoupled")
    warmup: int = Field(0, ge=0, description="steps of linear warm-up")
    schedule: Annotated[str, _named("schedules")] = Field("constant", description="what follows the warm-up")
    clip: float | None = Field(None, gt=0, description="largest gradient norm (L2, whole net); null: no clipping")

    @model_validator(mode="after")
    def _check(self) -> OptimSpec:
        adams = ("adam", "adamw")
        self._only_for(self.name, {"beta1": adams, "beta2": adams, "eps": adams, "momentum": ("sgd",)})
        return self


class TrainSpec(Node):
    """How long, how large, how often looked at, in which precision."""

    steps: int = Field(3_000, ge=1, le=10_000_000, description="updates of the weights")
    batch: int = Field(32, ge=1, le=1_000_000, description="sequences a step")
    eval_every: int = Field(100, ge=1, description="steps between evaluations; step 0 and the last always count")
    precision: Annotated[str, _named("precisions")] = Field("float32", description="of the matrix products")
    low_stream: bool = Field(False, description="keep the residual stream in the low precision too")
    loss_scale: float = Field(1.0, gt=0, description="static factor on the loss before the backward pass")

    @model_validator(mode="after")
    def _check(self) -> TrainSpec:
        low = self.precision in ("bfloat16", "float16")
        if self.low_stream and not low:
            raise FieldError(f"needs precision bfloat16 or float16, got {self.precision}", "low_stream", "precision")
        if self.loss_scale != 1 and not low:
            raise FieldError(f"needs precision bfloat16 or float16, got {self.precision}", "loss_scale", "precision")
        return self


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
        """Twelve hexadecimal digits of the SHA-256 of the canonical JSON of the spec."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]


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
