"""What a reproduction of the article consists of, in its order: studies that train, and measures that do not."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from normlab.config.load import load_study, shipped_configs
from normlab.config.plan import PlannedRun, expand
from normlab.config.schema import Study

TRAINING = ("postln", "preln", "collapse", "depth", "warmup", "lr_wide", "finalnorm", "dyt")
# Seconds that a measure takes in full and shortened, on the machine of the reference results: told before the first one
# has been measured here. Those before the training take seconds; speed comes last, when nothing runs beside it.
BEFORE = {"params": (1.0, 1.0), "numerics": (10.0, 10.0), "initial": (10.0, 10.0)}
AFTER = {"mechanism": (300.0, 20.0), "speed": (530.0, 50.0)}
NEVER_QUICK = ("params",)  # It counts; there is nothing to shorten.
SEEDS, QUICK_SEEDS = (0, 1, 2), (0,)
# `--quick` trains a fifteenth of the steps, and evaluates every 50, but six times at least.
PART, QUICK_EVERY, QUICK_ROWS = 15, 50, 6


@dataclass(frozen=True)
class Training:
    """A study of the reproduction that trains; `shortened` says in sentences what `--quick` cut."""

    kind: ClassVar[str] = "training"
    study: Study
    command: str
    shortened: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.study.name

    @cached_property
    def plan(self) -> list[PlannedRun]:
        """All its runs."""
        return expand(self.study)


@dataclass(frozen=True)
class Measuring:
    """A command that measures; `seconds` are those that it is thought to take, `options` are typed behind its name,
    `program` runs it."""

    kind: ClassVar[str] = "measure"
    name: str
    quick: bool
    seconds: float
    options: tuple[str, ...] = ()
    program: tuple[str, ...] = (sys.executable, "-m", "normlab")

    @property
    def command(self) -> str:
        """The canonical command."""
        return shlex.join(["normlab", *self._typed()])

    def words(self, folder: Path) -> list[str]:
        """The process that measures into `folder`."""
        return [*self.program, *self._typed(), "-o", str(folder), "--overwrite", "-q"]

    def _typed(self) -> list[str]:
        return [self.name, *(["--quick"] if self.quick else []), *self.options]


Part = Training | Measuring


@dataclass(frozen=True)
class Plan:
    """All that is to be run."""

    parts: tuple[Part, ...]
    quick: bool
    seeds: tuple[int, ...]

    @property
    def command(self) -> str:
        """The canonical command."""
        return _command(self.quick, self.seeds)

    @property
    def training(self) -> list[Training]:
        """The studies that train."""
        return [part for part in self.parts if isinstance(part, Training)]

    @property
    def shortened(self) -> list[str]:
        """What `--quick` cut, a sentence each; nothing in full."""
        if not self.quick:
            return []
        sentences = [sentence for part in self.training for sentence in part.shortened]
        measures = [part.name for part in self.parts if isinstance(part, Measuring) and part.quick]
        if self.seeds != SEEDS:
            noun = "seeds" if len(self.seeds) > 1 else "seed"
            sentences.append(f"{noun} {ranges(self.seeds)} instead of seeds {ranges(SEEDS)}")
        if measures:
            sentences.append(f"{', '.join(measures)}: measured with --quick, each says what that cuts")
        return list(dict.fromkeys(sentences))


def make_plan(quick: bool = False, seeds: str | None = None, device: str = "cpu") -> Plan:
    """The reproduction of the shipped studies. ConfigError if `seeds`, such as `0-4`, names none."""

    def measures(taken: Mapping[str, tuple[float, float]]) -> list[Measuring]:
        on = {"speed": ("--device", device)} if device != "cpu" else {}
        return [
            Measuring(name, quick and name not in NEVER_QUICK, seconds[quick], on.get(name, ()))
            for name, seconds in taken.items()
        ]

    shipped = {path.stem: path for path in shipped_configs()}
    default = QUICK_SEEDS if quick else SEEDS
    typed = seeds if seeds is not None else ranges(default)
    studies = [load_study(shipped[name], (), typed) for name in TRAINING]
    parts = [_training(study, shipped[study.name], quick) for study in studies]
    return Plan((*measures(BEFORE), *parts, *measures(AFTER)), quick, studies[0].seeds)


def _training(study: Study, path: Path, quick: bool) -> Training:
    seeds = ranges(study.seeds)
    if not quick:
        return Training(study, f"normlab run configs/{path.name} --seeds {seeds}")
    short = shorten(study)
    words = _as_overrides(short)
    # A warm-up inside a variant cannot be said by an override; then the reproduction itself is the command.
    exact = load_study(path, words, seeds) == short if not _variants(study) else False
    command = shlex.join(["normlab", "run", f"configs/{path.name}", *words, "--seeds", seeds])
    return Training(short, command if exact else _command(quick, study.seeds), tuple(differences(study, short)))


def _as_overrides(study: Study) -> list[str]:
    train = study.base.train
    rows = ",".join(map(str, study.outputs.steps))
    return [f"train.steps={train.steps}", f"train.eval_every={train.eval_every}", f"outputs.steps={rows}"]


def _variants(study: Study) -> bool:
    names = ("optim.warmup", "train.steps", "train.eval_every")
    return any(name in point.settings for axis in study.axes for point in axis.points for name in names)


def shorten(study: Study) -> Study:
    """The study with a part of the training steps, of the warm-up and of the printed rows; the whole grid stays."""
    data: dict[str, Any] = study.model_dump()
    train, optim = data["base"]["train"], data["base"]["optim"]
    train["steps"] = max(1, train["steps"] // PART)
    train["eval_every"] = every = max(1, min(QUICK_EVERY, train["steps"] // QUICK_ROWS))
    optim["warmup"] //= PART
    for axis in data["axes"]:
        for point in axis["points"]:
            scaled = {name: value // PART for name, value in point["settings"].items() if name in SCALED}
            point["settings"] = point["settings"] | scaled
    # A row must be an evaluation: the first one from the shortened step on.
    last = train["steps"] // every * every
    rows = [min(-(-step // PART // every) * every, last) for step in study.outputs.steps]
    data["outputs"]["steps"] = tuple(dict.fromkeys(rows))
    return Study.model_validate(data)


SCALED = ("optim.warmup", "train.steps")


def differences(full: Study, short: Study) -> list[str]:
    """What `shorten` cut, a sentence each."""
    old, new = full.base.train, short.base.train
    lines = [f"{new.steps} of {old.steps} training steps, evaluated every {new.eval_every} (not {old.eval_every})"]
    warmups = [
        (a.settings["optim.warmup"], b.settings["optim.warmup"])
        for one, two in zip(full.axes, short.axes, strict=True)
        for a, b in zip(one.points, two.points, strict=True)
        if a.settings.get("optim.warmup")
    ]
    warmups += [(full.base.optim.warmup, short.base.optim.warmup)] if full.base.optim.warmup else []
    lines += [f"a warm-up of {new} instead of {old} steps" for old, new in dict.fromkeys(warmups)]
    return [*lines, f"rows at 1/{PART} of the printed steps"]


def ranges(seeds: Sequence[int]) -> str:
    """`0-2` for seeds that follow each other, else `0,3,7`."""
    first, last = seeds[0], seeds[-1]
    if len(seeds) > 1 and tuple(seeds) == tuple(range(first, last + 1)):
        return f"{first}-{last}"
    return ",".join(map(str, seeds))


def _command(quick: bool, seeds: Sequence[int]) -> str:
    return f"normlab reproduce{' --quick' if quick else ''} --seeds {ranges(seeds)}"
