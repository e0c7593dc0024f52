from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import axis, tiny_study

from normlab.config.engine import Engine
from normlab.config.load import find_config, load_study
from normlab.config.plan import expand, structure_of
from normlab.execute.stacks import MAX_LANES, Stack, make_stacks, makespan


@settings(deadline=None, max_examples=40)
@given(
    depths=st.lists(st.integers(1, 40), min_size=1, max_size=4, unique=True),
    seeds=st.integers(1, 8),
    workers=st.integers(1, 9),
    lanes=st.sampled_from([1, 2, MAX_LANES, None]),
)
def test_every_run_is_in_one_stack_of_its_structure(depths: list[int], seeds: int, workers: int, lanes: int) -> None:
    plan = expand(tiny_study(range(seeds), axes=(axis("model.depth", depths), axis("optim.lr", [1e-3, 1e-2]))))
    stacks = make_stacks(plan, workers, lanes)
    assert Counter(run.id for stack in stacks for run in stack.runs) == Counter(run.id for run in plan)
    for stack in stacks:
        assert len({structure_of(run.spec) for run in stack.runs}) == 1
        assert lanes is None or len(stack.runs) <= lanes
    assert [stack.cost for stack in stacks] == sorted((stack.cost for stack in stacks), reverse=True)
    assert stacks == make_stacks(plan, workers, lanes)
    if lanes is None:
        assert len(stacks) == len(depths)
    else:
        assert makespan(stacks, workers) <= makespan(make_stacks(plan, 1, lanes), workers)


def test_the_fused_step_has_runs_alone_and_what_it_does_not_know_has_lanes() -> None:
    norms = axis("model.norm", ["layernorm", "scalenorm"])
    plan = expand(tiny_study(range(6), axes=(norms,)))
    stacks = make_stacks(plan, 1, 3, Engine(fused="x86-64-v3, g++ 12"))
    sizes = {norm: [len(s.runs) for s in stacks if s.runs[0].spec.model.norm == norm] for norm in norms_of(stacks)}
    assert sizes == {"scalenorm": [3, 3], "layernorm": [1] * 6}
    assert all(stack.fused == (stack.runs[0].spec.model.norm == "layernorm") for stack in stacks)
    alone = {stack.fused: stack.retries(stack.runs, died=True)[0] for stack in stacks}
    assert alone[True].fused and not alone[False].fused and alone[True].cost < alone[False].cost


def norms_of(stacks: list[Stack]) -> set[str]:
    return {stack.runs[0].spec.model.norm for stack in stacks}


@pytest.mark.parametrize("name", ["postln", "preln", "collapse", "depth", "warmup", "lr_wide"])
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_workers_end_nearly_together_on_the_shipped_studies(name: str, workers: int) -> None:
    stacks = make_stacks(expand(load_study(find_config(name), seeds="0-2")), workers)
    assert makespan(stacks, workers) <= 1.2 * sum(stack.cost for stack in stacks) / workers


@pytest.mark.parametrize(
    ("lanes", "attempt", "died", "again"),
    [
        (3, 0, False, True),
        (3, 0, True, True),
        (2, 0, False, True),
        (1, 0, False, False),  # it would raise again
        (1, 0, True, True),  # perhaps the machine's fault
        (1, 1, True, False),
    ],
)
def test_lost_runs_are_tried_once_more_each_alone(lanes: int, attempt: int, died: bool, again: bool) -> None:
    runs = tuple(expand(tiny_study(range(2)))[:lanes])
    lost = runs[-2:]  # the first of three was published
    retries = Stack(runs, attempt).retries(lost, died)
    assert retries == ([Stack((run,), attempt=1) for run in lost] if again else [])


def test_parts_of_a_stack_are_of_its_attempt() -> None:
    runs = tuple(expand(tiny_study(range(4)))[:7])
    parts = Stack(runs, attempt=1).split(3)
    assert [len(part.runs) for part in parts] == [3, 2, 2] and {part.attempt for part in parts} == {1}
    assert tuple(run for part in parts for run in part.runs) == runs
