"""What the speed study times: the norms are torch's forward and backward. No time is asserted."""

import pytest
import torch

from normlab.studies import speed_norms
from normlab.studies.speed_norms import HANDWRITTEN, Absent, Cell


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm", "identity"])
def test_handwritten_norms_are_torchs_forward_and_backward(norm):
    ours, torchs = HANDWRITTEN[norm](8).double(), speed_norms.native(norm, 8).double()
    x = torch.randn(2, 3, 8, dtype=torch.float64, requires_grad=True)
    grad = torch.randn(2, 3, 8, dtype=torch.float64)
    with torch.no_grad():
        for own, other in zip(ours.parameters(), torchs.parameters(), strict=True):
            other.copy_(own.normal_())
    torch.testing.assert_close(ours(x), torchs(x))
    for direction in ("backward", "both"):
        calls = [speed_norms.prepare(module, direction, x, grad) for module in (ours, torchs)]
        torch.testing.assert_close(calls[0](), calls[1]())


def test_dyt_is_its_formula():
    module = HANDWRITTEN["dyt"](4)
    with torch.no_grad():
        module.gain.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        module.bias.fill_(0.25)
    x = torch.tensor([-1.0, 0.0, 0.5, 2.0])
    wanted = module.gain * torch.tanh(0.5 * x) + 0.25
    torch.testing.assert_close(module(x), wanted)
    with pytest.raises(Absent, match="torch.nn has no dyt"):
        speed_norms.build(Cell("native", "dyt", "forward"), 4, "cpu")


def test_backward_can_be_called_again_and_covers_every_parameter():
    x = torch.randn(2, 3, 8, requires_grad=True)
    call = speed_norms.prepare(HANDWRITTEN["layernorm"](8), "backward", x, torch.ones(2, 3, 8))
    first, second = call(), call()
    assert [g.shape for g in first] == [x.shape, (8,), (8,)]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_an_error_against_the_formula_is_seen():
    x = torch.randn(1, 3, 8)
    assert speed_norms.error_against_formula(HANDWRITTEN["rmsnorm"](8), "rmsnorm", x) < 1e-5
    assert speed_norms.error_against_formula(HANDWRITTEN["identity"](8), "rmsnorm", x) > 1e-2
