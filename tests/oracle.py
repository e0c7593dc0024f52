"""The package and the plain scripts asked the same question, and their answers held to each other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from normlab.catalogue import Catalogue
from normlab.config.engine import Engine
from normlab.config.schema import ModelSpec, RunSpec, Thresholds
from normlab.fused.build import Library
from normlab.store import RunRecord
from normlab.train.loop import train_stack
from normlab.train.optim import rate
from normlab.train.stack import Stack
from normlab.train.tasks import TASKS, TrainingData, validation_set

__all__ = ["plain_net", "plain_toy"]
SCRIPTS = Path(__file__).parents[1] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import plain_net  # noqa: E402
import plain_toy  # noqa: E402
from plain_net import Settings, options  # noqa: E402

# Both do the same sums in another order. float64: 1e-10 is asked for; the largest seen are 1.3e-11 (a weight after 20
# steps of Adam, ScaleNorm in Sub-LN), 3e-13 (gradients) and 1.2e-14 (losses).
# float32: the largest seen is 7e-6 (a gradient norm in Sub-LN; losses 3e-7); ten times that for other CPUs' kernels.
RTOL = {"float64": 1e-10, "float32": 7e-5}

TINY = {"width": 8, "hidden": 16, "depth": 2, "vocab": 16, "length": 6, "batch": 4, "val_size": 32}
TINY |= {"steps": 20, "eval_every": 7}
LANES = ({"seed": 0, "lr": 1e-3}, {"seed": 3, "lr": 1e-2}, {"seed": 2**40 + 1, "lr": 3e-3})


def spec_of(s: Settings) -> RunSpec:
    """The RunSpec that asks the same as the script's settings `s`."""
    task = {key: getattr(s, key) for key in ("vocab", "length", "a", "b", "c", "val_size", "loss_on")}
    model = {key: getattr(s, key) for key in ("depth", "width", "hidden", "norm", "placement", "mixer", "init")}
    model |= {f"{key}_options": options(getattr(s, f"{key}_options")) for key in ("norm", "placement", "init")}
    model |= {"residual_ramp": {"warmup": s.residual_ramp or None}, "final_norm": s.final_norm}
    optim = {key: getattr(s, key) for key in ("lr", "beta1", "beta2", "eps", "momentum", "weight_decay", "warmup")}
    return RunSpec.model_validate(
        {
            "task": task | {"name": "affine", "seed": s.task_seed},
            "model": model,
            "optim": optim | {"name": s.optimizer, "schedule": s.schedule, "clip": s.clip or None},
            "train": {"steps": s.steps, "batch": s.batch, "eval_every": s.eval_every, "precision": s.dtype},
            "seed": s.seed,
        }
    )


def flat(row: dict[str, Any], depth: int) -> dict[str, Any]:
    """A row of the script under the column names of the package."""
    rms = row["act_rms"] or [None] * (depth + 1)
    return {name: row[name] for name in plain_toy.SHOWN} | {f"act_rms_{layer}": x for layer, x in enumerate(rms)}


def assert_equal(record: RunRecord, rows: list[dict[str, Any]], s: Settings) -> None:
    """Every cell of the record's curve within the tolerance of the plain run's, and empty where that one is empty."""
    expected = [flat(row, s.depth) for row in rows]
    assert set(record.curve) == set(expected[0])
    for column, values in record.curve.items():
        plain = [row[column] for row in expected]
        assert [x is None for x in values] == [x is None for x in plain], column
        got, want = ([float(x) for x in cells if x is not None] for cells in (values, plain))
        np.testing.assert_allclose(got, want, rtol=RTOL[s.dtype], atol=0, err_msg=column)


def assert_package_equals_plain(
    lanes: tuple[dict[str, Any], ...] = LANES, library: Library | None = None, **settings: Any
) -> None:
    """Train a stack of `lanes`, its middle lane alone, and each lane by the script; they must agree."""
    all_settings = [Settings(**{**TINY, **settings, **lane}) for lane in lanes]
    plain = [plain_toy.run(s) for s in all_settings]
    assert len({rows[-1]["val_loss"] for rows in plain}) == len(lanes), "lanes that do not differ prove nothing"
    specs, engine = [spec_of(s) for s in all_settings], Engine(fused=library.name if library else "")
    for record, rows, s in zip(
        train_stack(specs, thresholds=Thresholds(), engine=engine), plain, all_settings, strict=True
    ):
        assert_equal(record, rows, s)
    (alone,) = train_stack(specs[1:2], thresholds=Thresholds(), engine=engine)
    assert_equal(alone, plain[1], all_settings[1])


