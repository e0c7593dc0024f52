"""The toy decoder of the article, for S lanes at once: embedding, blocks, final norm, head.

Shapes: S lanes, B batch, T time, D width, F hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor, nn

from normlab.config.schema import ModelSpec, RunSpec
from normlab.model.layers import Embedding, Leaf, Linear, lanewise
from normlab.model.mixers import MIXERS
from normlab.model.norms import NORMS, Norm
from normlab.model.placements import PLACEMENTS

# Blocks in one compiled program: a call of one has its price, and every further block its time to compile.
GROUP = 5
DTYPES = {name: getattr(torch, name) for name in ("float32", "float64", "bfloat16", "float16")}


class FeedForward(nn.Module):
    """Linear to F, exact GELU, linear back to D."""

    def __init__(self, width: int, hidden: int, lanes: int = 1, low: torch.dtype | None = None) -> None:
        super().__init__()
        self.inner = Linear(width, hidden, lanes=lanes, low=low)
        self.outer = Linear(hidden, width, lanes=lanes, low=low)

    def forward(self, x_SBTD: Tensor) -> Tensor:
        return self.outer(lanewise(nn.functional.gelu, self.inner(x_SBTD)))


class Block(nn.Module):
    """Mixer and feed-forward, each joined to the stream by the placement."""

    def __init__(self, model: ModelSpec, lanes: int, low: torch.dtype | None) -> None:
        super().__init__()
        self.placement = PLACEMENTS[model.placement]()
        # The norms come first: this is the article's order of construction, hence of the random draws.
        self.mixer_norms = nn.ModuleList(make_norm(model.norm, model, lanes) for _ in range(self.placement.norms))
        self.ffn_norms = nn.ModuleList(make_norm(model.norm, model, lanes) for _ in range(self.placement.norms))
        self.mixer = MIXERS[model.mixer](model.width, lanes=lanes, low=low)
        self.ffn = FeedForward(model.width, model.hidden, lanes=lanes, low=low)

    def forward(self, x_SBTD: Tensor) -> Tensor:
        x_SBTD = self.placement.forward(x_SBTD, self.mixer, self.mixer_norms)
        return self.placement.forward(x_SBTD, self.ffn, self.ffn_norms)


class Decoder(nn.Module):
    """tokens (S, B, T) to logits (S, B, T, V). `tap(layer, x_SBTD)`, if given, sees the stream: 0 is the embedding,
    l the output of block l."""

    def __init__(self, spec: RunSpec, lanes: int = 1) -> None:
        super().__init__()
        model, precision = spec.model, DTYPES[spec.train.precision]
        low = precision if precision.itemsize < 4 else None
        self.stream_dtype = precision if low is None or spec.train.low_stream else torch.float32
        self.embedding = Embedding(spec.task.vocab, model.width, lanes)
        self.blocks = nn.ModuleList(Block(model, lanes, low) for _ in range(model.depth))
        self.final_norm = make_norm(final_norm_name(model), model, lanes)
        self.head = Linear(model.width, spec.task.vocab, bias=False, lanes=lanes, low=low)
        self.compiled = False

    def forward(self, tokens_SBT: Tensor, tap: Callable[[int, Tensor], None] | None = None) -> Tensor:
        x_SBTD = self.embedding(tokens_SBT).to(self.stream_dtype)
        if tap:
            tap(0, x_SBTD)
        if self.compiled and torch.is_grad_enabled() and not tap:
            for blocks in groups(tuple(self.blocks)):
                x_SBTD = compiled_blocks()(blocks, x_SBTD)
        else:
            for layer, block in enumerate(self.blocks, 1):
                x_SBTD = block(x_SBTD)
                if tap:
                    tap(layer, x_SBTD)
        return self.head(self.final_norm(x_SBTD))


def groups(blocks: Sequence[nn.Module]) -> list[tuple[nn.Module, ...]]:
    """The blocks in groups of equal size, at most GROUP."""
    size = next(size for size in range(GROUP, 0, -1) if len(blocks) % size == 0)
    return [tuple(blocks[first : first + size]) for first in range(0, len(blocks), size)]


@cache
def compiled_blocks() -> Callable[[tuple[nn.Module, ...], Tensor], Tensor]:
    """The forward and backward pass of some blocks in a row, their elementwise work fused by torch.compile: one program
    for all groups of a structure, size and number of lanes. Needs a C++ compiler on the CPU."""
    # Past the limit torch falls back to the plain blocks without a word.
    torch._dynamo.config.recompile_limit = 256
    return torch.compile(through, dynamic=False)


def through(blocks: tuple[nn.Module, ...], x_SBTD: Tensor) -> Tensor:
    """The stream behind the blocks."""
    for block in blocks:
        x_SBTD = block(x_SBTD)
    return x_SBTD


def make_norm(name: str, model: ModelSpec, lanes: int) -> Norm:
    """The norm `name`; a final LayerNorm behind another norm keeps its own eps."""
    eps = model.norm_eps if name == model.norm else None
    return NORMS[name](model.width, lanes=lanes, eps=eps, alpha=model.dyt_alpha)


def final_norm_name(model: ModelSpec) -> str:
    """The catalogue name of the final norm that `model.final_norm` stands for."""
    if model.final_norm == "auto":
        return "layernorm" if PLACEMENTS[model.placement].final_norm else "none"
    return model.norm if model.final_norm == "same" else model.final_norm


def build(specs: Sequence[RunSpec], device: str = "cpu") -> Decoder:
    """A decoder with one lane a spec, each started as the plain torch modules would be from the lane's seed.

    The specs must share their structure. Weights are drawn in float32 on the CPU, then cast and moved.
    """
    decoder = Decoder(specs[0], lanes=len(specs))
    leaves = [module for module in decoder.modules() if isinstance(module, Leaf)]
    for lane, spec in enumerate(specs):
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(spec.seed)
            plains = [leaf.plain() for leaf in leaves]
            if spec.model.init == "small_normal":
                for plain in plains:
                    small_normal(plain, spec.model.init_std)
        for leaf, plain in zip(leaves, plains, strict=True):
            leaf.load(lane, plain)
    wide = torch.float64 if specs[0].train.precision == "float64" else torch.float32
    return decoder.to(device=device, dtype=wide)


def small_normal(plain: nn.Module, std: float) -> None:
    """Weights normal with `std`, biases zero."""
    for name, parameter in plain.named_parameters():
        if name == "bias":
            nn.init.zeros_(parameter)
        else:
            nn.init.normal_(parameter, 0.0, std)
