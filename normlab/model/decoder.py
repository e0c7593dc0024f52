"""The toy decoder of the article, for S lanes at once: embedding, blocks, final norm, head.

Shapes: S lanes, B batch, T time, D width, F hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from normlab.catalogue import INITS, MIXERS, NORMS, PLACEMENTS
from normlab.config.schema import ModelSpec, RunSpec
from normlab.model.layers import Embedding, Leaf, Linear, lanewise
from normlab.model.norms import Norm
from normlab.model.part import Site, make
from normlab.model.placements import Placement

DTYPES = {name: getattr(torch, name) for name in ("float32", "float64", "bfloat16", "float16")}


class FeedForward(nn.Module):
    """Linear to F, exact GELU, linear back to D. Its inner point is the input of the second linear map."""

    inner_point = True

    def __init__(self, width: int, hidden: int, lanes: int = 1, low: torch.dtype | None = None) -> None:
        super().__init__()
        self.inner_width = hidden
        self.inner = Linear(width, hidden, lanes=lanes, low=low, role="ffn_in")
        self.outer = Linear(hidden, width, lanes=lanes, low=low, role="ffn_out")

    def forward(self, x_SBTD: Tensor, inner: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        h_SBTF = lanewise(nn.functional.gelu, self.inner(x_SBTD))
        return self.outer(h_SBTF if inner is None else inner(h_SBTF))


class Block(nn.Module):
    """Mixer and feed-forward, each joined to the stream by a placement of its own."""

    def __init__(self, model: ModelSpec, lanes: int, low: torch.dtype | None, layer: int) -> None:
        super().__init__()
        site = Site(layer, model.depth, "mixer")
        mixer = make(MIXERS, model.mixer, model.width, lanes=lanes, options=model.mixer_options, site=site, low=low)
        ffn = FeedForward(model.width, model.hidden, lanes=lanes, low=low)
        self.mixer_placement = make_placement(model, lanes, layer, "mixer")
        self.ffn_placement = make_placement(model, lanes, layer, "ffn")
        self.mixer_norms = self._norms(model, lanes, self.mixer_placement, mixer.inner_width)
        self.ffn_norms = self._norms(model, lanes, self.ffn_placement, ffn.inner_width)
        self.mixer, self.ffn = mixer, ffn
        for placement, sublayer in self.sublayers():
            gains = placement.gains()
            # The one matrix of a simple mixer stands for value and output: their gain counts once.
            gains = {"mix": gains.get("value", gains.get("output", 1.0)), **gains}
            for leaf in (module for module in sublayer.modules() if isinstance(module, Leaf)):
                leaf.gain = gains.get(leaf.role, 1.0)

    def _norms(self, model: ModelSpec, lanes: int, placement: Placement, inner_width: int) -> nn.ModuleList:
        widths = [model.width] * placement.norms + [inner_width] * placement.inner_norms
        return nn.ModuleList(make_norm(model.norm, model, lanes, width, placement.site) for width in widths)

    def sublayers(self) -> Iterator[tuple[Placement, Any]]:
        """Each sublayer after its placement."""
        yield self.mixer_placement, self.mixer
        yield self.ffn_placement, self.ffn

    def forward(self, x_SBTD: Tensor) -> Tensor:
        x_SBTD = self.mixer_placement(x_SBTD, self.mixer, self.mixer_norms)
        return self.ffn_placement(x_SBTD, self.ffn, self.ffn_norms)

    def profile(self, x_SBTD: Tensor, carried: dict[str, Any]) -> Tensor:
        """`forward`, with the placements setting start values that hang on activations."""
        x_SBTD = self.mixer_placement.profile(x_SBTD, self.mixer, [*self.mixer_norms], carried)
        return self.ffn_placement.profile(x_SBTD, self.ffn, [*self.ffn_norms], carried)


class Decoder(nn.Module):
    """tokens (S, B, T) to logits (S, B, T, V). `tap(layer, x_SBTD)`, if given, sees the stream: 0 is the embedding,
    l the output of block l."""

    def __init__(self, spec: RunSpec, lanes: int = 1) -> None:
        super().__init__()
        model, precision = spec.model, DTYPES[spec.train.precision]
        low = precision if precision.itemsize < 4 else None
        self.stream_dtype = precision if low is None or spec.train.low_stream else torch.float32
        self.embedding = Embedding(spec.task.vocab, model.width, lanes)
        self.blocks = nn.ModuleList(Block(model, lanes, low, layer) for layer in range(1, model.depth + 1))
        behind = Site(model.depth + 1, model.depth, "final")
        self.final_norm = make_norm(model.final_norm_name(), model, lanes, model.width, behind)
        self.head = Linear(model.width, spec.task.vocab, bias=False, lanes=lanes, low=low)
        self.clock = self.start_clock()

    def forward(self, tokens_SBT: Tensor, tap: Callable[[int, Tensor], None] | None = None) -> Tensor:
        x_SBTD = self.embedding(tokens_SBT).to(self.stream_dtype)
        if tap:
            tap(0, x_SBTD)
        for layer, block in enumerate(self.blocks, 1):
            x_SBTD = block(x_SBTD)
            if tap:
                tap(layer, x_SBTD)
        return self.head(self.final_norm(x_SBTD))

    @property
    def profiles(self) -> bool:
        """Whether a placement has start values that hang on activations."""
        return any(type(p).profile is not Placement.profile for p in self.modules() if isinstance(p, Placement))

    @torch.no_grad()
    def profile(self, tokens_SBT: Tensor) -> None:
        """Let every placement set its start values by one pass over each lane's first batch, block after block."""
        x_SBTD, carried = self.embedding(tokens_SBT).to(self.stream_dtype), dict[str, Any]()
        for block in self.blocks:
            assert isinstance(block, Block)
            x_SBTD = block.profile(x_SBTD, carried)

    def start_clock(self) -> Tensor:
        """A tensor (1,), shared by all placements, for the number of the training step, 0 for now. Float32
        holds it exactly: there are at most 10^7 steps."""
        clock = torch.zeros(1, device=self.head.weight.device)
        for placement in (module for module in self.modules() if isinstance(module, Placement)):
            placement.clock = clock
        return clock


