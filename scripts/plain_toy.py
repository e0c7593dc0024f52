"""The toy net and its training, plain and eager: one run, no lanes, nothing imported from normlab.

This is the copy to read when you doubt the package; `tests/test_oracle.py` holds the package to it.

    python scripts/plain_toy.py --depth 20 --norm layernorm --placement pre --lr 1e-3 --steps 500

Shapes: B batch, T time, D width, F hidden, V vocabulary. Losses are mean cross-entropies in nats.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args, get_type_hints

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

SHOWN = ("step", "train_loss", "grad_norm", "val_loss")


@dataclass(frozen=True)
class Settings:
    """Everything that one run depends on; each field is an option of the command line. `clip` 0 means no clipping."""

    depth: int = 20
    width: int = 64
    hidden: int = 128
    norm: Literal["none", "layernorm", "rmsnorm", "dyt"] = "layernorm"
    placement: Literal["post", "pre"] = "pre"
    mixer: Literal["mean", "linear"] = "mean"
    init: Literal["small_normal", "torch"] = "small_normal"
    init_std: float = 0.02
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


class DyT(nn.Module):
    """g tanh(alpha x) + b with one learnable scalar alpha, started at 0.5 (arXiv:2503.10622)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(0.5))
        self.g, self.b = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.g * torch.tanh(self.alpha * x_BTD) + self.b


def make_norm(name: str, width: int) -> nn.Module:
    """A norm over the last axis; torch's own where torch has it (both have eps inside the root)."""
    if name == "layernorm":
        return nn.LayerNorm(width, eps=1e-5)
    if name == "rmsnorm":
        return nn.RMSNorm(width, eps=1e-6)
    return DyT(width) if name == "dyt" else nn.Identity()


class Block(nn.Module):
    """Mixer and feed-forward, each with its residual connection and its norm before (pre) or after the sum (post)."""

    def __init__(self, s: Settings) -> None:
        super().__init__()
        self.placement, self.mixer = s.placement, s.mixer
        self.norm1, self.norm2 = make_norm(s.norm, s.width), make_norm(s.norm, s.width)
        self.mix = nn.Linear(s.width, s.width)
        self.ffn_in, self.ffn_out = nn.Linear(s.width, s.hidden), nn.Linear(s.hidden, s.width)

    def mixed(self, x_BTD: Tensor) -> Tensor:
        if self.mixer == "mean":  # of positions 0..t; without it no token sees another one
            count_T = torch.arange(1, x_BTD.shape[1] + 1, dtype=x_BTD.dtype, device=x_BTD.device)
            x_BTD = x_BTD.cumsum(1) / count_T[:, None]
        return self.mix(x_BTD)

    def ffn(self, x_BTD: Tensor) -> Tensor:
        return self.ffn_out(F.gelu(self.ffn_in(x_BTD)))

    def forward(self, x_BTD: Tensor) -> Tensor:
        if self.placement == "pre":
            x_BTD = x_BTD + self.mixed(self.norm1(x_BTD))
            return x_BTD + self.ffn(self.norm2(x_BTD))
        x_BTD = self.norm1(x_BTD + self.mixed(x_BTD))
        return self.norm2(x_BTD + self.ffn(x_BTD))


class Decoder(nn.Module):
    """Embedding, blocks, final norm, head; the modules are built, and so draw their weights, in this order."""

    def __init__(self, s: Settings) -> None:
        super().__init__()
        auto = "layernorm" if s.placement == "pre" else "none"
        final = {"auto": auto, "same": s.norm}.get(s.final_norm, s.final_norm)
        self.embedding = nn.Embedding(s.vocab, s.width)
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.depth))
        self.final_norm = make_norm(final, s.width)
        self.head = nn.Linear(s.width, s.vocab, bias=False)

    def forward(self, tokens_BT: Tensor) -> tuple[Tensor, list[float]]:
        """Logits (B, T, V), and the largest RMS of a token in the residual stream: embedding, then after each block."""
        stream = [self.embedding(tokens_BT)]
        for block in self.blocks:
            stream.append(block(stream[-1]))
        rms = [float(x.detach().square().mean(-1).sqrt().max()) for x in stream]
        return self.head(self.final_norm(stream[-1])), rms


