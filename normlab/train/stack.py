"""The state of S runs in training and the step that moves it: one program, S independent lanes.

Shapes: S lanes, B batch, T time, V vocabulary, P parameters of one lane.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from normlab.config.schema import RunSpec
from normlab.fused.build import Library
from normlab.fused.step import Fused
from normlab.model.decoder import Decoder, build
from normlab.model.layers import ALIGN
from normlab.train.gradient import SMALL, clip_, gradient_norms
from normlab.train.optim import OPTIMIZERS, Adam, Optimizer
from normlab.train.subnormals import flushing

EVALUATION_CHUNK = 64  # sequences at once; fixed, so that the sums keep their order


class StepInputs(NamedTuple):
    """What a step needs, or, with a leading axis K, what K steps need: tokens (S, B, T), each lane's rate (S, 1), the
    optimiser's corrections (2,), and the number of the step (1,)."""

    tokens_SBT: Tensor
    rate_S1: Tensor
    corrections_2: Tensor
    step_1: Tensor

    def at(self, k: int) -> StepInputs:
        """Those of the `k`-th step."""
        return StepInputs(*(values[k] for values in self))


class StepStats(NamedTuple):
    """What one step leaves behind, each (S,): the loss and gradient norm before the update, and whether loss, gradient,
    and, after the update, parameters and the optimiser's second moment were finite."""

    loss_S: Tensor
    norm_S: Tensor
    loss_fine_S: Tensor
    grad_fine_S: Tensor
    params_fine_S: Tensor
    moment_fine_S: Tensor


class LaneState(NamedTuple):
    """What one lane's forward pass depends on besides the tokens: parameters (P,), the state of its norms, and the
    number of the step (1,)."""

    params_P: Tensor
    buffers: list[Tensor]
    clock_1: Tensor


