"""The toy net in the plainest torch: settings, placements, blocks, start values. Nothing imported from normlab.

Shapes: B batch, T time, D width, F hidden, V vocabulary.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

import torch
from plain_norms import NORMS, vector
from torch import Tensor, nn
from torch.nn import functional as F

NormName = Literal[
    "none", "layernorm", "rmsnorm", "prmsnorm", "crmsnorm", "scalenorm", "batchnorm", "dyt", "derf", "seednorm", "bhyt"
]
PlacementName = Literal[
    "post", "pre", "sandwich", "reordered", "deepnorm", "subln", "admin", "lns", "mixln", "rezero", "layerscale",
    "pre-then-post",
]  # fmt: skip
MixerName = Literal["mean", "linear"]
InitName = Literal["small_normal", "torch", "xavier", "gpt2"]
NO_FINAL_NORM = ("post", "deepnorm", "admin", "rezero")


@dataclass(frozen=True)
class Settings:
    """Everything that one run depends on; each field is an option of the command line. `clip` 0 means no clipping,
    `residual_ramp` 0 no ramp. The options of norm, placement and init are written "eps=1e-3 p=0.5"."""

    depth: int = 20
    width: int = 64
    hidden: int = 128
    norm: NormName = "layernorm"
    norm_options: str = ""
    placement: PlacementName = "pre"
    placement_options: str = ""
    residual_ramp: int = 0
    mixer: MixerName = "mean"
    init: InitName = "small_normal"
    init_options: str = ""
    final_norm: Literal["auto", "layernorm", "same", "none"] = "auto"
    vocab: int = 64
    length: int = 16
    a: int = 5
    b: int = 3
    c: int = 7
    loss_on: Literal["all", "last"] = "all"
    task_seed: int = 0
    val_size: int = 512
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    momentum: float = 0.0
    weight_decay: float = 0.0
    warmup: int = 0
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    clip: float = 0.0
    steps: int = 3000
    batch: int = 32
    eval_every: int = 100
    dtype: Literal["float32", "float64"] = "float32"
    seed: int = 0

    def __post_init__(self) -> None:
        # A name that is not known must not build some other net without a word.
        for name, kind in get_type_hints(type(self)).items():
            if get_args(kind) and getattr(self, name) not in get_args(kind):
                raise ValueError(f"{name}: expected one of {get_args(kind)}, got {getattr(self, name)!r}")


def options(text: str) -> dict[str, Any]:
    """The options in "eps=1e-3 learnable=true" by name."""
    return {name: json.loads(value) for name, _, value in (part.partition("=") for part in text.split())}


def make_norm(s: Settings, width: int, mixer: bool = False) -> nn.Module:
    """A norm of the kind that the blocks have; `mixer` says that it belongs to a mixer."""
    special = {"lam": 2.0} if s.norm == "bhyt" and mixer else {}
    return NORMS[s.norm](width, **options(s.norm_options), **special)


class Join(nn.Module):
    """How a sublayer f of block l = 1 .. N joins the stream x: one equation for each placement.

    f(x) is the sublayer, f(x, LN2) the same with a norm before its last matrix. With a residual ramp a branch counts
    min(k / T_l, 1) in training step k, T_l = l / N times the setting."""

    def __init__(self, s: Settings, layer: int, inner_width: int, mixer: bool) -> None:
        super().__init__()
        self.placement, self.layer, self.depth, self.k = s.placement, layer, s.depth, 0
        self.ramp_steps = s.residual_ramp * layer / s.depth
        self.options = options(s.placement_options)
        self.LN = make_norm(s, s.width, mixer)
        if s.placement in ("sandwich", "subln"):
            self.LN2 = make_norm(s, inner_width if s.placement == "subln" else s.width, mixer)
        if s.placement == "admin":
            self.w = vector(s.width, 1.0)  # see `profile`
        if s.placement == "rezero":
            self.w = nn.Parameter(torch.tensor(0.0))
        if s.placement == "layerscale":
            by_depth = 0.1 if s.depth <= 18 else 1e-5 if s.depth <= 24 else 1e-6
            self.w = vector(s.width, self.options.get("start", by_depth))
        if s.placement == "lns":
            factor = 1 / math.sqrt(layer)
            self.factor = nn.Parameter(torch.tensor(factor)) if self.options.get("learnable", False) else factor

    def forward(self, x: Tensor, f: Callable[..., Tensor]) -> Tensor:
        def ramp(y: Tensor) -> Tensor:
            return min(self.k / self.ramp_steps, 1.0) * y if self.ramp_steps else y

        placement = self.placement
        if placement == "mixln":  # the first floor(N / 4) blocks are post
            placement = "post" if self.layer <= math.floor(self.options.get("fraction", 0.25) * self.depth) else "pre"
        if placement == "pre-then-post":  # pre up to a step, and that step too
            placement = "pre" if self.k <= self.options.get("step", 1000) else "post"
        if placement == "post":
            return self.LN(x + ramp(f(x)))
        if placement == "pre":
            return x + ramp(f(self.LN(x)))
        if placement == "sandwich":
            return x + ramp(self.LN2(f(self.LN(x))))
        if placement == "reordered":
            return x + ramp(self.LN(f(x)))
        if placement == "deepnorm":
            return self.LN((2 * self.depth) ** (1 / 4) * x + ramp(f(x)))
        if placement == "subln":
            return x + ramp(f(self.LN(x), self.LN2))
        if placement == "admin":
            return self.LN(self.w * x + ramp(f(x)))
        if placement == "lns":
            return x + ramp(f(self.LN(x) * self.factor))
        if placement == "rezero":
            return x + ramp(self.w * f(x))
        assert placement == "layerscale"
        return x + ramp(self.w * f(self.LN(x)))


class Block(nn.Module):
    """Mixer and feed-forward, each joined to the stream by the placement."""

    def __init__(self, s: Settings, layer: int) -> None:
        super().__init__()
        self.mixer = s.mixer
        self.join1, self.join2 = Join(s, layer, s.width, mixer=True), Join(s, layer, s.hidden, mixer=False)
        self.mix = nn.Linear(s.width, s.width)
        self.ffn_in, self.ffn_out = nn.Linear(s.width, s.hidden), nn.Linear(s.hidden, s.width)

    def mixed(self, x_BTD: Tensor, inner: Callable[[Tensor], Tensor] = nn.Identity()) -> Tensor:  # noqa: B008
        if self.mixer == "mean":  # of positions 0..t; without it no token sees another one
            count_T = torch.arange(1, x_BTD.shape[1] + 1, dtype=x_BTD.dtype, device=x_BTD.device)
            x_BTD = x_BTD.cumsum(1) / count_T[:, None]
        return self.mix(inner(x_BTD))

    def ffn(self, x_BTD: Tensor, inner: Callable[[Tensor], Tensor] = nn.Identity()) -> Tensor:  # noqa: B008
        return self.ffn_out(inner(F.gelu(self.ffn_in(x_BTD))))

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.join2(self.join1(x_BTD, self.mixed), self.ffn)


class Decoder(nn.Module):
    """Embedding, blocks, final norm, head; the modules are built, and so draw their weights, in this order."""

    def __init__(self, s: Settings) -> None:
        super().__init__()
        auto = "none" if s.placement in NO_FINAL_NORM else "rmsnorm" if s.norm == "bhyt" else "layernorm"
        final = {"auto": auto, "same": s.norm}.get(s.final_norm, s.final_norm)
        self.embedding = nn.Embedding(s.vocab, s.width)
        self.blocks = nn.ModuleList(Block(s, layer) for layer in range(1, s.depth + 1))
        self.final_norm = make_norm(s, s.width) if final == s.norm else NORMS[final](s.width)
        self.head = nn.Linear(s.width, s.vocab, bias=False)

    def forward(self, tokens_BT: Tensor) -> tuple[Tensor, list[float]]:
        """Logits (B, T, V), and the largest RMS of a token in the residual stream: embedding, then after each block."""
        stream = [self.embedding(tokens_BT)]
        for block in self.blocks:
            stream.append(block(stream[-1]))
        rms = [float(x.detach().square().mean(-1).sqrt().max()) for x in stream]
        return self.head(self.final_norm(stream[-1])), rms

    def joins(self) -> Iterator[tuple[Join, Callable[..., Tensor]]]:
        """Every placement with its sublayer, in order."""
        for block in self.blocks:
            assert isinstance(block, Block)
            yield block.join1, block.mixed
            yield block.join2, block.ffn


def build(s: Settings) -> Decoder:
    """The net at the start: drawn in float32 from the run's seed, then widened if need be."""
    torch.manual_seed(s.seed)
    model = Decoder(s)  # with torch's own start values
    if s.init != "torch":
        for name, module in model.named_modules():
            if isinstance(module, (nn.Embedding, nn.Linear)):
                draw(module.weight, s, writes=name.endswith(("mix", "ffn_out")))
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
    gain = {"deepnorm": (8 * s.depth) ** (-1 / 4), "subln": math.sqrt(math.log(2 * s.depth))}.get(s.placement, 1.0)
    with torch.no_grad():
        for block in model.blocks:
            assert isinstance(block, Block)
            for linear in (block.mix, block.ffn_in, block.ffn_out):  # there are no q and k, which would keep theirs
                linear.weight *= gain
    return model.to(getattr(torch, s.dtype))


