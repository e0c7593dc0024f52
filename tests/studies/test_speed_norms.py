"""What the speed study times: the norms are torch's forward and backward. No time is asserted."""

import pytest
import torch

from normlab.studies import speed_norms
from normlab.studies.speed_norms import Absent, Cell, handwritten


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_handwritten_norms_are_torchs_forward_and_backward(norm):
    ours, torchs = (speed_norms.build(Cell(i, norm, "forward"), 8, "cpu").double() for i in ("handwritten", "native"))
    x = torch.randn(1, 2, 3, 8, dtype=torch.float64, requires_grad=True)
    grad = torch.randn(1, 2, 3, 8, dtype=torch.float64)
    with torch.no_grad():
        for own, other in zip(ours.parameters(), torchs.parameters(), strict=True):
            other.copy_(own.normal_().flatten())
    torch.testing.assert_close(ours(x), torchs(x))
    for direction in ("backward", "both"):
        (x_of_ours, *of_ours), theirs = (speed_norms.prepare(module, direction, x, grad)() for module in (ours, torchs))
        torch.testing.assert_close((x_of_ours, *(g.flatten() for g in of_ours)), theirs)


def test_layernorm_is_written_out_and_not_torchs_kernel(monkeypatch):
    def kernel(*given, **named):
        raise AssertionError("this is not the norm written by hand")

    monkeypatch.setattr(torch.nn.functional, "layer_norm", kernel)
    handwritten("layernorm", 8)(torch.randn(1, 2, 3, 8))
    with pytest.raises(AssertionError, match="not the norm"):
        speed_norms.build(Cell("native", "layernorm", "forward"), 8, "cpu")(torch.randn(1, 2, 3, 8))


def test_dyt_is_its_formula():
    module = handwritten("dyt", 4)
    with torch.no_grad():
        module.gain.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]).expand(1, 1, 1, 4))
        module.bias.fill_(0.25)
    x = torch.tensor([[[[-1.0, 0.0, 0.5, 2.0]]]])
    wanted = module.gain * torch.tanh(0.5 * x) + 0.25
    torch.testing.assert_close(module(x), wanted)
    with pytest.raises(Absent, match="torch.nn has no such norm"):
        speed_norms.build(Cell("native", "dyt", "forward"), 4, "cpu")


def test_backward_can_be_called_again_and_covers_every_parameter():
    x = torch.randn(1, 2, 3, 8, requires_grad=True)
    call = speed_norms.prepare(handwritten("layernorm", 8), "backward", x, torch.ones(1, 2, 3, 8))
    first, second = call(), call()
    assert [g.shape for g in first] == [x.shape, (1, 1, 1, 8), (1, 1, 1, 8)]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_an_error_against_the_formula_is_seen():
    x = torch.randn(1, 1, 3, 8)
    assert speed_norms.error_against_formula(handwritten("rmsnorm", 8), "rmsnorm", x) < 1e-5
    assert speed_norms.error_against_formula(handwritten("none", 8), "rmsnorm", x) > 1e-2
