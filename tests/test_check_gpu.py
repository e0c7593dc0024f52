"""The script of the GPU checks, as far as it goes without one."""

from __future__ import annotations

import dataclasses
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from normlab.train import loop, program
from normlab.train.stack import Stack

SCRIPTS = Path(__file__).parent.parent / "scripts"


@pytest.fixture
def check_gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import check_gpu

    monkeypatch.setattr(check_gpu, "STRUCTURES", (("pre", 1, "layernorm"), ("pre", 1, "none")))
    monkeypatch.setattr(check_gpu, "CHECK_STEPS", 3)
    monkeypatch.setattr(check_gpu, "COMPANY", 4)
    return check_gpu


def test_without_a_gpu_it_says_so(check_gpu: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["check_gpu.py"])
    assert check_gpu.main() == 0
    assert capsys.readouterr().out == "no CUDA device\n"


def test_the_lanes_that_are_compared_end_in_both_ways(check_gpu: Any) -> None:
    records = check_gpu.train(check_gpu.lanes(("pre", 1, "none"), "float32"), "cpu")
    assert [record.run["outcome"] == "nan" for record in records] == [False, False, False, True]


def test_a_gpu_that_computes_something_else_fails(check_gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = check_gpu.train

    def wrong(specs: list[Any], device: str) -> list[Any]:
        records = real(specs, "cpu")
        if device == "cpu":
            return records
        curve = {**records[0].curve, "train_loss": [None, *(1.1 * x for x in records[0].curve["train_loss"][1:])]}
        return [dataclasses.replace(records[0], curve=curve), *records[1:]]

    monkeypatch.setattr(check_gpu, "train", wrong)
    rows = check_gpu.agreement("cuda:0")
    assert len(rows) == 4 and not any(row["passed"] for row in rows)


def test_replayed_steps_that_differ_fail(check_gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = check_gpu.train, []

    def drifting(specs: list[Any], device: str) -> list[Any]:
        calls.append(device)
        records = real(specs, "cpu")
        return records[::-1] if len(calls) % 2 else records

    monkeypatch.setattr(check_gpu, "train", drifting)
    assert not any(row["passed"] for row in check_gpu.capture("cuda:0"))
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device's way on the CPU, the capture replaced by a plain call."""
    monkeypatch.setattr(loop, "Stack", partial(Stack, looks=False))
    monkeypatch.setattr(loop, "program_for", lambda stack: program.Captured(stack, lambda call, state: call))


@pytest.mark.usefixtures("called")
def test_a_lane_is_the_same_in_company(check_gpu: Any) -> None:
    rows = check_gpu.company("cpu")
    assert len(rows) == 4 and all(row["passed"] for row in rows)
    assert [row["found"] for row in rows] == [0.0] * 4  # On the CPU to the last bit.


@pytest.mark.usefixtures("called")
@pytest.mark.parametrize("changed", ["loss", "outcome"])
def test_a_lane_that_hangs_on_its_company_fails(check_gpu: Any, monkeypatch: pytest.MonkeyPatch, changed: str) -> None:
    real = check_gpu.train

    def swayed(specs: list[Any], device: str) -> list[Any]:
        records = real(specs, device)
        if len(specs) == 1:
            return records
        assert len(specs) == 6
        last = records[3]  # the second of the two that are alone too: 2 others, then these
        curve = {**last.curve, "train_loss": [None, *(1.1 * x for x in last.curve["train_loss"][1:])]}
        run = {**last.run, "outcome": "another"}
        records[3] = dataclasses.replace(last, **({"curve": curve} if changed == "loss" else {"run": run}))
        return records

    monkeypatch.setattr(check_gpu, "train", swayed)
    assert not any(row["passed"] for row in check_gpu.company("cpu"))


def test_the_plain_loop_is_that_of_the_table(check_gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Kept(check_gpu.Naive):  # type: ignore[misc]
        def __init__(self, *values: Any, **named: Any) -> None:
            super().__init__(*values, **named)
            made.append(self)

    monkeypatch.setattr(check_gpu, "Naive", Kept)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    for name, value in {"NETS": (("post", 1), ("pre", 2)), "RATES": (1e-3,), "NAIVE_STEPS": 2}.items():
        monkeypatch.setattr(check_gpu, name, value)
    timed = check_gpu.timing("cpu", 3, seeds=2)
    assert (timed["runs"], timed["steps"]) == (4, 3) and timed["speedup"] == timed["naive_seconds"] / timed["seconds"]
    assert [(work.s.placement, work.s.depth, work.done) for work in made] == [("post", 1, 12), ("pre", 2, 12)]
