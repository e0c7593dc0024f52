"""A lane is an island: alone or in any company its bits are the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tiny_nets import allowed, tiny, train

from normlab.catalogue import NORMS, PLACEMENTS
from normlab.config.schema import Thresholds
from normlab.model.layers import ALIGN
from normlab.store import curve_csv, strict_json
from normlab.train.loop import train_stack
from normlab.train.stack import Stack

# Sizes that fill a vector register and sizes that do not: kernels treat the rest of a register in another way.
SIZES = [{"model__width": 8, "model__hidden": 16}, {"model__width": 10, "model__hidden": 14, "task__vocab": 12}]
# Lanes that do not start on 16 bytes: without AVX-512 the last digits of MKL's products would depend on that.
RAGGED = {"model__width": 5, "model__hidden": 7}


def cases() -> Iterator[Any]:
    """Every norm and every placement, in both sizes, wide and narrow."""
    for norm in NORMS:
        yield from itertools.product([norm], ["pre"], ["mean"], ["float32"], SIZES)
        if allowed(model__norm=norm, model__placement="post"):
            yield norm, "post", "mean", "float64", SIZES[1]
    for norm, placement in itertools.product(("layernorm", "none"), PLACEMENTS):
        if placement != "pre" and allowed(model__norm=norm, model__placement=placement):
            yield norm, placement, "mean", "float32", SIZES[1]
    yield "layernorm", "pre", "mean", "float32", RAGGED
    yield "layernorm", "post", "linear", "float64", RAGGED
    yield from itertools.product(["layernorm"], ["pre"], ["linear"], ["bfloat16", "float16"], SIZES)


def written(record) -> str:  # noqa: ANN001
    return strict_json(record.run) + curve_csv(record.curve)


@pytest.mark.parametrize(("norm", "placement", "mixer", "precision", "size"), [*cases()])
def test_any_company_leaves_a_lane_bit_equal(norm, placement, mixer, precision, size) -> None:  # noqa: ANN001
    shared = {"model__norm": norm, "model__placement": placement, "model__mixer": mixer, "train__precision": precision}
    specs = [
        tiny(**shared, **size),
        tiny(**shared, **size, seed=1, optim__lr=3e-3, optim__warmup=2),
        tiny(**shared, **size, seed=2, optim__lr=1e20),  # blows up
        tiny(**shared, **size, seed=3, optim__clip=0.05, optim__weight_decay=0.1),
    ]
    alone = [written(train(spec)[0]) for spec in specs]
    assert len(set(alone)) == len(alone)
    for order in ([0, 1, 2, 3], [3, 0], [2, 1, 0]):
        together = [written(record) for record in train(*[specs[i] for i in order])]
        assert together == [alone[i] for i in order]


def test_a_neighbour_that_ends_in_nan_changes_nothing() -> None:
    calm = [tiny(seed=seed, model__norm="none") for seed in (0, 1)]
    wild = tiny(seed=2, model__norm="none", optim__lr=1e30)
    with_it = train(calm[0], wild, calm[1])
    assert with_it[1].run["outcome"] == "nan"
    assert [written(r) for r in (with_it[0], with_it[2])] == [written(r) for r in train(*calm)]


@pytest.mark.parametrize("steps", [12, 25])
def test_a_lane_that_ends_while_it_warms_up_is_an_island_too(steps: int) -> None:
    shared = {"model__norm": "none", "train__steps": steps, "train__eval_every": steps, "optim__warmup": 11}
    doomed, calm = tiny(**shared, optim__lr=1e30), tiny(**shared, seed=1)
    (alone,) = train(doomed)
    assert alone.run["onset"]["step"] < 10 and alone.run["built"]["lr"] < 1e30
    assert written(train(calm, doomed)[1]) == written(alone)


def test_a_frozen_lane_keeps_its_history_and_no_more() -> None:
    (record,) = train(tiny(model__norm="none", optim__lr=1e30, train__steps=30))
    onset = record.run["onset"]["step"]
    assert record.run["steps"] == onset < 30
    assert record.curve["step"] == list(range(onset + 1))
    assert {len(column) for column in record.curve.values()} == {onset + 1}
    loss = record.run["loss"]
    assert loss["final"] is None and loss["best"] is None and loss["best_step"] is None and loss["initial"] > 0
    assert '"final": null' in strict_json(record.run)


def test_every_lane_begins_at_a_whole_register() -> None:
    params_SP = Stack([tiny(model__width=5, model__hidden=6, seed=seed) for seed in (0, 1)]).params_SP
    assert params_SP.shape[1] % ALIGN and params_SP.stride(0) % ALIGN == 0


def test_stacks_of_several_structures_are_refused() -> None:
    with pytest.raises(ValueError, match="one structure"):
        train(tiny(), tiny(model__depth=3))


def test_progress_is_told_and_may_stop_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("normlab.train.loop.PROGRESS_SECONDS", -1.0)
    seen = []

    def stop(progress) -> None:  # noqa: ANN001
        seen.append(progress)
        if progress.step > 10:
            raise KeyboardInterrupt

    specs = [tiny(train__steps=40, train__eval_every=40, seed=seed) for seed in (0, 1)]
    with pytest.raises(KeyboardInterrupt):
        train_stack(specs, thresholds=Thresholds(), on_progress=stop)
    assert [p.step for p in seen] == [10, 20] and seen[0].steps == 40
    assert len(seen[0].losses) == 2 and seen[0].alive == [True, True]


def test_two_threads_are_another_circumstance_not_another_result() -> None:
    # Stated tolerance: sums are cut otherwise, so the last digits move; hence one thread a worker.
    before = torch.get_num_threads()
    losses = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            losses.append(train(tiny(model__width=64))[0].run["loss"]["final"])
    finally:
        torch.set_num_threads(before)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
