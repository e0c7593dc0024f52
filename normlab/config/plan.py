"""A study's grid, run by run; and what an executor must know of a run without building it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from pydantic import ValidationError

from normlab.config.errors import ConfigError
from normlab.config.fields import set_fields
from normlab.config.schema import LANE_FIELDS, MAX_RUNS, Axis, Point, RunSpec, Study


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study: its whole question, the point of each axis by label, and a short label of what varies."""

    spec: RunSpec
    cell: dict[str, str]
    label: str

    @property
    def id(self) -> str:
        """The run's id, a hash of its spec alone."""
        return self.spec.id


def expand(study: Study) -> list[PlannedRun]:
    """All runs of the study: axes in their order, seeds innermost.

    ConfigError if the grid passes MAX_RUNS (told before anything is expanded), if a point of it is no legal run, or
    if two of its runs ask the same question.
    """
    too_many = grid_problem(study.axes, len(study.seeds))
    if too_many:
        raise ConfigError([f"{study.name}: {too_many}"])
    runs: list[PlannedRun] = []
    seen: dict[str, str] = {}
    for points, spec in cells(study.base, study.axes):
        if isinstance(spec, ValidationError):
            first = spec.errors(include_url=False)[0]
            raise ConfigError([f"{study.name}: {first['msg']} (at {name_point(study.axes, points)})"])
        for seed in study.seeds:
            run = PlannedRun(
                spec.model_copy(update={"seed": seed}),
                {axis.name: point.label for axis, point in zip(study.axes, points, strict=True)},
                _label(study, points, seed),
            )
            earlier = seen.setdefault(run.id, run.label)
            if len(seen) == len(runs):
                raise ConfigError([f"{study.name}: '{earlier}' and '{run.label}' are the same run: drop one"])
            runs.append(run)
    return runs


def grid_problem(axes: Sequence[Axis], seeds: int) -> str | None:
    """A line that says how many runs the grid would have, if they are more than MAX_RUNS."""
    sizes = [len(axis.points) for axis in axes] + [seeds]
    count = math.prod(sizes)
    if count <= MAX_RUNS:
        return None
    return f"the grid has {' x '.join(map(str, sizes))} = {count:,} runs, more than {MAX_RUNS:,}"


def cells(base: RunSpec, axes: Sequence[Axis]) -> Iterator[tuple[tuple[Point, ...], RunSpec | ValidationError]]:
    """Every point of the grid, first axis outermost, with its run (seed 0) or what is wrong with it."""
    dumped = base.model_dump()
    for points in product(*(axis.points for axis in axes)):
        settings = {name: value for point in points for name, value in point.settings.items()}
        try:
            yield points, RunSpec.model_validate(set_fields(dumped, settings)).canonical()
        except ValidationError as error:
            yield points, error


def name_point(axes: Sequence[Axis], points: Sequence[Point]) -> str:
    """`model.depth=12, variant='post'`: a point of the grid in an error."""
    pairs = zip(axes, points, strict=True)
    return ", ".join(f"{axis.name}={p.label if '.' in axis.name else repr(p.label)}" for axis, p in pairs)


def _label(study: Study, points: Sequence[Point], seed: int) -> str:
    names = short_names(study.axes)
    varied = [(axis, point) for axis, point in zip(study.axes, points, strict=True) if len(axis.points) > 1]
    parts = [f"{names[axis.name]}={point.label}" if "." in axis.name else point.label for axis, point in varied]
    if len(study.seeds) > 1 or not parts:
        parts.append(f"seed={seed}")
    return " ".join(parts)


def short_names(axes: Sequence[Axis]) -> dict[str, str]:
    """The last part of each axis' name, or all of it where the last part alone would be ambiguous."""
    last = [axis.name.split(".")[-1] for axis in axes] + ["seed"]
    return {axis.name: short if last.count(short) == 1 else axis.name for axis, short in zip(axes, last, strict=False)}


def structure_of(spec: RunSpec) -> str:
    """Equal for two specs that may train as lanes of one stack: the spec as JSON, without LANE_FIELDS."""
    data = spec.canonical().model_dump(mode="json")
    for name in LANE_FIELDS:
        *sections, field = name.split(".")
        node = data
        for section in sections:
            node = node[section]
        del node[field]
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


# Operations for each value of the residual stream in a block besides the matrix products (norms, sums, GELU), counted
# with the weight that memory traffic gives them: they are what a narrow net spends most of its time on.
_POINTWISE = 400


def cost_of(spec: RunSpec) -> float:
    """Rough floating-point operations of a whole run, for sharing runs out evenly and guessing the time left."""
    m, t, train = spec.model, spec.task, spec.train
    block = 2 * m.width * (m.width + 2 * m.hidden) + _POINTWISE * m.width
    token = m.depth * block + 2 * m.width * t.vocab + _POINTWISE * t.vocab
    update = 20 * (m.depth * m.width * (m.width + 2 * m.hidden) + 2 * m.width * t.vocab)
    evaluations = 2 + train.steps // train.eval_every
    forward = evaluations * t.val_size * t.length * token
    return float(train.steps * (3 * train.batch * t.length * token + update) + forward)
