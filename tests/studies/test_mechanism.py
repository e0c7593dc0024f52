"""The watched run trains exactly as the real one does, and sees what is there."""

from __future__ import annotations

import multiprocessing

import pytest
import torch

from normlab.config.schema import RunSpec, Thresholds
from normlab.studies import mechanism
from normlab.studies.mechanism_watch import look, number, watch, watched_steps
from normlab.train.loop import train_stack
from normlab.train.stack import Stack

BASE = RunSpec.model_validate(
    {
        "task": {"vocab": 11, "length": 5, "val_size": 20},
        "model": {"depth": 2, "width": 8, "hidden": 12},
        "optim": {"lr": 1e-2, "warmup": 3},
        "train": {"steps": 25, "batch": 4, "eval_every": 25},
    }
)


def specs(norm, seeds=(0, 1)):
    return [mechanism.changed(BASE, seed, model={"norm": norm}) for seed in seeds]


@pytest.mark.parametrize("norm", ["none", "layernorm"])
def test_watching_changes_no_bit_of_the_training(norm):
    watched = watch(specs(norm), lambda line: None)
    for lane, record in enumerate(train_stack(specs(norm), thresholds=Thresholds())):
        curve = [float(loss) for loss in record.curve["train_loss"] if loss is not None]
        assert [losses[lane] for losses in watched.losses] == curve
        norms = [float(value) for value in record.curve["grad_norm"] if value is not None]
        assert watched.largest_grad_norm[lane] == number(max(norms))
        row = next(row for row in watched.rows if row["step"] == 10 and row["seed"] == lane)
        assert row["grad_norm"] == number(norms[10]) and row["train_loss"] == number(curve[10])


def test_a_diverging_lane_is_noted_where_it_becomes_non_finite():
    wild = [mechanism.changed(BASE, 0, model={"norm": "none"}, optim={"lr": 1e9, "warmup": 0}, train={"steps": 8})]
    (record,) = train_stack(wild, thresholds=Thresholds())
    watched = watch(wild, lambda line: None)
    assert watched.onset == [record.run["onset"]["step"]]
    assert watched.rows[-1]["step"] == 8


def test_steps_that_are_watched():
    assert watched_steps(25) == [0, 10, 20, 25]
    steps = watched_steps(3000)
    assert len(steps) == 101 and {500, 550, 3000} <= set(steps) and 510 not in steps and steps == sorted(steps)


def test_shares_and_norms_are_those_of_known_activations():
    """Without input weights every input of the GELU is its bias, so the shares are set by hand."""
    stack = Stack(specs("none"))
    for block in stack.model.blocks:
        torch.nn.init.zeros_(block.ffn.inner.weight), torch.nn.init.zeros_(block.ffn.inner.bias)
    with torch.no_grad():
        stack.model.blocks[0].ffn.inner.bias[0, 0, :3] = -4.0  # 3 of 12 units in one of two blocks
        stack.model.blocks[0].ffn.inner.bias[0, 0, 3] = 3.5
    tokens_BT = torch.arange(10).view(2, 5)
    seen = look(stack, tokens_BT)
    assert seen["saturated_share"].tolist() == pytest.approx([4 / 24, 0])
    assert seen["off_share"].tolist() == pytest.approx([3 / 24, 0])
    norms_SN = torch.linalg.vector_norm(stack.model.embedding(tokens_BT.expand(2, -1, -1)), dim=-1).flatten(1)
    assert torch.allclose(seen["mean_LS"][0], norms_SN.mean(1)) and torch.allclose(
        seen["largest_LS"][0], norms_SN.amax(1)
    )
    assert seen["mean_LS"].shape == (3, 2)


def test_looking_leaves_no_hook_behind():
    stack = Stack(specs("layernorm"))
    look(stack, torch.zeros(1, 5, dtype=torch.long))
    assert not any(module._forward_hooks for module in stack.model.modules())


def test_both_conditions_in_their_own_processes_quick():
    settings, values = mechanism.measure(quick=True, say=lambda line: None, base=BASE, seeds=(0, 1))
    assert settings["seeds"] == [0] and settings["steps"] == 25  # fewer steps than quick asks for stay as they are
    found = values["collapse-mechanism"]
    assert [row["step"] for row in found["rows"]] == [0, 10, 20, 25] * 2
    expected = watch(specs("layernorm", (0,)), lambda line: None)
    assert [row for row in found["rows"] if row["norm"] == "layernorm"] == [
        {"norm": "layernorm", **row} for row in expected.rows
    ]
    peak = max(row["largest_forward_norm"] for row in expected.rows)
    assert found["largest_forward_norm"]["layernorm"] == {"by_seed": {"0": peak}}
    growth = values["growth-in-training"]
    assert growth["at_start"]["by_seed"]["0"] == expected.rows[0]["growth_per_layer"]
    assert growth["at_end"]["by_seed"]["0"] == expected.rows[-1]["growth_per_layer"]


def test_the_nets_are_those_of_the_collapse_study():
    spec = mechanism.collapse_spec()
    assert (spec.model.depth, spec.model.placement, spec.optim.lr, spec.train.steps) == (20, "pre", 1e-3, 3000)


def test_a_condition_that_dies_is_a_failure_and_leaves_no_child():
    with pytest.raises(RuntimeError, match="norm none died"):
        mechanism._in_processes({"none": []}, lambda line: None)
    assert not multiprocessing.active_children()
