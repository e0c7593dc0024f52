"""Optimisers, schedules and clipping against torch's own."""

from __future__ import annotations

import math

import pytest
import torch

from normlab.config.schema import OptimSpec, RunSpec, TrainSpec
from normlab.train.optim import OPTIMIZERS, clip_factors, rate

RATES = [1e-3, 3e-2, 0.1]


def theirs(spec: OptimSpec, lr: float, parameter: torch.nn.Parameter) -> torch.optim.Optimizer:
    if spec.name == "sgd":
        return torch.optim.SGD([parameter], lr=lr, momentum=spec.momentum, weight_decay=spec.weight_decay)
    kind = torch.optim.Adam if spec.name == "adam" else torch.optim.AdamW
    betas = (spec.beta1, spec.beta2)
    return kind([parameter], lr=lr, betas=betas, eps=spec.eps, weight_decay=spec.weight_decay)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "adam"},
        {"name": "adam", "beta1": 0.8, "beta2": 0.95, "eps": 1e-3, "weight_decay": 0.1},
        {"name": "adamw", "weight_decay": 0.1},
        {"name": "sgd"},
        {"name": "sgd", "momentum": 0.9, "weight_decay": 0.01},
    ],
)
@pytest.mark.parametrize("looks", [True, False])  # False: the form that a captured CUDA graph needs
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 1e-6)])
def test_twenty_steps_equal_torch_in_every_lane(fields, dtype, tolerance, looks) -> None:  # noqa: ANN001
    spec = OptimSpec(**fields)
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(3, 40, generator=generator, dtype=dtype)
    ours = start.clone()
    optimizer = OPTIMIZERS[spec.name]([spec] * 3, ours, looks)
    parameters = [torch.nn.Parameter(row.clone()) for row in start]
    references = [theirs(spec, lr, p) for lr, p in zip(RATES, parameters, strict=True)]
    for step in range(1, 21):
        grad = torch.randn(3, 40, generator=generator, dtype=dtype)
        for lane, (parameter, reference) in enumerate(zip(parameters, references, strict=True)):
            parameter.grad = grad[lane].clone()
            reference.step()
        corrections = torch.tensor(optimizer.corrections(step), dtype=dtype)
        optimizer.update(ours, grad.clone(), torch.tensor(RATES, dtype=dtype).unsqueeze(1), corrections)
    torch.testing.assert_close(ours, torch.stack([p.detach() for p in parameters]), rtol=tolerance, atol=tolerance)
    assert not torch.allclose(ours, start)


def test_weight_decay_is_a_lane_of_its_own() -> None:
    specs = [OptimSpec(name="adamw", weight_decay=w) for w in (0.0, 0.5)]
    params = torch.ones(2, 3)
    optimizer = OPTIMIZERS["adamw"](specs, params)
    corrections = torch.tensor(optimizer.corrections(1))
    optimizer.update(params, torch.zeros(2, 3), torch.full((2, 1), 0.1), corrections)
    torch.testing.assert_close(params, torch.tensor([[1.0] * 3, [0.95] * 3]))


def test_warmup_reaches_the_rate_at_its_last_step() -> None:
    spec = RunSpec(optim=OptimSpec(lr=0.4, warmup=4), train=TrainSpec(steps=10))
    assert [rate(spec, k) for k in range(1, 11)] == pytest.approx([0.1, 0.2, 0.3, *[0.4] * 7])


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("linear", [1, 0.75, 0.5, 0.25]), ("cosine", [(1 + math.cos(math.pi * p)) / 2 for p in (0, 0.25, 0.5, 0.75)])],
)
def test_schedules_start_at_the_peak_and_waste_no_step(schedule: str, expected: list[float]) -> None:
    spec = RunSpec(optim=OptimSpec(lr=2.0, warmup=2, schedule=schedule), train=TrainSpec(steps=6))
    assert [rate(spec, k) / 2 for k in range(1, 7)] == pytest.approx([0.5, 1, *expected])


def test_a_tiny_norm_is_clipped_as_by_torch() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([3e-6, 4e-6])
    factor = clip_factors(torch.tensor([5e-6]), torch.tensor([1e-6]))
    expected = factor * parameter.grad
    torch.nn.utils.clip_grad_norm_([parameter], 1e-6)
    torch.testing.assert_close(expected, parameter.grad, rtol=1e-5, atol=0)


def test_clipping_equals_torch_and_is_off_where_there_is_no_limit() -> None:
    grad = torch.tensor([3.0, 4.0])
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = grad.clone()
    torch.nn.utils.clip_grad_norm_([parameter], 0.5)
    norms, limits = torch.tensor([5.0, 5.0, 5.0, math.inf]), torch.tensor([0.5, 9.0, math.inf, math.inf])
    factors = clip_factors(norms, limits)
    torch.testing.assert_close(grad * factors[0], parameter.grad)
    # An infinite norm without a limit is no reason to stop a lane: inf / inf must not become a factor.
    assert factors[1:].tolist() == [1, 1, 1]