def make_norm(name: str, model: ModelSpec, lanes: int, width: int, site: Site) -> Norm:
    """The norm `name`; a final norm of another kind than the blocks' has its own default options."""
    options = model.norm_options if name == model.norm else None
    return make(NORMS, name, width, lanes=lanes, options=options, site=site)


def make_placement(model: ModelSpec, lanes: int, layer: int, sublayer: Literal["mixer", "ffn"]) -> Placement:
    """The placement of one sublayer of block `layer` = 1, 2, ..."""
    site, ramp = Site(layer, model.depth, sublayer), model.residual_ramp.warmup
    named = {"lanes": lanes, "options": model.placement_options, "site": site}
    return make(PLACEMENTS, model.placement, model.width, **named, **({"ramp_steps": ramp} if ramp else {}))


def build(specs: Sequence[RunSpec], device: str = "cpu") -> Decoder:
    """A decoder with one lane a spec, each started as the plain torch modules would be from the lane's seed.

    The specs must share their structure. Weights are drawn in float32 on the CPU, then cast and moved.
    """
    decoder = Decoder(specs[0], lanes=len(specs))
    leaves = [module for module in decoder.modules() if isinstance(module, Leaf)]
    for lane, spec in enumerate(specs):
        init = INITS[spec.model.init](spec.model.init_options)
        with torch.random.fork_rng(devices=()), torch.no_grad():
            torch.manual_seed(spec.seed)
            plains = [leaf.plain() for leaf in leaves]
            for leaf, plain in zip(leaves, plains, strict=True):
                init.draw(plain, leaf.role, spec.model.depth)
                if leaf.gain != 1.0:
                    plain.get_parameter("weight").mul_(leaf.gain)
        for leaf, plain in zip(leaves, plains, strict=True):
            leaf.load(lane, plain)
    wide = torch.float64 if specs[0].train.precision == "float64" else torch.float32
    decoder = decoder.to(device=device, dtype=wide)
    decoder.clock = decoder.start_clock()
    return decoder
