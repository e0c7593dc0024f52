"""Operations of a training step, and the whole model's step that is timed."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from normlab.config.schema import ModelSpec, RunSpec, TaskSpec, TrainSpec
from normlab.studies.flops import norm_flops, norm_share, product_flops, step_flops
from normlab.studies.speed_model import specs, step_call
from normlab.train.stack import Stack


@pytest.mark.parametrize("mixer", ["mean", "linear"])
@pytest.mark.parametrize("norm", ["layernorm", "none"])
def test_matrix_products_are_counted_as_torch_counts_them(mixer, norm):
    model = ModelSpec(depth=2, width=8, hidden=24, mixer=mixer, norm=norm)
    spec = RunSpec(model=model, task=TaskSpec(vocab=16, length=5), train=TrainSpec(batch=3))
    stack, tokens = Stack([spec]), torch.zeros(1, 3, 6, dtype=torch.int64)
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        stack.losses(tokens)
    with FlopCounterMode(display=False) as both:
        stack.gradients(tokens)
    ours = product_flops(spec)
    assert ours["forward"] == forward.get_total_flops()
    assert ours["forward"] + ours["backward"] == both.get_total_flops()


def test_operations_of_the_norms():
    spec = RunSpec(model=ModelSpec(depth=3, norm="rmsnorm"))
    elements = 32 * 16 * 64
    assert norm_flops(spec) == elements * (6 * (4 + 8) + (7 + 11))  # six RMSNorms, and the final LayerNorm
    assert norm_flops(specs()["none"]) == 0
    post = RunSpec(model=ModelSpec(depth=3, placement="post"))
    assert norm_flops(post) == elements * 6 * (7 + 11)  # and none behind the blocks
    flops = step_flops(spec, 1000)
    assert norm_share(flops) == flops["norms"] / (flops["products"] + flops["norms"] + flops["other"])


def test_a_timed_step_trains():
    stack, call = step_call(specs()["rmsnorm"], "cpu")
    before = stack.params_SP.clone()
    call(), call()
    assert not torch.equal(before, stack.params_SP) and bool(stack.alive_S.all())
