"""The script of the GPU checks, as far as it goes without one."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

SCRIPTS = Path(__file__).parent.parent / "scripts"


@pytest.fixture
def check_gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import check_gpu

    monkeypatch.setattr(check_gpu, "STRUCTURES", (("pre", 1, "layernorm"), ("pre", 1, "none")))
    monkeypatch.setattr(check_gpu, "CHECK_STEPS", 3)
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
