"""The benchmark: what it counts, that it times the real steps, and that it runs. Nothing here asserts a speed."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from normlab.config.schema import ModelSpec, RunSpec, TaskSpec, Thresholds, TrainSpec
from normlab.fused.build import Library
from normlab.train.loop import train_stack
from normlab.train.stack import Stack

SCRIPTS = Path(__file__).parents[1] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import plain_toy  # noqa: E402
from bench import single, sweeps  # noqa: E402
from bench.crew import CannotRun, Crew, steps_within  # noqa: E402
from bench.flops import gemm_flops, run_step_flops  # noqa: E402
from bench.sizes import QUICK, Recipe  # noqa: E402
from bench.work import Gemm, Lanes, Naive, lane_specs, settings_of  # noqa: E402


def spec_of(depth: int = 2, width: int = 8, hidden: int = 12, vocab: int = 16, length: int = 5) -> RunSpec:
    task = TaskSpec(vocab=vocab, length=length, val_size=8)
    return RunSpec(
        task=task,
        model=ModelSpec(depth=depth, width=width, hidden=hidden),
        train=TrainSpec(steps=25, batch=3, eval_every=25),
    )


NETS: dict[str, dict[str, int]] = {
    "small": {},
    "deep": {"depth": 5},
    "wide": {"width": 24, "hidden": 8},
    "long": {"length": 11, "vocab": 7},
}


@pytest.mark.parametrize("net", NETS)
def test_operations_are_those_that_torch_counts_in_the_plain_script(net: str) -> None:
    spec = spec_of(**NETS[net])
    s = settings_of(spec)
    model, tokens = plain_toy.build(s), plain_toy.sequences(plain_toy.stream_of(0, 1), s.batch, s)
    with FlopCounterMode(display=False) as counter:
        plain_toy.loss_of(model, tokens, s)[0].backward()
    assert run_step_flops(spec) == counter.get_total_flops()


@pytest.mark.parametrize("net", NETS)
def test_operations_are_those_of_a_lane_but_for_the_mean(net: str) -> None:
    spec = spec_of(**NETS[net])
    with FlopCounterMode(display=False) as counter:
        Stack(lane_specs(spec, 2)).gradients(torch.zeros(2, 3, spec.task.length + 1, dtype=torch.int64))
    mean = 2 * spec.model.depth * 2 * 3 * spec.task.length**2 * spec.model.width
    assert 2 * (run_step_flops(spec) + mean) == counter.get_total_flops()


def test_operations_of_the_matrix_product() -> None:
    with FlopCounterMode(display=False) as counter:
        Gemm(6).step()
    assert gemm_flops(6) == counter.get_total_flops()


def test_the_plain_step_is_that_of_the_plain_script() -> None:
    work = Naive(spec_of())
    kept = []
    for _ in range(5):
        work.step()
        kept.append(work.kept)
    plain = plain_toy.run(dataclasses.replace(work.s, steps=5))
    assert kept == [(row["train_loss"], row["grad_norm"]) for row in plain[1:]]


def test_both_evaluate_after_a_quarter_of_the_steps_on_a_quarter_of_the_sequences(library: Library) -> None:
    spec = spec_of()
    plain, fused = Naive(spec), Lanes(Stack([spec], library=library))
    for step in range(1, 7):
        plain.step(), fused.step()
        found = fused.log.lanes[0].evaluations
        assert len(found) == (step == 6) == hasattr(plain, "evaluated"), step
    assert plain.held_out.tolist() == fused.held_out_BT.tolist() and len(plain.held_out) == 2
    assert float(found[6][0]) == pytest.approx(plain.evaluated, rel=1e-5)


def test_the_bare_step_trains_the_same_net() -> None:
    full, bare = Naive(spec_of()), Naive(spec_of(), bare=True)
    for _ in range(3):
        full.step(), bare.step()
    assert all(torch.equal(a, b) for a, b in zip(full.model.parameters(), bare.model.parameters(), strict=True))
    assert not torch.equal(full.model.head.weight, plain_toy.build(full.s).head.weight)


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_the_bare_step_leaves_its_device_for_nothing(placement: str) -> None:
    spec = spec_of()
    post = spec.model.model_copy(update={"placement": placement})
    # "meta" holds no numbers: an operation with a tensor of the CPU, or a look at a value, raises.
    work = Naive(spec.model_copy(update={"model": post}), bare=True, device="meta")
    work.step()
    assert work.loss.device.type == "meta" and work.s.placement == placement


def test_the_step_of_the_lanes_is_that_of_the_engine() -> None:
    specs = lane_specs(spec_of(), 2)
    work = Lanes(Stack(specs))
    for _ in range(20):
        work.step()
    for log, record in zip(work.log.lanes, train_stack(specs, thresholds=Thresholds()), strict=True):
        assert log.train_loss == record.curve["train_loss"][1:21]
        assert log.grad_norm == record.curve["grad_norm"][1:21]


@pytest.mark.parametrize(
    ("ends", "steps"),
    [([11.0, 12.0, 13.0], 2.0), ([11.0, 12.0, 14.0], 2.0), ([10.5, 11.5, 12.5], 2.5), ([14.0], 0.5), ([11.0], 1.0)],
)
def test_a_step_under_way_counts_by_its_share(ends: list[float], steps: float) -> None:
    assert steps_within(10.0, 2.0, ends) == steps


@pytest.mark.parametrize("p", [0.5, 1.0, 1.3, 2.0])
def test_exponents_are_found_again(p: float) -> None:
    counts = (10, 100, 300)
    assert sweeps.exponent_of(counts, [4 + 0.1 * n**p for n in counts]) == pytest.approx(p, abs=1e-4)
    assert single.fitted_exponent(counts, [0.1 * n**p for n in counts]) == pytest.approx(p)


def test_no_exponent_where_the_times_do_not_rise() -> None:
    assert sweeps.exponent_of((10, 100, 300), [4.0, 3.0, 9.0]) is None
    assert sweeps.exponent_of((10, 100, 300), [4.0, 5.0, 5.01]) is None


def sample(done: int, parent: float, **workers: float) -> dict[str, Any]:
    return {"done": done, "parent_mb": parent, "workers_mb": workers}


def test_growth_is_of_the_sweep_alone() -> None:
    samples = [sample(0, 20.0, a=100.0), sample(99, 60.0, a=250.0, b=260.0), sample(102, 61.0, a=300.0, b=300.0)]
    samples += [sample(600, 61.5, a=300.0, b=350.0), sample(998, 62.0, a=301.0, b=304.0)]
    samples += [sample(1000, 400.0, font=9.0), sample(1000, 500.0)]
    found = sweeps.growth(samples)
    assert (found["from_run"], found["to_run"]) == (102, 998)
    assert (found["parent_growth_mb"], found["worker_growth_mb"], found["peak_mb"]) == (1.0, 4.0, 711.5)
    assert sweeps.growth(samples[:2])["worker_growth_mb"] is None


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    with Crew(2, as_worker=True) as both:
        yield both


def test_a_recipe_that_fails_costs_its_row_only(crew: Crew) -> None:
    broken = Recipe("plain", QUICK.spec, lanes=0)
    with pytest.raises(CannotRun, match="Error"):
        crew.rate(broken, 0.01)
    assert crew.rate(Recipe("gemm", size=8), 0.01) > 0


@pytest.fixture(scope="module")
def result(library: Library) -> dict[str, Any]:
    command = [sys.executable, str(SCRIPTS / "bench_engine.py"), "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_all_is_measured(result: dict[str, Any]) -> None:
    assert result["failed"] == {} and result["long"] is None
    assert all(result[key] is not None for key in ("memory", "depth", "runs", "overhead", "startup"))
    assert {
        "rows",
        "speedup_over_naive",
        "speedup_over_processes",
        "share_of_gemm_peak",
        "torch",
        "cpu",
        "threads",
    } <= result.keys()
    assert [row["row"] for row in result["rows"]] == ["1", "1b", "2", "3", "4", "5", "6a", "6b"]


def test_ratios_are_taken_round_by_round(result: dict[str, Any]) -> None:
    by_row = {row["row"]: row for row in result["rows"]}
    best = by_row["4"]["rounds"]
    for row, name in (("1", "speedup_over_naive"), ("2", "speedup_over_processes")):
        others = by_row[row]["rounds"]
        assert len(others) == len(best) == QUICK.rounds
        # The median of two values is their mean.
        assert result[name] == pytest.approx(sum(a / b for a, b in zip(best, others, strict=True)) / 2)
    flops = result["flops_per_run_step"] / 1e9
    share = sum(rate * flops / by_row["6b"]["peak_gflops"] for rate in best) / 2
    assert result["share_of_gemm_peak"] == pytest.approx(share)
    assert by_row["6b"]["peak_gflops"] >= max(by_row["6b"]["rounds"])
    assert {row["row"] for row in result["stacks"]} == {*(f"4/{n}" for n in QUICK.lanes), "5/2"}


def test_the_parts_of_a_run_make_it_whole(result: dict[str, Any]) -> None:
    # Medians over two rounds are means, and those add up.
    assert sum(part["median"] for part in result["overhead"]["percent"].values()) == pytest.approx(100)


def test_memory_and_sweeps_are_real(result: dict[str, Any]) -> None:
    assert all(point["peak_mb"] > point["imported_mb"] > 10 for point in result["memory"])
    assert [point["runs"] for point in result["runs"]["points"]] == list(QUICK.sweeps)
    assert all(0 < point["sweep_seconds"] < point["command_seconds"] for point in result["runs"]["points"])


def test_the_text_shows_every_part(result: dict[str, Any]) -> None:
    from bench.text import text

    shown = text(result)
    for words in (
        "x row 2",
        "x row 1",
        "GFLOP/s",
        "memory of a fresh",
        "depth^p",
        "runs^p",
        "evaluation every 100",
        "first step",
    ):
        assert words in shown, words


def test_an_unknown_part_is_refused() -> None:
    command = [sys.executable, str(SCRIPTS / "bench_engine.py"), "--only", "speed"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "expected some of rows" in done.stderr and "'speed'" in done.stderr
