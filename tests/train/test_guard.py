"""Entries that would give wrong results are refused before training, by name; what leaks the future is marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from registered import only_here
from tiny_nets import tiny
from torch import Tensor

from normlab.catalogue import NORMS, OPTIMIZERS, PLACEMENTS, TASKS
from normlab.model.norms import Norm
from normlab.model.part import CannotBuild
from normlab.model.placements import Placement
from normlab.train.guard import LEAK, Unsound, inspect
from normlab.train.optim import SGD
from normlab.train.tasks import Affine


@pytest.fixture(autouse=True)
def cleanly() -> Iterator[None]:
    with only_here():
        yield


def look(**fields: Any) -> list[str]:
    return inspect(tiny(**{f"model__{name}": value for name, value in fields.items()}))


class OverAll(Norm):
    """Centred by the mean of everything, all lanes included."""

    def normalise(self, x_SBTD: Tensor) -> Tensor:
        return x_SBTD - x_SBTD.mean(dim=(0, 1, 2, 3), keepdim=True)


class Shared(Norm):
    """Divides by a running size that all lanes share, after the first pass."""

    def start(self, width: int) -> None:
        self.register_buffer("size", torch.ones(1))

    def normalise(self, x_SBTD: Tensor) -> Tensor:
        y_SBTD = x_SBTD / self.size
        if self.training:
            self.size.lerp_(x_SBTD.abs().mean(), 0.1)
        return y_SBTD


class InPlace(Norm):
    def forward(self, x_SBTD: Tensor) -> Tensor:
        return x_SBTD.mul_(2.0)


class Narrow(Norm):
    def normalise(self, x_SBTD: Tensor) -> Tensor:
        return x_SBTD[..., :1]


class Single(Norm):
    def forward(self, x_SBTD: Tensor) -> Tensor:
        return x_SBTD.float() * 2


class Failing(Norm):
    def normalise(self, x_SBTD: Tensor) -> Tensor:
        raise RuntimeError("not\nyet")


class OverTime(Norm):
    """The mean over time of each lane and channel."""

    def normalise(self, x_SBTD: Tensor) -> Tensor:
        return x_SBTD - x_SBTD.mean(2, keepdim=True)


class LanesOverTime(Norm):
    """The mean over batch and time of each lane."""

    def normalise(self, x_SBTD: Tensor) -> Tensor:
        return x_SBTD - x_SBTD.mean((1, 2), keepdim=True)


@pytest.mark.parametrize(
    ("norm", "words"),
    [
        (OverAll, "norm 'mine': moving one lane moved another"),
        (Shared, "norm 'mine': moving one lane moved another"),
        (InPlace, "norm 'mine' writes to its input"),
        (Narrow, r"norm 'mine' gives \(2, 3, 6, 1\) in float64 for an input of \(2, 3, 6, 8\) in float64"),
        (Failing, "norm 'mine' cannot be run: RuntimeError: not yet$"),
        (Single, r"norm 'mine' gives \(2, 3, 6, 8\) in float32 for an input of"),
    ],
)
def test_a_norm_that_would_give_wrong_results_is_refused(norm: type[Norm], words: str) -> None:
    NORMS["mine"] = norm
    with pytest.raises(Unsound, match=words):
        look(norm="mine")


@pytest.mark.parametrize("norm", [OverTime, LanesOverTime])
def test_a_norm_that_sees_later_tokens_is_marked(norm: type[Norm]) -> None:
    NORMS["mine"] = norm
    assert look(norm="mine") == [f"{LEAK} (norm 'mine')"]
    assert look(norm="rmsnorm") == []


class Gate(Placement):
    """x + a f(norm(x)) with a gate that starts closed."""

    def start(self, width: int) -> None:
        self.gate = self.vector(1, 0.0)

    def forward(self, x_SBTD: Tensor, sublayer: Any, norms: Sequence[Any]) -> Tensor:
        return x_SBTD + self.gate * sublayer(norms[0](x_SBTD))


class Later(Placement):
    """Looks into the future from step 100 on."""

    def forward(self, x_SBTD: Tensor, sublayer: Any, norms: Sequence[Any]) -> Tensor:
        ahead_SBTD = x_SBTD.flip(2)
        return torch.where(self.clock > 100, ahead_SBTD, x_SBTD) + sublayer(norms[0](x_SBTD))


def test_a_closed_gate_hides_nothing() -> None:
    NORMS["mine"], PLACEMENTS["gate"] = OverTime, Gate
    assert look(norm="mine", placement="gate") == [f"{LEAK} (norm 'mine')"]
    assert look(placement="gate") == []


def test_every_phase_of_a_placement_is_looked_at() -> None:
    PLACEMENTS["later"] = Later
    assert look(placement="later") == [f"{LEAK} (placement 'later')"]


def test_what_is_unusual_is_said() -> None:
    (clause,) = look(norm="dyt", placement="post")
    assert clause.startswith("unusual: norm 'dyt'") and look(norm="dyt", placement="pre") == []


class Needy(Norm):
    def __init__(self, width: int, more: int) -> None:
        super().__init__(width)


def test_a_constructor_that_does_not_fit_is_named() -> None:
    NORMS["mine"] = Needy
    with pytest.raises(CannotBuild, match="norm 'mine' cannot be built: TypeError: .*lanes"):
        look(norm="mine")


class Short(Affine):
    def draw(self, rng: np.random.Generator, count: int) -> Any:
        return super().draw(rng, count)[:, 1:]


class TooLarge(Affine):
    def draw(self, rng: np.random.Generator, count: int) -> Any:
        return super().draw(rng, count) + 1000


class Broken(Affine):
    def losses(self) -> Any:
        raise KeyError("no table")


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (Short, r"task 'mine': expected sequences \(2, 6\) in int64, got \(2, 5\)"),
        (TooLarge, "task 'mine': expected tokens 0 to 10, got"),
        (Broken, "task 'mine' cannot be drawn from: KeyError: 'no table'"),
    ],
)
def test_a_task_that_does_not_fit_is_refused(task: type[Affine], words: str) -> None:
    TASKS["mine"] = task
    with pytest.raises(Unsound, match=words):
        inspect(tiny(task__name="mine"))


class Mixed(SGD):
    def update(self, params_SP: Tensor, grad_SP: Tensor, rate_S1: Tensor, corrections_2: Tensor) -> None:
        super().update(params_SP, grad_SP / grad_SP.norm(), rate_S1, corrections_2)


class Refusing(SGD):
    def update(self, params_SP: Tensor, grad_SP: Tensor) -> None:  # type: ignore[override]
        pass


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        (Mixed, "optimizer 'mine': moving one lane moved another"),
        (Refusing, "optimizer 'mine' cannot be used: TypeError"),
    ],
)
def test_an_optimizer_that_does_not_fit_is_refused(optimizer: type[SGD], words: str) -> None:
    OPTIMIZERS["mine"] = optimizer
    with pytest.raises(Unsound, match=words):
        inspect(tiny(optim__name="mine"))


@pytest.mark.parametrize("placement", list(PLACEMENTS))
def test_no_shipped_norm_but_batchnorm_leaks(placement: str) -> None:
    for norm in NORMS:
        try:
            spec = tiny(model__norm=norm, model__placement=placement, model__depth=4)
        except ValueError:
            continue  # A pair that is refused.
        leaks = [clause for clause in inspect(spec) if clause.startswith(LEAK)]
        assert leaks == ([f"{LEAK} (norm 'batchnorm')"] if norm == "batchnorm" else [])
