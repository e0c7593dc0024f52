"""The fused engine: loss and gradient of every lane of a stack by one call of `block.cpp`.

Shapes: S lanes, B batch, T time, D width, F hidden, V vocabulary, L blocks, P parameters of one lane.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from normlab.model.decoder import Decoder, final_norm_name

PLACEMENTS, MIXERS, NORMS = ("pre", "post"), ("linear", "mean"), ("none", "layernorm", "rmsnorm", "dyt")
BLOCK_LEAVES = (
    *("mixer_norms.0.gain", "mixer_norms.0.bias", "mixer_norms.0.alpha", "mixer.linear.weight", "mixer.linear.bias"),
    *("ffn_norms.0.gain", "ffn_norms.0.bias", "ffn_norms.0.alpha"),
    *("ffn.inner.weight", "ffn.inner.bias", "ffn.outer.weight", "ffn.outer.bias"),
)
END_LEAVES = ("final_norm.gain", "final_norm.bias", "final_norm.alpha", "embedding.weight", "head.weight")
# Where the modules of a block end, in the order of the forward pass (`mixed` is the input of the mixer's matrix, `gelu`
# that of the second one); with placement post norm1 and norm2 stand behind the sums.
EDGES = ("norm1", "mixed", "mixer", "sum1", "norm2", "inner", "gelu", "ffn", "sum2")
OUTER = ("embedding", "final_norm", "head")
SUFFIX = {torch.float32: "f32", torch.float64: "f64"}


class Shape(ctypes.Structure):
    """As in block.cpp."""

    _fields_ = [(name, ctypes.c_int64) for name in ("S", "B", "T", "D", "F", "V", "L", "P")]
    _fields_ += [(name, ctypes.c_int64) for name in ("placement", "mixer", "norm", "final_norm", "last_only")]
    _fields_ += [(name, ctypes.c_double) for name in ("eps", "final_eps", "loss_scale")]


class AdamNumbers(ctypes.Structure):
    """As in step.h."""

    _fields_ = [(name, ctypes.c_double) for name in ("beta1", "beta2", "rate", "eps", "decay", "shrink")]


def refusal(spec: Any) -> str | None:
    """Why block.cpp does not know the net of a RunSpec; None if it does."""
    model, train = spec.model, spec.train
    for what, name, known in (
        ("placement", model.placement, PLACEMENTS),
        ("mixer", model.mixer, MIXERS),
        ("norm", model.norm, NORMS),
        ("final norm", final_norm_name(model), NORMS),
    ):
        if name not in known:
            return f"{what} '{name}' is not among {', '.join(known)}"
    if train.precision not in ("float32", "float64"):
        return f"precision {train.precision}"
    if train.precision == "float32" and getattr(model.norm_options, "statistics", "float32") == "float64":
        return "statistics in float64"
    return None


class Fused:
    """Runs the decoder of a stack, whose parameters lie in rows of `params_SP` (see `stack.flatten`)."""

    def __init__(self, library: ctypes.CDLL, model: Decoder, spec: Any, params_SP: Tensor) -> None:
        self.library, self.model, self.spec, self.params_SP = library, model, spec, params_SP
        self.suffix = SUFFIX[params_SP.dtype]
        m, task = spec.model, spec.task
        final, first = final_norm_name(m), cast(Any, model.blocks[0])
        self.shape = Shape(
            S=len(params_SP), B=spec.train.batch, T=task.length, D=m.width, F=m.hidden, V=task.vocab, L=m.depth,
            P=params_SP.stride(0), placement=PLACEMENTS.index(m.placement), mixer=MIXERS.index(m.mixer),
            norm=NORMS.index(m.norm), final_norm=NORMS.index(final), last_only=task.loss_on == "last",
            eps=eps_of(first.ffn_norms[0]), final_eps=eps_of(model.final_norm),
            loss_scale=spec.train.loss_scale,
        )  # fmt: skip
        self.leaf = torch.tensor(offsets(model, m.depth), dtype=torch.int64)
        self.workspaces: dict[tuple[int, bool], Tensor] = {}
        self.row = -(-params_SP.shape[1] // 16) * 16

    def ramps(self) -> Tensor:
        """The factor on the branches of every block (L,)."""
        blocks: list[Any] = list(self.model.blocks)
        ramp_steps = [block.ffn_placement.ramp_steps for block in blocks]
        if ramp_steps[0] is None:
            return torch.ones(len(ramp_steps), dtype=self.params_SP.dtype)
        clock = float(self.model.clock)
        return torch.tensor([min(clock / steps, 1.0) for steps in ramp_steps], dtype=self.params_SP.dtype)

    def workspace(self, training: bool) -> Tensor:
        """Scratch memory for one lane, made once a batch size."""
        key = (self.shape.B, training)
        if key not in self.workspaces:
            size = getattr(self.library, f"workspace_{self.suffix}")
            size.restype = ctypes.c_int64
            self.workspaces[key] = torch.empty(size(ctypes.byref(self.shape), int(training)) + 64, dtype=torch.uint8)
        return self.workspaces[key]

    def gradients(
        self, tokens_SBT: Tensor, watch: Watch | None = None, wanted_S: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Loss (S,) and flat gradient (S, P) of each lane, as `Stack.gradients`. Lanes that are not wanted take no
        time: loss NaN, gradient 0."""
        lanes, self.shape.B = tokens_SBT.shape[0], tokens_SBT.shape[1]
        size = self.params_SP.shape[1]
        loss_S = self.params_SP.new_empty(lanes)
        grad_SP = self.params_SP.new_empty(lanes, self.row)[:, :size]
        if wanted_S is not None:
            loss_S.fill_(float("nan")), grad_SP.zero_()
        ramp_L, tokens_SBT, workspace = self.ramps(), tokens_SBT.contiguous(), self.workspace(True)
        getattr(self.library, f"gradients_{self.suffix}")(
            ctypes.byref(self.shape), pointer(self.leaf), pointer(self.params_SP), pointer(ramp_L),
            pointer(tokens_SBT), pointer(loss_S), pointer(grad_SP), ctypes.c_int64(self.row),
            None if wanted_S is None else pointer(wanted_S),
            aligned(workspace), watch and watch.values, watch and watch.slopes,
        )  # fmt: skip
        scale = self.spec.train.loss_scale
        return loss_S, grad_SP.div_(scale) if scale != 1 else grad_SP

    def evaluate(self, tokens_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Loss (S,) of shared tokens and the largest RMS of a token by layer (L + 1, S)."""
        self.shape.B = len(tokens_BT)
        loss_S = self.params_SP.new_empty(self.shape.S)
        rms_SL = self.params_SP.new_empty(self.shape.S, self.shape.L + 1)
        ramp_L, tokens_BT, workspace = self.ramps(), tokens_BT.contiguous(), self.workspace(False)
        getattr(self.library, f"evaluate_{self.suffix}")(
            ctypes.byref(self.shape), pointer(self.leaf), pointer(self.params_SP), pointer(ramp_L), pointer(tokens_BT),
            pointer(loss_S), pointer(rms_SL), aligned(workspace),
        )  # fmt: skip
        return loss_S, rms_SL.T


def adam_step(
    library: ctypes.CDLL, params_SP: Tensor, grad_SP: Tensor, mean_SP: Tensor, square_SP: Tensor,
    rates: Sequence[float], numbers: dict[str, float],
) -> list[int]:  # fmt: skip
    """Adam's step of every lane with a rate: bit 0 of the answer says that its parameters are finite, bit 1 that its
    second moment is; 3 for a lane at rate 0, which stays as it is."""
    step = getattr(library, f"adam_{SUFFIX[params_SP.dtype]}")
    size, found = ctypes.c_int64(params_SP.shape[1]), []
    for lane, rate in enumerate(rates):
        buffers = (pointer(x_SP[lane]) for x_SP in (params_SP, grad_SP, mean_SP, square_SP))
        found.append(step(size, *buffers, ctypes.byref(AdamNumbers(rate=rate, **numbers))) if rate else 3)
    return found


class Watch:
    """Room for what goes in and out of every module of one lane, forward and backward."""

    def __init__(self, fused: Fused, batch: int) -> None:
        s, like = fused.shape, fused.params_SP
        assert s.S == 1
        widths = [s.F if edge in ("inner", "gelu") else s.D for edge in EDGES] * s.L + [s.D, s.D, s.V]
        names = [f"blocks.{layer}.{edge}" for layer in range(s.L) for edge in EDGES] + [*OUTER]

        def room() -> tuple[dict[str, Tensor], Any]:
            tensors = [like.new_full((batch, s.T, width), float("nan")) for width in widths]
            array = (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
            return dict(zip(names, tensors, strict=True)), array

        self.value, self.values = room()
        self.slope, self.slopes = room()


def eps_of(norm: Any) -> float:
    """The eps of a norm; 0 for one without."""
    return float(getattr(getattr(norm, "options", None), "eps", 0.0))


def offsets(model: Decoder, depth: int) -> list[int]:
    """Where each leaf begins in a lane's row of parameters, in the order of block.h and block.cpp; -1: not there."""
    begin, at = {}, 0
    for name, leaf in model.named_parameters():
        begin[name] = at
        at += leaf[0].numel()
    wanted = [f"blocks.{layer}.{leaf}" for layer in range(depth) for leaf in BLOCK_LEAVES] + [*END_LEAVES]
    assert set(begin) <= set(wanted), sorted(set(begin) - set(wanted))
    return [begin.get(name, -1) for name in wanted]


def pointer(tensor: Tensor) -> ctypes.c_void_p:
    """Where a tensor's numbers begin."""
    return ctypes.c_void_p(tensor.data_ptr())


def aligned(workspace: Tensor) -> ctypes.c_void_p:
    """Its first whole cache line."""
    return ctypes.c_void_p(-(-workspace.data_ptr() // 64) * 64)
