"""Inits: the start values of all matrices. Each lane's are drawn on plain torch modules, one after the other in the
article's order of construction, so that they are those of the textbook net under the same seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from normlab import catalogue
from normlab.catalogue import INITS, Field, Options

if TYPE_CHECKING:
    from torch import nn

__all__ = ["INITS", "Field", "Init", "Options", "SmallNormal", "TorchInit"]


class Init(catalogue.Entry):
    """Base of all inits. `draw` sets the weights of one module in place, from torch's own random numbers.

    `plain` is a `torch.nn.Linear` (weight (out, in), perhaps a bias) or `torch.nn.Embedding` as torch itself starts it.
    `role` says what it does: embedding, head, mix, value, output, q, k, ffn_in, ffn_out; those in `WRITERS` write to the
    residual stream. `depth` is the number of blocks."""

    WRITERS: ClassVar[tuple[str, ...]] = ("mix", "output", "ffn_out")

    def __init__(self, options: Options | None = None) -> None:
        self.options = type(self).Options() if options is None else options

    def draw(self, plain: nn.Module, role: str, depth: int) -> None:
        raise AssertionError("an init defines draw")


class SmallNormal(Init):
    """Weights normal with a small standard deviation, biases zero."""

    title = "small normal"

    class Options(catalogue.Options):
        std: float = Field(0.02, gt=0, le=1e30, description="standard deviation of every weight")

    options: Options

    def draw(self, plain: nn.Module, role: str, depth: int) -> None:
        from torch.nn.init import normal_, zeros_

        for name, parameter in plain.named_parameters():
            if name == "bias":
                zeros_(parameter)
            else:
                normal_(parameter, 0.0, self.options.std)


class TorchInit(Init):
    """The start values that torch's own modules draw: embeddings standard normal, linear maps uniform."""

    title = "torch's own"
    source = "torch.nn.Embedding and torch.nn.Linear"

    def draw(self, plain: nn.Module, role: str, depth: int) -> None:
        pass
