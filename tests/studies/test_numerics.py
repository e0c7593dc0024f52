"""The seeded experiments: the exact ones to the printed digit, the searches, the precision, the final-norm check."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from normlab.catalogue import NORMS
from normlab.config.schema import ModelSpec, RunSpec
from normlab.model.decoder import build
from normlab.model.part import make
from normlab.studies import numerics, numerics_nearest
from normlab.studies.final_norm import inspect_final_norm
from normlab.studies.numerics_nets import linear_stack, residual_gradients, seeded, token_norm
from normlab.studies.numerics_precision import fp16_eps
from normlab.studies.numerics_printed import PRINTED, agrees

EXACT = {
    "block-exit-norms": numerics.block_exit_norms,
    "output-statistics": numerics.output_statistics,
    "residual-growth": numerics.residual_growth,
    "layernorm-matches-torch": numerics.layernorm_matches_torch,
    "stack-layernorm": numerics.stack_layernorm,
    "eps-defaults": numerics.eps_defaults,
}


@pytest.mark.parametrize("name", EXACT)
def test_the_exact_experiments_give_every_printed_digit(name):
    values = EXACT[name]()
    off = {p: numerics_nearest.at(values, p) for p, t in PRINTED[name].items()}
    assert {p: v for p, v in off.items() if not agrees(PRINTED[name][p], v)} == {}


def test_block_exit_norms_are_the_two_printed_numbers():
    """Spelled out, so that the table of printed numbers cannot drift together with the code."""
    found = numerics.block_exit_norms()
    assert (f"{found['post']:.4f}", f"{found['pre']:.4f}") == ("8.0000", "8.3924")


def test_the_stream_grows_by_the_printed_rate_along_the_printed_norms():
    norms = numerics.residual_growth()["norms"]
    assert [f"{norm:.2f}" for norm in norms[:4]] == ["11.25", "11.42", "11.68", "11.90"]
    assert f"{(norms[-1] / norms[0]) ** (1 / 12) - 1:.3f}" == "0.016"


def test_the_printed_weights_do_not_shrink_but_the_scaled_ones_do():
    grown, shrunk = numerics._stack(0.3), numerics._stack(0.3 / 8)
    assert grown[8] > 1000 and shrunk[6] < 0.02
    assert grown[0] == shrunk[0]  # the same x: it is drawn before the weights


def test_an_experiment_leaves_the_random_state_alone():
    torch.manual_seed(5)
    expected = torch.randn(3)
    torch.manual_seed(5)
    numerics.block_exit_norms()
    assert torch.equal(torch.randn(3), expected)


def test_agreement_is_by_rounding():
    assert agrees("0.30", 0.304) and not agrees("0.30", 0.306)
    assert agrees("0.0000", -1e-9) and not agrees("0.0000", 6e-5)
    assert agrees("~1e4", 66674.0) and not agrees("~1e4", 1.1e5) and not agrees("~1e-6", 1e-8)


def test_the_nearest_candidate_is_the_one_at_the_smallest_distance(monkeypatch):
    monkeypatch.setitem(numerics_nearest.PRINTED, "toy", {"a": "1.0", "b.1": "2.0"})
    candidates = [
        ("far", {"a": 4.0, "b": [0, 2.0]}),
        ("near", {"a": 1.0, "b": [0, 2.5]}),
        ("mid", {"a": 0.0, "b": [0, 2.0]}),
    ]
    found = numerics_nearest.nearest("toy", iter(candidates))
    assert (found["setting"], found["tried"]) == ("near", 3)
    assert found["distance"] == pytest.approx(math.sqrt(0.25 / 2))


def test_without_a_function_the_identity_path_carries_the_whole_gradient():
    zero = nn.Linear(4, 4)
    nn.init.zeros_(zero.weight), nn.init.zeros_(zero.bias)
    found = residual_gradients(zero, torch.ones(1, 4), torch.ones(1, 4))
    assert found == {"total": 4.0, "identity": 4.0, "share": 1.0, "without_residual": 0.0}


def test_a_stack_of_identities_keeps_the_norm():
    with seeded(0):
        x = torch.randn(2, 3, 8)
    assert linear_stack(x, 2, lambda: torch.eye(8)) == [token_norm(x)] * 3
    assert linear_stack(x, 1, lambda: torch.eye(8), lambda x: 2 * x)[1] == pytest.approx(2 * token_norm(x))


def test_float16_loses_a_small_eps_and_small_variances():
    found = fp16_eps()
    assert found["stored_eps"]["float16"]["1e-08"] == 0 < found["stored_eps"]["bfloat16"]["1e-08"]
    edge = torch.tensor(found["underflow_scale"]["float16"], dtype=torch.float16)
    assert edge.square() == 0 < torch.nextafter(edge, torch.tensor(1.0, dtype=torch.float16)).square()
    top = torch.tensor(found["overflow_scale"]["float16"], dtype=torch.float16)
    assert top.square().isfinite() and torch.nextafter(top, torch.tensor(1e4, dtype=torch.float16)).square().isinf()
    small = next(r for r in found["rows"] if r["dtype"] == "float16" and r["scale"] == 1e-4)
    assert small["zero"] == 1 and math.isnan(small["rms_eps_1e-08"]) and small["rms_eps_1e-05"] > 0


def report(**fields):
    model = {"depth": 2, "width": 8, "hidden": 8, "init": "torch", **fields}
    return inspect_final_norm(RunSpec(model=ModelSpec.model_validate(model)))


def test_the_final_norm_is_seen_missing_superfluous_or_in_place():
    assert report(placement="pre").missing == "" and report(placement="pre").has_final_norm
    assert "final norm" in report(placement="pre", final_norm="none").missing
    assert report(placement="post").missing == report(placement="post").superfluous == ""
    assert "final norm" in report(placement="post", final_norm="layernorm").superfluous
    assert "any norm" in report(placement="post", norm="none").missing


def test_the_check_looks_at_the_net_and_not_at_its_names():
    """The norm put out of action behind its name is missing; one that hides in another place is found."""
    decoder = build([RunSpec(model=ModelSpec(depth=1, width=8, hidden=8, init="torch"))])
    assert inspect_final_norm(decoder).response == pytest.approx(1, abs=1e-3)
    norm, decoder.final_norm = decoder.final_norm, make(NORMS, "none", 8)
    bare = inspect_final_norm(decoder)
    assert bare.response == pytest.approx(8) and not bare.has_final_norm
    decoder.final_norm = nn.Sequential(nn.Identity(), norm)
    assert inspect_final_norm(decoder).has_final_norm
