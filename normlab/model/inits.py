"""Inits: the start values of all matrices. Each lane's are drawn on plain torch modules, one after the other in the
article's order of construction, so that they are those of the textbook net under the same seed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from normlab import catalogue
from normlab.catalogue import INITS, Field, Options

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["GPT2", "INITS", "Field", "Init", "Options", "SmallNormal", "TorchInit", "Xavier"]


class Init(catalogue.Entry):
    """Base of all inits. `draw` sets the weights of one module in place, from torch's own random numbers.

    `plain` is a `torch.nn.Linear` (weight (out, in), perhaps a bias) or `torch.nn.Embedding` as torch itself starts it.
    `role` says what it does: embedding, head, mix, value, output, q, k, ffn_in, ffn_out; those in `WRITERS` write to
    the residual stream. `depth` is the number of blocks."""

    WRITERS: ClassVar[tuple[str, ...]] = ("mix", "output", "ffn_out")

    def __init__(self, options: Options | None = None) -> None:
        self.options = type(self).Options() if options is None else options

    def draw(self, plain: nn.Module, role: str, depth: int) -> None:
        raise AssertionError("an init defines draw")


class Weights(Init):
    """An init that gives every matrix its weights by one rule, and zero to every bias."""

    options: Any

    def fill(self, weight: Tensor, role: str, depth: int) -> None:
        """Draw the weights of one matrix, in place."""
        raise AssertionError("such an init defines fill")

    def draw(self, plain: nn.Module, role: str, depth: int) -> None:
        for name, parameter in plain.named_parameters():
            if name == "bias":
                parameter.zero_()
            else:
                self.fill(parameter, role, depth)


class SmallNormal(Weights):
    """Weights normal with a small standard deviation, biases zero."""

    title = "small normal"

    class Options(catalogue.Options):
        std: float = Field(0.02, gt=0, le=1e30, description="standard deviation of every weight")

    def fill(self, weight: Tensor, role: str, depth: int) -> None:
        weight.normal_(0.0, self.options.std)


class TorchInit(Init):
    """The start values that torch's own modules draw: embeddings standard normal, linear maps uniform."""

    title = "torch's own"
    source = "torch.nn.Embedding and torch.nn.Linear"

    def draw(self, plain: nn.Module, role: str, depth: int) -> None:
        pass


class Xavier(Weights):
    """Weights uniform within gain * sqrt(6 / (in + out)), biases zero; the embedding's table by the same rule.

    The bound is that of the whole matrix: `in` and `out` are its two sizes."""

    title = "Xavier"
    source = "Glorot & Bengio 2010, equation 16"

    class Options(catalogue.Options):
        gain: float = Field(1.0, gt=0, le=1e30, description="factor on the bound")

    def fill(self, weight: Tensor, role: str, depth: int) -> None:
        bound = self.options.gain * math.sqrt(6 / sum(weight.shape))
        weight.uniform_(-bound, bound)


class GPT2(Weights):
    """Weights normal, those that write to the residual stream by sqrt(2N) smaller in a net of N blocks, biases zero."""

    title = "GPT-2"
    source = "Radford et al. 2019 (GPT-2), section 2.3"

    class Options(catalogue.Options):
        std: float = Field(0.02, gt=0, le=1e30, description="standard deviation of weights that do not write to it")

    def fill(self, weight: Tensor, role: str, depth: int) -> None:
        std = self.options.std
        weight.normal_(0.0, std / math.sqrt(2 * depth) if role in self.WRITERS else std)
