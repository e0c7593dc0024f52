"""What is told of circumstances that differ, and of how a child or a stack ended."""

from __future__ import annotations

from typing import Any

import pytest

from normlab.execute.children import death
from normlab.execute.manifest import differing
from normlab.execute.worker import summary

HERE = {"commit": "c0ffee", "dirty": False, "device": "cpu", "threads": 1, "torch": "2.13", "normlab": "0.1"}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ({}, {}, []),
        ({"torch": "2.12"}, {}, ["torch 2.12 -> 2.13"]),
        ({"dirty": None}, {"dirty": True}, ["dirty None -> True"]),
        # A switch is written only where it is on.
        ({"fused": "x86-64-v3, g++ 12"}, {}, ["fused x86-64-v3, g++ 12 -> off"]),
        ({}, {"tf32": True}, ["tf32 off -> on"]),
        ({"tf32": False}, {}, []),
        ({}, {"flush_subnormals": True}, ["flush_subnormals off -> on"]),
        ({"cpu": "another", "python": "3.11"}, {}, []),
        (
            {"device": "cuda:0", "tf32": True},
            {"threads": 2},
            ["device cuda:0 -> cpu", "threads 1 -> 2", "tf32 on -> off"],
        ),
    ],
)
def test_circumstances_that_move_last_digits_are_told(
    old: dict[str, Any], new: dict[str, Any], told: list[str]
) -> None:
    assert differing({**HERE, **old}, {**HERE, **new}) == told


def test_what_one_manifest_does_not_say_is_told_either_way() -> None:
    less = {key: value for key, value in HERE.items() if key != "torch"}
    assert differing(less, HERE) == ["torch not told -> 2.13"] and differing(HERE, less) == ["torch 2.13 -> not told"]


@pytest.mark.parametrize(("code", "words"), [(-9, "signal 9"), (0, "exit code 0"), (3, "exit code 3")])
def test_the_end_of_a_child_in_words(code: int, words: str) -> None:
    assert death(code) == f"died ({words})"


def test_an_error_in_one_line() -> None:
    error = ValueError("\nthe reason\nand more")
    error.add_note("While running node X")
    assert summary(error) == "ValueError: the reason" and summary(RuntimeError()) == "RuntimeError"