def draw(weight: Tensor, s: Settings, writes: bool) -> None:
    """Start values of one matrix; `writes` says whether its result is added to the stream."""
    if s.init == "xavier":
        bound = options(s.init_options).get("gain", 1.0) * math.sqrt(6 / (weight.shape[0] + weight.shape[1]))
        nn.init.uniform_(weight, -bound, bound)
    else:
        std = options(s.init_options).get("std", 0.02)
        nn.init.normal_(weight, 0.0, std / math.sqrt(2 * s.depth) if s.init == "gpt2" and writes else std)


@torch.no_grad()
def profile(model: Decoder, tokens_BT: Tensor) -> None:
    """Admin's start values, from one pass over the first batch: w of the first sublayer is 1, that of each next one the
    root of Var[w x] + Var[f(x)] of the one before it."""
    running = [buffer.clone() for buffer in model.buffers()]
    x_BTD, variance = model.embedding(tokens_BT), torch.tensor(1.0)
    for join, f in model.joins():
        join.w.fill_(variance.sqrt())
        kept_BTD, branch_BTD = join.w * x_BTD, f(x_BTD)
        variance = kept_BTD.var(correction=0) + branch_BTD.var(correction=0)
        x_BTD = join.LN(kept_BTD + branch_BTD)
    for buffer, value in zip(model.buffers(), running, strict=True):
        buffer.copy_(value)
