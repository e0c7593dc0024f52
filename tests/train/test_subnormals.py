"""Subnormal numbers are flushed wherever a net is computed, nowhere else, and the records say so."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from registered import only_here
from tiny_nets import tiny, train
from torch import Tensor

from normlab.execute.manifest import environment
from normlab.model.norms import NORMS, Norm
from normlab.train import loop
from normlab.train.stack import Stack
from normlab.train.subnormals import flushes, flushing
from normlab.train.tasks import TrainingData

KNOWN = ("x86_64", "AMD64", "aarch64", "arm64")  # asking the code under test would hide that it does nothing
pytestmark = pytest.mark.skipif(platform.machine() not in KNOWN, reason="not known to flush subnormal numbers")
SMALLEST = sys.float_info.min


@pytest.fixture
def seen() -> Iterator[list[bool]]:
    """Whether subnormals were flushed at each call of the norm `spy`, forward and backward."""
    found: list[bool] = []

    class Spy(Norm):
        def normalise(self, x_SBTD: Tensor) -> Tensor:
            found.append(flushes())
            y_SBTD = x_SBTD * 1.0
            if y_SBTD.requires_grad:
                y_SBTD.register_hook(lambda grad: found.append(flushes()))
            return y_SBTD

    with only_here():
        NORMS["spy"] = Spy
        yield found


def test_a_net_in_training_flushes_and_its_surroundings_do_not(seen: list[bool], monkeypatch) -> None:  # noqa: ANN001
    def drawn(self: TrainingData) -> np.ndarray:
        assert not flushes()
        return draw(self)

    draw = TrainingData.next
    monkeypatch.setattr(TrainingData, "next", drawn)
    monkeypatch.setattr(loop, "inspect", lambda spec: [])  # looks at the net before it trains
    (record,) = train(tiny(model__norm="spy", model__placement="admin"))
    assert len(seen) > 6 * 4 and all(seen)
    assert not flushes() and SMALLEST / 2 > 0
    assert record.timing["flush_subnormals"] is True


def test_the_search_for_a_producer_flushes_too(seen: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "inspect", lambda spec: [])
    (record,) = train(tiny(model__norm="spy", model__final_norm="none", optim__lr=1e30))
    assert record.run["onset"]["producer"] and all(seen)


def test_it_is_put_back_as_it_was_even_after_an_error() -> None:
    with pytest.raises(KeyboardInterrupt), flushing():
        assert flushes()
        raise KeyboardInterrupt
    assert not flushes()
    with flushing():
        with flushing():
            pass
        assert flushes()
    assert not flushes()


def test_moments_that_fade_become_zero() -> None:
    net = Stack([tiny()])
    with torch.no_grad():  # a dead end: no gradient reaches any weight
        for dead in (net.model.head.weight, net.model.final_norm.gain, net.model.final_norm.bias):
            dead.zero_()
    net.optimizer.mean_SP.fill_(1.3e-38)
    net.optimizer.square_SP.fill_(1.2e-38)
    inputs = net.inputs(1, np.ones((30, 1, 4, 6), dtype=np.int64), np.full((30, 1), 1e-30))
    for k in range(30):
        net.step(inputs.at(k))
    for moment_SP in (net.optimizer.mean_SP, net.optimizer.square_SP):
        assert not bool(moment_SP.view(torch.int32).bitwise_and(0x7FFFFFFF).any())


def test_the_manifest_says_what_is_set_for_all_workers() -> None:
    assert environment("cpu", "a CPU")["flush_subnormals"] is True
