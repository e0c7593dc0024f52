"""The toy net's training, plain and eager: one run, no lanes, nothing imported from normlab.

This is the copy to read when you doubt the package; `tests/test_oracle.py` holds the package to it. The net is in
`plain_net.py`, its norms are in `plain_norms.py`.

    python scripts/plain_toy.py --depth 20 --norm layernorm --placement pre --lr 1e-3 --steps 500

Shapes: B batch, T time, V vocabulary. Losses are mean cross-entropies in nats.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import numpy as np
import torch
from plain_net import Decoder, Settings, build, profile
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = [
    "Decoder",
    "Settings",
    "build",
    "loss_of",
    "make_optimizer",
    "rate",
    "run",
    "sequences",
    "stream_of",
    "train",
]
SHOWN = ("step", "train_loss", "grad_norm", "val_loss")


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


def train(s: Settings, show: bool = False) -> tuple[list[dict[str, Any]], Decoder]:
    """Train once. A row a step from 0 on: `step`, `train_loss` and `grad_norm` of the step's batch before the update,
    `val_loss` and `act_rms` after it where it was evaluated (None elsewhere). Ends early at a non-finite loss. The net
    comes back as the last step left it, with that step's gradients."""
    model = build(s)
    optimizer = make_optimizer(model, s)
    validation, training = sequences(stream_of(s.task_seed, 2), s.val_size, s), stream_of(s.seed, 1)
    if s.placement == "admin":
        profile(model, sequences(stream_of(s.seed, 1), s.batch, s)[:, :-1])  # the batch that step 1 gets
    rows: list[dict[str, Any]] = []
    for k in range(s.steps + 1):
        row: dict[str, Any] = dict.fromkeys((*SHOWN, "act_rms")) | {"step": k}
        for join, _ in model.joins():
            join.k = k
        if k > 0:
            loss, _ = loss_of(model, sequences(training, s.batch, s), s)
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), s.clip or math.inf)
            optimizer.param_groups[0]["lr"] = rate(k, s)
            optimizer.step()
            row |= {"train_loss": loss.item(), "grad_norm": norm.item()}
        if k % s.eval_every == 0 or k == s.steps:
            model.eval()
            with torch.no_grad():
                val_loss, rms = loss_of(model, validation, s)
            model.train()
            row |= {"val_loss": val_loss.item(), "act_rms": rms}
        rows.append(row)
        if show and row["val_loss"] is not None:
            print(*(f"{name} {row[name]}" for name in SHOWN), sep="  ", flush=True)
        if k > 0 and not math.isfinite(row["train_loss"]):
            break
    return rows, model


def run(s: Settings, show: bool = False) -> list[dict[str, Any]]:
    """The rows of `train`."""
    return train(s, show)[0]


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