def build(s: Settings) -> Decoder:
    """The net at the start: drawn in float32 from the run's seed, then widened if need be."""
    torch.manual_seed(s.seed)
    model = Decoder(s)
    if s.init == "small_normal":  # otherwise torch's own start values stay
        for module in model.modules():
            if isinstance(module, (nn.Embedding, nn.Linear)):
                nn.init.normal_(module.weight, 0.0, s.init_std)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
    return model.to(getattr(torch, s.dtype))


def stream_of(*entropy: int) -> np.random.Generator:
    """An independent random stream for each tuple of numbers."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))


def sequences(rng: np.random.Generator, count: int, s: Settings) -> Tensor:
    """`count` sequences of length + 1 tokens that follow x_t = a x_{t-1} + b x_{t-2} + c mod V, (count, length + 1)."""
    order = 2 if s.b % s.vocab else 1
    tokens = np.zeros((count, s.length + 1), dtype=np.int64)
    tokens[:, :order] = rng.integers(s.vocab, size=(count, order))
    for t in range(order, s.length + 1):
        before = s.b * tokens[:, t - 2] if order == 2 else 0
        tokens[:, t] = (s.a * tokens[:, t - 1] + before + s.c) % s.vocab
    return torch.from_numpy(tokens)


def loss_of(model: Decoder, tokens: Tensor, s: Settings) -> tuple[Tensor, list[float]]:
    """Mean cross-entropy of predicting each next token (or only the last), and the largest RMS by layer."""
    logits_BTV, rms = model(tokens[:, :-1])
    start = s.length - 1 if s.loss_on == "last" else 0
    return F.cross_entropy(logits_BTV[:, start:].flatten(0, 1), tokens[:, 1 + start :].flatten()), rms


def make_optimizer(model: Decoder, s: Settings) -> torch.optim.Optimizer:
    """torch's own optimiser; Adam's and SGD's weight decay is added to the gradient, AdamW's is decoupled."""
    if s.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), s.lr, momentum=s.momentum, weight_decay=s.weight_decay)
    kind = torch.optim.Adam if s.optimizer == "adam" else torch.optim.AdamW
    return kind(model.parameters(), s.lr, betas=(s.beta1, s.beta2), eps=s.eps, weight_decay=s.weight_decay)


def rate(k: int, s: Settings) -> float:
    """Learning rate of step k = 1, 2, ...: linear warm-up, then the schedule over the steps that are left."""
    warm = min(k / s.warmup, 1.0) if s.warmup else 1.0
    done = max(k - s.warmup - 1, 0) / (s.steps - s.warmup)
    shape = {"constant": 1.0, "linear": 1.0 - done, "cosine": (1.0 + math.cos(math.pi * done)) / 2.0}[s.schedule]
    return s.lr * warm * shape


def run(s: Settings, show: bool = False) -> list[dict[str, Any]]:
    """Train once. A row a step from 0 on: `step`, `train_loss` and `grad_norm` of the step's batch before the update,
    `val_loss` and `act_rms` after it where it was evaluated (None elsewhere). Ends early at a non-finite loss."""
    model = build(s)
    optimizer = make_optimizer(model, s)
    validation, training = sequences(stream_of(s.task_seed, 2), s.val_size, s), stream_of(s.seed, 1)
    rows: list[dict[str, Any]] = []
    for k in range(s.steps + 1):
        row: dict[str, Any] = dict.fromkeys((*SHOWN, "act_rms")) | {"step": k}
        if k > 0:
            loss, _ = loss_of(model, sequences(training, s.batch, s), s)
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), s.clip or math.inf)
            optimizer.param_groups[0]["lr"] = rate(k, s)
            optimizer.step()
            row |= {"train_loss": loss.item(), "grad_norm": norm.item()}
        if k % s.eval_every == 0 or k == s.steps:
            with torch.no_grad():
                val_loss, rms = loss_of(model, validation, s)
            row |= {"val_loss": val_loss.item(), "act_rms": rms}
        rows.append(row)
        if show and row["val_loss"] is not None:
            print(*(f"{name} {row[name]}" for name in SHOWN), sep="  ", flush=True)
        if k > 0 and not math.isfinite(row["train_loss"]):
            break
    return rows


def main() -> None:
    """Read the options, train, print the rows that were evaluated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = get_type_hints(Settings)
    for field in fields(Settings):
        option, choices = "--" + field.name.replace("_", "-"), get_args(names[field.name]) or None
        parser.add_argument(option, type=type(field.default), default=field.default, choices=choices)
    run(Settings(**vars(parser.parse_args())), show=True)


if __name__ == "__main__":
    main()
