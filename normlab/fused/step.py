"""Calls of the C++ step: loss and gradient of every lane of a stack, evaluations, Adam.

Shapes: S lanes, B batch, T time, D width, F hidden, V vocabulary, L blocks, P parameters of one lane.
"""

from __future__ import annotations

import ctypes
from typing import Any, cast

import torch
from torch import Tensor

from normlab.config.schema import OptimSpec, RunSpec
from normlab.fused.build import Library
from normlab.fused.cover import MIXERS, NORMS, PLACEMENTS
from normlab.model.decoder import Decoder

# The leaves of a block and those behind the blocks, in the order in which the C++ has their offsets.
BLOCK_LEAVES = (
    *("mixer_norms.0.gain", "mixer_norms.0.bias", "mixer_norms.0.alpha", "mixer.linear.weight", "mixer.linear.bias"),
    *("ffn_norms.0.gain", "ffn_norms.0.bias", "ffn_norms.0.alpha"),
    *("ffn.inner.weight", "ffn.inner.bias", "ffn.outer.weight", "ffn.outer.bias"),
)
END_LEAVES = ("final_norm.gain", "final_norm.bias", "final_norm.alpha", "embedding.weight", "head.weight")
KINDS = {torch.float32: "f32", torch.float64: "f64"}
ALIGNED = 64  # bytes of a cache line


class Shape(ctypes.Structure):
    """As in net.cpp."""

    _fields_ = [(name, ctypes.c_int64) for name in ("S", "B", "T", "D", "F", "V", "L", "P")]
    _fields_ += [(name, ctypes.c_int64) for name in ("placement", "mixer", "norm", "final_norm", "last_only")]
    _fields_ += [(name, ctypes.c_double) for name in ("eps", "final_eps")]


class AdamNumbers(ctypes.Structure):
    """As in adam.h."""

    _fields_ = [(name, ctypes.c_double) for name in ("beta1", "beta2", "rate", "eps")]


