"""What passes between the modules of one lane in a fused step, forward and backward: the numbers that the step itself
computes with, bit by bit."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import Tensor

from normlab.fused.step import Fused, places

# Where the modules of a block end, in the order of the forward pass with placement pre: as `enum Edge` in frame.h; and
# the module that makes each value, by its name in the block. A sum is the block itself.
EDGES = {
    "norm1": "mixer_norms.0",
    "mixed": "mixer",  # the input of the mixer's matrix
    "mixer": "mixer.linear",
    "sum1": "",
    "norm2": "ffn_norms.0",
    "inner": "ffn.inner",
    "gelu": "ffn",  # the input of the second matrix
    "ffn": "ffn.outer",
    "sum2": "",
}
POST = ("mixed", "mixer", "sum1", "norm1", "inner", "gelu", "ffn", "sum2", "norm2")  # the order with placement post
OUTER = ("embedding", "final_norm", "head")


class Passed(NamedTuple):
    """What came into a module and what went out of it; in the backward pass gradients, `went` with those of its own
    parameters."""

    module: str
    came: list[Tensor]
    went: list[Tensor]


class Watch:
    """Takes what passes between the modules of one lane on `batch` sequences: by edge, as `blocks.0.norm1`, the `value`
    and the `slope`, the gradient of the loss, each (B, T, width)."""

    def __init__(self, fused: Fused, batch: int) -> None:
        shape, like = fused.shape, fused.params_SP
        assert shape.S == 1
        self.model = fused.model
        self.chain = ["embedding"]
        for layer in range(shape.L):
            self.chain += [f"blocks.{layer}.{edge}" for edge in (POST if fused.post else EDGES)]
        self.chain += ["final_norm", "head"]
        names = [f"blocks.{layer}.{edge}" for layer in range(shape.L) for edge in EDGES] + [*OUTER]
        widths = {"inner": shape.F, "gelu": shape.F, "head": shape.V}

        def room() -> tuple[dict[str, Tensor], Any]:
            tensors = [like.new_empty(batch, shape.T, widths.get(name.split(".")[-1], shape.D)) for name in names]
            array = (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
            return dict(zip(names, tensors, strict=True)), array

        self.value, self.values = room()
        self.slope, self.slopes = room()

    def forward(self) -> Iterator[Passed]:
        """Every module, in the order of the forward pass; into a sum comes its branch."""
        yield Passed("embedding", [], [self.value["embedding"]])
        for before, edge in zip(self.chain, self.chain[1:], strict=False):
            yield Passed(module_of(edge), [self.value[before]], [self.value[edge]])

    def backward(self, grad_P: Tensor) -> Iterator[Passed]:
        """Every module, in the order of the backward pass, with the flat gradient of the lane. What a branch and the
        stream give to their common input is seen as one sum."""
        own = {name: grad_P[place] for name, place in places(self.model).items()}
        for before, edge in zip(self.chain[-2::-1], self.chain[:0:-1], strict=True):
            module = module_of(edge)
            leaves = [grad for name, grad in own.items() if name.rpartition(".")[0] == module]
            yield Passed(module, [self.slope[edge]], [self.slope[before], *leaves])
        yield Passed("embedding", [self.slope["embedding"]], [own["embedding.weight"]])


def module_of(edge: str) -> str:
    """The decoder's name of the module that makes the value of an edge."""
    block, _, last = edge.rpartition(".")
    return f"{block}.{EDGES[last]}".removesuffix(".") if block else edge