class Stack:
    """Model, flat parameters, optimiser and the mask of living lanes.

    `looks` says whether a step may look at values on its way, which is free on the CPU and makes it wait for a GPU.
    `library` computes gradients, evaluations and Adam in C++ instead of torch's operations; it must know the net
    (`normlab.fused.cover`), and its last digits are others."""

    def __init__(
        self,
        specs: Sequence[RunSpec],
        device: str = "cpu",
        library: Library | None = None,
        looks: bool | None = None,
    ) -> None:
        self.specs, self.device, self.library = specs, device, library
        self.looks = device == "cpu" if looks is None else looks
        self.model: Decoder = build(specs, device)
        self.params_SP = flatten(self.model)
        self.fused = Fused(library, self.model, specs[0], self.params_SP) if library else None
        self.leaves = list(self.model.parameters())
        self.buffers = list(self.model.buffers())  # running statistics, each (S, ...)
        optimizer = OPTIMIZERS[specs[0].optim.name]
        self.optimizer: Optimizer = optimizer([s.optim for s in specs], self.params_SP, self.looks)
        if self.fused and isinstance(self.optimizer, Adam):
            self.optimizer.one_lane = self.fused.adam
        clips = [spec.optim.clip for spec in specs]
        self.clip_S = (
            self.params_SP.new_tensor([float("inf") if clip is None else clip for clip in clips])
            if any(clip is not None for clip in clips)
            else None
        )
        self.alive_S = torch.ones(len(specs), dtype=torch.bool, device=device)

    def losses(self, tokens_SBT: Tensor, tap: Callable[[int, Tensor], None] | None = None) -> Tensor:
        """Mean cross-entropy of each lane (S,) in nats on sequences of length + 1 tokens (S, B, T)."""
        logits_SBTV = self.model(tokens_SBT[..., :-1], tap)
        targets_SBT = tokens_SBT[..., 1:]
        if self.specs[0].task.loss_on == "last":
            logits_SBTV, targets_SBT = logits_SBTV[..., -1:, :], targets_SBT[..., -1:]
        wide = torch.promote_types(logits_SBTV.dtype, torch.float32)
        each = torch.nn.functional.cross_entropy(
            logits_SBTV.to(wide).flatten(0, 2), targets_SBT.flatten(), reduction="none"
        )
        return each.view(len(targets_SBT), -1).mean(1)

    def gradients(self, tokens_SBT: Tensor) -> tuple[Tensor, Tensor]:
        """Loss (S,) and flat gradient (S, P) of each lane; lanes do not touch each other in the sum."""
        if self.fused:
            return self.fused.gradients(tokens_SBT)
        scale = self.specs[0].train.loss_scale
        loss_S = self.losses(tokens_SBT)
        grads = torch.autograd.grad((loss_S * scale if scale != 1 else loss_S).sum(), self.leaves)
        grad_SP = torch.cat([grad.reshape(len(loss_S), -1) for grad in grads], dim=1)
        return loss_S.detach(), grad_SP.div_(scale) if scale != 1 else grad_SP

    def inputs(self, first: int, tokens_KSBT: np.ndarray, rates_KS: np.ndarray) -> StepInputs:
        """What K steps from step `first` on need, on the stack's device."""
        corrections_K2 = [self.optimizer.corrections(first + k) for k in range(len(rates_KS))]
        numbers = (torch.tensor(rates_KS).unsqueeze(-1), torch.tensor(corrections_K2, dtype=torch.float64))
        rates_KS1, corrections = (values.to(self.params_SP.dtype).to(self.device) for values in numbers)
        steps_K1 = torch.arange(first, first + len(rates_KS), dtype=torch.float32).unsqueeze(1).to(self.device)
        return StepInputs(torch.from_numpy(tokens_KSBT).to(self.device), rates_KS1, corrections, steps_K1)

    @flushing()
    def profile(self, tokens_SBT: Tensor) -> None:
        """Before the first step: set the start values that hang on activations, on each lane's first batch of length
        + 1 tokens."""
        if self.model.profiles:
            kept = [buffer.clone() for buffer in self.buffers]
            self.model.profile(tokens_SBT[..., :-1])
            for buffer, value in zip(self.buffers, kept, strict=True):
                buffer.copy_(value)

    def lane(self, lane: int) -> LaneState:
        """The state of one lane; not a copy."""
        return LaneState(self.params_SP[lane], [buffer[lane] for buffer in self.buffers], self.model.clock)

    def load(self, lane: int, state: LaneState) -> None:
        """Put a lane into a state."""
        self.params_SP[lane] = state.params_P
        for buffer, value in zip(self.buffers, state.buffers, strict=True):
            buffer[lane] = value
        self.model.clock.copy_(state.clock_1)

    @flushing()
    def step(self, inputs: StepInputs) -> StepStats:
        """Update every living lane once, at its own rate; a lane that is or becomes non-finite is frozen as it was."""
        self.model.clock.copy_(inputs.step_1)
        before = [buffer.clone() for buffer in self.buffers]
        loss_S, grad_SP = self.gradients(inputs.tokens_SBT)
        norms = gradient_norms(grad_SP, self.looks)
        loss_fine_S = loss_S.isfinite()
        moves_S1 = (self.alive_S & loss_fine_S & norms.fine_S).unsqueeze(1)
        rate_S1 = inputs.rate_S1
        if not (self.looks and bool(moves_S1.all())):
            grad_SP.masked_fill_(~moves_S1, 0.0)
            rate_S1 = rate_S1.masked_fill(~moves_S1, 0.0)
        if self.clip_S is not None:
            clip_(grad_SP, norms, self.clip_S, self.looks)
        with torch.no_grad():
            self.optimizer.update(self.params_SP, grad_SP, rate_S1, inputs.corrections_2)
        for buffer, value in zip(self.buffers, before, strict=True):
            buffer.copy_(torch.where(moves_S1.view(-1, *[1] * (buffer.dim() - 1)), buffer, value))
        params_fine_S = finite_rows(self.params_SP, self.looks)
        self.alive_S.copy_(moves_S1.squeeze(1) & params_fine_S)
        moment_fine_S = self.optimizer.moment_fine(norms.usual)
        if moment_fine_S is None:
            moment_fine_S = torch.ones_like(self.alive_S)
        return StepStats(loss_S, norms.norm_S, loss_fine_S, norms.fine_S, params_fine_S, moment_fine_S)

    def state(self) -> list[Tensor]:
        """The tensors that a step changes."""
        return [self.params_SP, self.alive_S, self.model.clock, *self.buffers, *self.optimizer.state()]

    @flushing()
    @torch.no_grad()
    def evaluate(self, tokens_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Validation loss (S,) and largest per-token RMS of the stream by layer (depth + 1, S), on shared tokens."""
        if self.fused:
            return self._measured(tokens_BT, self.fused.evaluate)
        self.model.eval()
        loss_S, rms_LS = self._measure(tokens_BT, largest_rms)
        plain_LS = (rms_LS >= SMALL) & rms_LS.isfinite()
        if bool((self.alive_S & ~plain_LS).any()):
            # A square overflowed or vanished, so once more, with care; what was right keeps its bits.
            rms_LS = torch.where(plain_LS, rms_LS, self._measure(tokens_BT, largest_rms_scaled)[1])
        self.model.train()
        return loss_S, rms_LS

    def _measure(self, tokens_BT: Tensor, size: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Loss (S,) and the largest `size` (S,) of the stream by layer, (depth + 1, S)."""

        def measure(chunk_BT: Tensor) -> tuple[Tensor, Tensor]:
            sizes: list[Tensor] = []
            shared_SBT = chunk_BT.expand(len(self.specs), -1, -1)
            loss_S = self.losses(shared_SBT, lambda _, x_SBTD: sizes.append(size(x_SBTD.to(self.params_SP.dtype))))
            return loss_S, torch.stack(sizes)

        return self._measured(tokens_BT, measure)

    def _measured(self, tokens_BT: Tensor, measure: Callable[[Tensor], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """The same from chunks: mean of the losses (S,), largest of the sizes (depth + 1, S)."""
        chunks = tokens_BT.split(EVALUATION_CHUNK)
        losses, sizes = zip(*(measure(chunk_BT) for chunk_BT in chunks), strict=True)
        total_S = torch.zeros_like(losses[0], dtype=torch.float64)
        for chunk_BT, loss_S in zip(chunks, losses, strict=True):
            total_S += loss_S.double() * len(chunk_BT)
        return (total_S / len(tokens_BT)).to(self.params_SP.dtype), torch.stack(sizes).amax(0)


def largest_rms(x_SBTD: Tensor) -> Tensor:
    """The largest RMS of a token, lane by lane (S,)."""
    return x_SBTD.square().mean(-1).flatten(1).amax(1).sqrt()


def largest_rms_scaled(x_SBTD: Tensor) -> Tensor:
    """The same for streams whose squares overflow or vanish: of x divided by about its largest entry."""
    largest_S = x_SBTD.abs().flatten(1).amax(1)
    # A power of two changes no digit. It must be a normal number itself, also where the largest entry is not.
    bound = 100 if x_SBTD.dtype == torch.float32 else 1000
    exponent_S = largest_S.frexp().exponent.clamp(min=-bound, max=bound)
    scale_S = torch.ones_like(largest_S).ldexp(exponent_S)
    return largest_rms(x_SBTD / scale_S.view(-1, 1, 1, 1)) * scale_S


def flatten(model: Decoder) -> Tensor:
    """Move all parameters into one buffer (S, P), a row a lane, and make them views of it.

    Rows are padded to whole vector registers, so every lane starts alike and its bits do not hang on its place."""
    leaves = list(model.parameters())
    lanes, size = len(leaves[0]), sum(leaf[0].numel() for leaf in leaves)
    flat_SP = leaves[0].new_zeros(lanes, -(-size // ALIGN) * ALIGN).detach()[:, :size]
    offset = 0
    for leaf in leaves:
        width = leaf[0].numel()
        view = flat_SP[:, offset : offset + width].view(leaf.shape)
        view.copy_(leaf.detach())
        leaf.data = view
        offset += width
    return flat_SP


def finite_rows(x_SP: Tensor, looks: bool = True) -> Tensor:
    """Whether each row (S,) holds finite numbers only."""
    if looks:
        # A row with a NaN or an infinity has no finite sum, and a sum is one fast pass. A finite row's may overflow.
        sums_fine_S = x_SP.sum(1).isfinite()
        if bool(sums_fine_S.all()):
            return sums_fine_S
    return x_SP.isfinite().all(1)
