"""The sections of a run: task, model, optimiser, training; their fields, bounds, and the entries that they name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SerializeAsAny, ValidationInfo, field_validator, model_validator

from normlab import catalogue
from normlab.catalogue import CATALOGUES, Options
from normlab.catalogue.lists import listed, suggest
from normlab.config.errors import FieldError

# Fields that hold an entry's name, and the catalogue that it is looked up in.
NAMED = {
    "task.name": "tasks",
    "model.norm": "norms",
    "model.placement": "placements",
    "model.mixer": "mixers",
    "model.init": "inits",
    "optim.name": "optimizers",
    "optim.schedule": "schedules",
}
# Fields that hold the options of an entry, and the field that names the entry.
OPTIONS = {
    "task.options": "task.name",
    "model.norm_options": "model.norm",
    "model.placement_options": "model.placement",
    "model.mixer_options": "model.mixer",
    "model.init_options": "model.init",
    "optim.options": "optim.name",
}


def _named(kind: str, *also: str) -> Any:
    return AfterValidator(lambda name: CATALOGUES[kind].check(name, also))


def _options(of: str) -> Any:
    return Field(None, validate_default=True, description=f"options of the {of}; `normlab list {of}s` shows them")


class Node(catalogue.Node):
    """Base of every node of the tree; some of its fields are read by some of the entries that it names only."""

    @classmethod
    def _read_options(cls, chooser: str, kind: str, value: Any, info: ValidationInfo) -> Any:
        """The options of the entry that the field `chooser` names, from what was given (or from those of another
        entry, of which the ones that were set count)."""
        name = info.data.get(chooser)
        if name is None:
            return Options()  # The name is wrong, which has been found already.
        options = CATALOGUES[kind][name].Options
        if isinstance(value, Options) and not isinstance(value, options):
            value = value.model_dump()
        if not isinstance(value, dict):
            return options() if value is None else value
        known = list(options.model_fields)
        for key in value:
            if key not in known and options.model_config.get("extra") != "allow":
                readers = [other for other, entry in CATALOGUES[kind].items() if key in entry.Options.model_fields]
                of = CATALOGUES[kind].singular
                if readers:
                    raise FieldError(f"is read by {listed(readers)} only, not by {of} '{name}': remove it", key)
                knows = f"; known: {', '.join(known)}" if known else "; it has none"
                raise FieldError(f"{of} '{name}' has no such option{suggest(str(key), known) or knows}", key)
        return options.model_validate(value)

    def _only_for(self, user: str, used: dict[str, tuple[str, ...]], chooser: str = "name") -> None:
        """Refuse a non-default value in a field that `user` (the name in field `chooser`) does not read."""
        for field, readers in used.items():
            if user not in readers and getattr(self, field) != type(self).model_fields[field].default:
                raise FieldError(f"is read by {listed(readers)} only, not by '{user}': remove it", field, chooser)


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
    options: SerializeAsAny[Options] = _options("task")

    @field_validator("options", mode="before")
    @classmethod
    def _check_options(cls, value: Any, info: ValidationInfo) -> Any:
        return cls._read_options("name", "tasks", value, info)

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


class RampSpec(Node):
    """Residual branches that grow in: a_l(t) = min(t / T_l, 1) on every branch of block l, T_l = warmup * l / depth."""

    warmup: int | None = Field(None, ge=1, le=10_000_000, description="steps until all branches are whole; null: none")


class ModelSpec(Node):
    """The decoder: embedding, `depth` blocks of mixer and feed-forward, final norm, head without bias."""

    depth: int = Field(20, ge=1, le=1_000, description="number of blocks")
    width: int = Field(64, ge=1, le=16_384, description="width D of the residual stream")
    hidden: int = Field(128, ge=1, le=65_536, description="width F inside the feed-forward")
    norm: Annotated[str, _named("norms")] = Field("layernorm", description="norm of every block")
    norm_options: SerializeAsAny[Options] = _options("norm")
    placement: Annotated[str, _named("placements")] = Field("pre", description="where the norm stands in a block")
    placement_options: SerializeAsAny[Options] = _options("placement")
    residual_ramp: RampSpec = RampSpec()
    mixer: Annotated[str, _named("mixers")] = Field("mean", description="what moves between tokens")
    mixer_options: SerializeAsAny[Options] = _options("mixer")
    init: Annotated[str, _named("inits")] = Field("small_normal", description="start values of the weights")
    init_options: SerializeAsAny[Options] = _options("init")
    final_norm: Annotated[str, _named("norms", "auto", "same")] = Field(
        "auto", description="auto: as placement and norm say; same: that of the blocks; or a norm's name"
    )

    @field_validator("norm_options", "placement_options", "mixer_options", "init_options", mode="before")
    @classmethod
    def _check_options(cls, value: Any, info: ValidationInfo) -> Any:
        chooser = (info.field_name or "").removesuffix("_options")
        return cls._read_options(chooser, NAMED[f"model.{chooser}"], value, info)

    @model_validator(mode="after")
    def _check(self) -> ModelSpec:
        for chooser, entry in self.entries().items():
            if reason := entry.refusal(self):
                others = [other for other in ("norm", "placement", "mixer", "init") if other != chooser]
                raise FieldError(f"{chooser} '{getattr(self, chooser)}' {reason}", chooser, *others)
        if self.residual_ramp.warmup is not None and not self.entries()["placement"].ramped:
            what = f"placement '{self.placement}' has no residual sum that could be ramped: remove it"
            raise FieldError(what, "residual_ramp.warmup", "placement")
        return self

    def entries(self) -> dict[str, Any]:
        """The class of the net's norm, placement, mixer and init, by the field that names it."""
        choosers = ("norm", "placement", "mixer", "init")
        return {chooser: CATALOGUES[NAMED[f"model.{chooser}"]][getattr(self, chooser)] for chooser in choosers}

    def final_norm_name(self) -> str:
        """The catalogue name of the final norm that `final_norm` stands for."""
        if self.final_norm == "auto":
            entries = self.entries()
            return entries["norm"].final if entries["placement"].final_norm else "none"
        return self.norm if self.final_norm == "same" else self.final_norm

    def unusual(self) -> list[str]:
        """What is unusual about this net, a clause each."""
        found = {chooser: entry.unusual(self) for chooser, entry in self.entries().items()}
        return [f"{chooser} '{getattr(self, chooser)}' {reason}" for chooser, reason in found.items() if reason]


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
    options: SerializeAsAny[Options] = _options("optimizer")

    @field_validator("options", mode="before")
    @classmethod
    def _check_options(cls, value: Any, info: ValidationInfo) -> Any:
        return cls._read_options("name", "optimizers", value, info)

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
    precision: Literal["float32", "float64", "bfloat16", "float16"] = Field(
        "float32", description="of the matrix products"
    )
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