class Fused:
    """The decoder of a stack, whose parameters lie in rows of `params_SP`, run by the library."""

    def __init__(self, library: Library, model: Decoder, spec: RunSpec, params_SP: Tensor) -> None:
        self.library, self.model, self.params_SP = library, model, params_SP
        m, task = spec.model, spec.task
        self.shape = Shape(
            S=len(params_SP), T=task.length, D=m.width, F=m.hidden, V=task.vocab, L=m.depth, P=params_SP.stride(0),
            placement=PLACEMENTS.index(m.placement), mixer=MIXERS.index(m.mixer),
            norm=NORMS.index(m.norm), final_norm=NORMS.index(m.final_norm_name()), last_only=task.loss_on == "last",
            eps=eps_of(cast(Any, model.blocks[0]).ffn_norms[0]), final_eps=eps_of(model.final_norm),
        )  # fmt: skip
        self.post = m.placement == "post" and m.norm != "none"  # A post norm that is none is no norm at all.
        self.leaf = torch.tensor(offsets(model))
        self.workspaces: dict[tuple[int, bool], Tensor] = {}

    def gradients(self, tokens_SBT: Tensor, watch: Any = None) -> tuple[Tensor, Tensor]:
        """Loss (S,) in nats and flat gradient (S, P) of each lane, on sequences of length + 1 tokens. `watch` takes
        what passes between the modules, see `normlab.fused.watch`."""
        loss_S, grad_SP = self.params_SP.new_empty(len(tokens_SBT)), torch.empty_like(self.params_SP)
        shape, workspace = self._sized(tokens_SBT.shape[1]), self._workspace(tokens_SBT.shape[1], training=True)
        ramp_L, tokens_SBT = self._ramps(), tokens_SBT.contiguous()
        self._function("gradients")(
            shape, pointer(self.leaf), pointer(self.params_SP), pointer(ramp_L), pointer(tokens_SBT),
            pointer(loss_S), pointer(grad_SP), ctypes.c_int64(grad_SP.stride(0)), aligned(workspace),
            watch and watch.values, watch and watch.slopes,
        )  # fmt: skip
        return loss_S, grad_SP

    def evaluate(self, tokens_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Loss (S,) of sequences that all lanes share, and the largest RMS of a token by layer (L + 1, S)."""
        lanes, depth = int(self.shape.S), int(self.shape.L)
        loss_S, rms_SL = self.params_SP.new_empty(lanes), self.params_SP.new_empty(lanes, depth + 1)
        shape, workspace = self._sized(len(tokens_BT)), self._workspace(len(tokens_BT), training=False)
        ramp_L, tokens_BT = self._ramps(), tokens_BT.contiguous()
        self._function("evaluate")(
            shape, pointer(self.leaf), pointer(self.params_SP), pointer(ramp_L), pointer(tokens_BT),
            pointer(loss_S), pointer(rms_SL), aligned(workspace),
        )  # fmt: skip
        return loss_S, rms_SL.T

    def adam(
        self, param_P: Tensor, grad_P: Tensor, mean_P: Tensor, square_P: Tensor, optim: OptimSpec, rate: float,
        eps: float,
    ) -> None:  # fmt: skip
        """Adam's step of one lane, in one pass; rate and eps hold the bias corrections."""
        numbers = AdamNumbers(beta1=optim.beta1, beta2=optim.beta2, rate=rate, eps=eps)
        buffers = (pointer(x_P) for x_P in (param_P, grad_P, mean_P, square_P))
        self._function("adam")(ctypes.c_int64(len(param_P)), *buffers, ctypes.byref(numbers))

    def _function(self, name: str) -> Any:
        return getattr(self.library.functions, f"{name}_{KINDS[self.params_SP.dtype]}")

    def _sized(self, batch: int) -> Any:
        self.shape.B = batch
        return ctypes.byref(self.shape)

    def _workspace(self, batch: int, training: bool) -> Tensor:
        """Scratch memory for one lane, made once a batch size."""
        key = (batch, training)
        if key not in self.workspaces:
            size = self._function("workspace")
            size.restype = ctypes.c_int64
            bytes = size(self._sized(batch), int(training))
            self.workspaces[key] = torch.empty(bytes + ALIGNED, dtype=torch.uint8)
        return self.workspaces[key]

    def _ramps(self) -> Tensor:
        """The factor on the branches of every block (L,)."""
        ramp_steps = [cast(Any, block).ffn_placement.ramp_steps for block in self.model.blocks]
        clock = float(self.model.clock)
        factors = [1.0 if steps is None else min(clock / steps, 1.0) for steps in ramp_steps]
        return torch.tensor(factors, dtype=self.params_SP.dtype)


def eps_of(norm: Any) -> float:
    """The eps of a norm; 0 for one without."""
    return float(norm.options.all().get("eps", 0.0))


def places(model: Decoder) -> dict[str, slice]:
    """Where each leaf lies in a lane's row of parameters."""
    found, at = {}, 0
    for name, leaf in model.named_parameters():
        found[name] = slice(at, at + leaf[0].numel())
        at += leaf[0].numel()
    return found


def offsets(model: Decoder) -> list[int]:
    """Where each leaf begins, in the order of BLOCK_LEAVES for every block and END_LEAVES; -1: there is none."""
    there = places(model)
    wanted = [f"blocks.{layer}.{leaf}" for layer in range(len(model.blocks)) for leaf in BLOCK_LEAVES] + [*END_LEAVES]
    assert there.keys() <= set(wanted), f"leaves that the C++ does not know: {sorted(there.keys() - set(wanted))}"
    return [there[name].start if name in there else -1 for name in wanted]


def pointer(tensor: Tensor) -> ctypes.c_void_p:
    """Where a tensor's numbers begin."""
    return ctypes.c_void_p(tensor.data_ptr())


def aligned(workspace: Tensor) -> ctypes.c_void_p:
    """Its first whole cache line."""
    return ctypes.c_void_p(-(-workspace.data_ptr() // ALIGNED) * ALIGNED)