def shipped(catalogue: Catalogue) -> list[str]:
    return [name for name in catalogue if name not in catalogue.added]


def allowed(norm: str, placement: str, mixer: str = "mean") -> bool:
    """Whether the package builds such a net."""
    try:
        ModelSpec(norm=norm, placement=placement, mixer=mixer)
    except ValueError:
        return False
    return True


def trained(spec: RunSpec, library: Library | None = None) -> tuple[Stack, list[float], float]:
    """One lane trained by hand, its last gradients at its leaves; training losses and the last validation loss."""
    stack, task = Stack([spec], library=library), TASKS[spec.task.name](spec.task)
    data, steps = TrainingData(task, spec), range(1, spec.train.steps + 1)
    tokens_KSBT = np.stack([data.next()[None] for _ in steps])
    inputs = stack.inputs(1, tokens_KSBT, np.array([[rate(spec, step)] for step in steps]))
    stack.profile(torch.from_numpy(tokens_KSBT[0]))
    gradients: list[Tensor] = []
    original = stack.gradients

    def kept(tokens_SBT: Tensor) -> tuple[Tensor, Tensor]:
        loss_S, grad_SP = original(tokens_SBT)
        gradients.append(grad_SP.clone())
        return loss_S, grad_SP

    stack.gradients = kept  # type: ignore[method-assign]
    losses = [float(stack.step(inputs.at(k)).loss_S) for k in range(len(steps))]
    for leaf, grad_P in zip(stack.leaves, gradients[-1][0].split([leaf.numel() for leaf in stack.leaves]), strict=True):
        leaf.grad = grad_P.view(leaf.shape)
    return stack, losses, float(stack.evaluate(torch.from_numpy(validation_set(task)))[0])


def leaves(ours: Any, theirs: Any) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Every parameter of a net of one lane beside that of the plain net."""
    yield "embedding", ours.embedding.weight, theirs.embedding.weight
    modules = [("head", [ours.head], [theirs.head]), ("final norm", [ours.final_norm], [theirs.final_norm])]
    for i, (block, plain) in enumerate(zip(ours.blocks, theirs.blocks, strict=True), 1):
        modules += [
            (f"mixer {i}", [block.mixer], [plain.mix]),
            (f"ffn {i}", [block.ffn], [plain.ffn_in, plain.ffn_out]),
        ]
        for name, join in (("mixer", plain.join1), ("ffn", plain.join2)):
            modules += [(f"norms of {name} {i}", getattr(block, f"{name}_norms"), join.children())]
            own = getattr(block, f"{name}_placement").parameters()
            yield from ((f"placement of {name} {i}", *pair) for pair in zip(own, join.parameters(False), strict=True))
    for name, mine, plain in modules:
        parameters = ([p for module in side for p in module.parameters()] for side in (mine, plain))
        yield from ((name, *pair) for pair in zip(*parameters, strict=True))


def assert_leaves_equal(library: Library | None = None, **settings: Any) -> None:
    """Train one lane (by the fused step of `library`, if given) and the plain run: every loss, parameter and last
    gradient must agree."""
    s = Settings(**{**TINY, "dtype": "float64", "eval_every": 20, **settings})
    rows, plain = plain_toy.train(s)
    stack, losses, val_loss = trained(spec_of(s), library)
    want = [*(row["train_loss"] for row in rows[1:]), rows[-1]["val_loss"]]
    np.testing.assert_allclose([*losses, val_loss], want, rtol=RTOL[s.dtype], atol=0)
    pairs = list(leaves(stack.model, plain))
    assert sum(ours.numel() for _, ours, _ in pairs) == stack.params_SP.shape[1]
    assert sum(theirs.numel() for *_, theirs in pairs) == sum(p.numel() for p in plain.parameters())
    for kind in ("data", "grad"):
        largest = max(float(getattr(theirs, kind).abs().max()) for *_, theirs in pairs)
        for name, ours, theirs in pairs:
            got, plainly = getattr(ours, kind).squeeze(), getattr(theirs, kind).squeeze()
            linear = plainly.dim() == 2 and name != "embedding"
            apart = float((got - (plainly.T if linear else plainly)).abs().max()) / largest
            assert apart <= RTOL[s.dtype], f"{kind} of {name}: {apart:.1e} of the largest entry apart"
