"""The net as a whole: causality, final norms, where its weights come from."""

from __future__ import annotations

import pytest
import torch

from normlab.config.schema import ModelSpec, RunSpec, TaskSpec
from normlab.model.decoder import build
from normlab.model.layers import LookUp, look_up
from normlab.model.mixers import MIXERS
from normlab.model.norms import NORMS
from normlab.model.placements import PLACEMENTS

TASK = TaskSpec(vocab=11, length=6)
TINY = {"depth": 2, "width": 8, "hidden": 12}


def spec(seed: int = 0, **model: object) -> RunSpec:
    return RunSpec(task=TASK, model=ModelSpec(**{**TINY, **model}), seed=seed)


def test_post_passes_the_normalised_value_on_as_the_residual() -> None:
    decoder = build([spec(placement="post", norm="layernorm", depth=1)])
    seen: dict[str, torch.Tensor] = {}
    block = decoder.blocks[0]
    block.mixer_norms[0].register_forward_hook(lambda m, i, o: seen.update(first=o))
    block.ffn.register_forward_hook(lambda m, i, o: seen.update(ffn_in=i[0], ffn=o))
    block.ffn_norms[0].register_forward_hook(lambda m, i, o: seen.update(sum=i[0]))
    decoder(torch.arange(6).view(1, 1, 6))
    assert torch.equal(seen["ffn_in"], seen["first"])
    torch.testing.assert_close(seen["sum"], seen["first"] + seen["ffn"])


def assert_causal(norm: str, placement: str, mixer: str, **model: object) -> None:
    """Move one token after the other: no earlier logit may move, its own must, and the later ones as the mixer says."""
    decoder = build([spec(norm=norm, placement=placement, mixer=mixer, init="torch", **model)]).eval()
    for name, parameter in decoder.named_parameters():
        if name.endswith("placement.weight"):
            parameter.data.fill_(0.5)  # ReZero's gates start closed
    tokens = torch.tensor([[[1, 5, 2, 9, 0, 3]]])
    for clock in (1, 5):
        decoder.clock.fill_(clock)
        before = decoder(tokens)
        for position in range(6):
            changed = tokens.clone()
            changed[..., position] = (tokens[..., position] + 4) % 11
            moved = (decoder(changed) != before).any(-1).squeeze()
            assert not bool(moved[:position].any())
            assert bool(moved[position])
            # The running mean hands a token to every later position; the plain linear map to none.
            assert bool(moved[position + 1 :].all()) == (mixer == "mean") or position == 5


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("norm", NORMS)
def test_no_logit_depends_on_a_later_token_whatever_the_norm(norm: str, mixer: str) -> None:
    assert_causal(norm, "pre", mixer)


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_no_logit_depends_on_a_later_token_wherever_the_norm(placement: str, mixer: str) -> None:
    options = {"placement_options": {"step": 3}} if placement == "pre-then-post" else {}
    assert_causal("none" if placement == "rezero" else "layernorm", placement, mixer, depth=4, **options)


@pytest.mark.parametrize(
    ("placement", "norm", "final", "expected"),
    [
        ("pre", "rmsnorm", "auto", "LayerNorm"),
        ("pre", "none", "auto", "LayerNorm"),
        ("post", "rmsnorm", "auto", "Identity"),
        ("post", "rmsnorm", "same", "RMSNorm"),
        ("pre", "rmsnorm", "same", "RMSNorm"),
        ("post", "rmsnorm", "layernorm", "LayerNorm"),
        ("pre", "layernorm", "none", "Identity"),
        ("pre-then-post", "rmsnorm", "auto", "LayerNorm"),
        ("pre", "bhyt", "auto", "RMSNorm"),
    ],
)
def test_final_norm(placement: str, norm: str, final: str, expected: str) -> None:
    decoder = build([spec(placement=placement, norm=norm, final_norm=final)])
    assert type(decoder.final_norm).__name__ == expected


def test_a_final_layernorm_behind_rmsnorm_keeps_its_own_eps() -> None:
    decoder = build([spec(norm="rmsnorm", norm_options={"eps": 0.25})])
    assert decoder.blocks[0].ffn_norms[0].options.eps == 0.25 and decoder.final_norm.options.eps == 1e-5


def test_building_leaves_the_global_random_state_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    build([spec(seed=9)])
    assert torch.equal(torch.rand(3), expected)


def test_a_lane_starts_alike_wherever_it_stands() -> None:
    many, one = build([spec(seed=s) for s in (3, 4, 5)]), build([spec(seed=5)])
    for a, b in zip(many.parameters(), one.parameters(), strict=True):
        assert torch.equal(a[2], b[0])
    assert not torch.equal(many.embedding.weight[0], many.embedding.weight[1])


def test_the_tap_sees_the_stream_after_every_block() -> None:
    decoder = build([spec(depth=2)])
    seen: list[tuple[int, tuple[int, ...]]] = []
    decoder(torch.zeros(1, 2, 6, dtype=torch.int64), tap=lambda layer, x: seen.append((layer, tuple(x.shape))))
    assert seen == [(layer, (1, 2, 6, 8)) for layer in range(3)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_look_up_of_a_gpu_has_the_same_gradient(dtype) -> None:  # noqa: ANN001
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(3, 5, 4, generator=generator, dtype=dtype, requires_grad=True)
    tokens = torch.randint(5, (3, 6, 7), generator=generator)
    grad = torch.randn(3, 6, 7, 4, generator=generator, dtype=dtype)
    grad[1] = float("nan")  # a lane that blew up
    plain, ours = look_up(tokens, weight), LookUp.apply(tokens, weight)
    assert torch.equal(plain, ours)
    (expected,), (found,) = (torch.autograd.grad(y, weight, grad) for y in (plain, ours))
    torch.testing.assert_close(found[::2], expected[::2])
    assert found[1].isnan().all() and expected[1].isnan().any()
