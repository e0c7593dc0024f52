"""What a step would cost if it were torch's own kernels and nothing else: bounds for stacks that are not compiled."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bench.crew import Crew, Member
from bench.flops import gemm_flops, run_step_flops
from bench.sizes import Sizes
from bench.work import Gemm
from normlab.config.schema import RunSpec
from normlab.model.decoder import Decoder
from normlab.model.mixers import running_mean
from normlab.studies.speed_clock import summary
from normlab.train.optim import OPTIMIZERS

Say = Callable[[str], None]
Kernels = Mapping[str, tuple[int, Callable[[], Any]]]
REPEATS = 40  # calls in a row; the fastest of TRIES such rows counts, so that a neighbour on the machine does not
TRIES = 3


def floor(crew: Crew, sizes: Sizes, say: Say) -> dict[str, Any]:
    """Milliseconds of a run-step by kind of kernel, summed over its kernels, each called again and again by itself: no
    backward graph, no Python between two of them. `hot` is on buffers of one lane that stay in the cache, `cold` on
    those of all layers in turn, as in a step. With `share_of_gemm_peak`, the share of the same core's matrix product
    that such a step would reach, and `products_share`, that of its products alone."""
    say("a step's kernels by themselves")
    (rounds,) = crew.call(timed_kernels, sizes.spec, sizes.gemm, sizes.overhead_rounds, members=1)
    return {name: shares([(each[name], each["peak"]) for each in rounds], sizes.spec) for name in ("hot", "cold")}


def shares(rounds: Sequence[tuple[dict[str, float], float]], spec: RunSpec) -> dict[str, Any]:
    """Of seconds by kind, and the operations a second of the large product, of each round."""
    flops, kinds = run_step_flops(spec), list(rounds[0][0])
    whole = [sum(seconds.values()) for seconds, _ in rounds]
    return {
        "ms": {kind: summary([1e3 * seconds[kind] for seconds, _ in rounds]) for kind in kinds},
        "ms_a_run_step": summary([1e3 * seconds for seconds in whole]),
        "share_of_gemm_peak": summary([flops / t / peak for t, (_, peak) in zip(whole, rounds, strict=True)]),
        "products_share": summary([flops / seconds["products"] / peak for seconds, peak in rounds]),
    }


def timed_kernels(member: Member, spec: RunSpec, gemm: int, rounds: int) -> list[dict[str, Any]]:
    """Seconds of a run-step by kind, `hot` and `cold`, and `peak`, operations a second of the large product; a dict a
    round."""
    layers, square = [kernels_of(spec) for _ in range(spec.model.depth)], Gemm(gemm)
    return [
        {
            "hot": seconds_of(layers[:1]),
            "cold": seconds_of(layers),
            "peak": gemm_flops(gemm) / fastest([square.step], 2),
        }
        for _ in range(rounds)
    ]


def kernels_of(spec: RunSpec) -> dict[str, Kernels]:
    """All kernels of a step on buffers of their own, by kind."""
    return {"products": products(spec), "gelu": gelu(spec), "norms": norms(spec), "rest": rest(spec)}


def seconds_of(layers: Sequence[dict[str, Kernels]]) -> dict[str, float]:
    """Seconds of a run-step by kind, each kernel called on the buffers of one layer after the other."""
    return {
        kind: sum(n * fastest([layer[kind][name][1] for layer in layers]) for name, (n, _) in kernels.items())
        for kind, kernels in layers[0].items()
    }


def fastest(calls: Sequence[Callable[[], Any]], repeats: int = REPEATS) -> float:
    """Seconds of one call, the calls made in turn."""
    turns = max(1, repeats // len(calls))
    best = float("inf")
    for _ in range(1 + TRIES):  # The first warms up.
        began = time.perf_counter()
        for _ in range(turns):
            for call in calls:
                call()
        best = min(best, (time.perf_counter() - began) / (turns * len(calls)))
    return best


def products(spec: RunSpec) -> Kernels:
    """The linear maps: y = x W + b, dx = g W^T and dW = x^T g; and the running mean, which has no dW."""
    m, t = spec.model, spec.task
    shapes = {"mixer": (m.width, m.width), "inner": (m.width, m.hidden), "outer": (m.hidden, m.width)}
    kernels: dict[str, tuple[int, Callable[[], Any]]] = {}
    for name, (fan_in, fan_out) in (shapes | {"head": (m.width, t.vocab)}).items():
        count = 1 if name == "head" else m.depth
        x, g, w = tokens(spec, fan_in), tokens(spec, fan_out), torch.randn(1, fan_in, fan_out)
        bias = torch.zeros(1, 1, fan_out)
        kernels |= {f"{name} {key}": (count, call) for key, call in linear_map(x, g, w, bias).items()}
    mean = running_mean(t.length, torch.empty(0)).expand(spec.train.batch, -1, -1)
    x, y = (tokens(spec, m.width).view(spec.train.batch, t.length, m.width) for _ in range(2))
    return kernels | {"mean": (2 * m.depth, lambda: torch.bmm(mean, x, out=y))}


def linear_map(x: Tensor, g: Tensor, w: Tensor, bias: Tensor) -> dict[str, Callable[[], Any]]:
    """The three products of one map, into buffers that are there."""
    y, dx, dw = torch.empty_like(g), torch.empty_like(x), torch.empty_like(w)
    wt, xt = w.transpose(1, 2), x.transpose(1, 2)
    return {
        "y": lambda: torch.bmm(x, w, out=y).add_(bias),
        "dx": lambda: torch.bmm(g, wt, out=dx),
        "dW": lambda: torch.bmm(xt, g, out=dw),
    }


def gelu(spec: RunSpec) -> Kernels:
    """GELU, exact, and its gradient."""
    x, g, out = (tokens(spec, spec.model.hidden) for _ in range(3))
    aten, depth = torch.ops.aten, spec.model.depth
    return {
        "y": (depth, lambda: aten.gelu.out(x, out=out)),
        "dx": (depth, lambda: aten.gelu_backward.grad_input(g, x, grad_input=out)),
    }


def norms(spec: RunSpec) -> Kernels:
    """LayerNorm and its gradients: two a block and the final one."""
    width, count = spec.model.width, 2 * spec.model.depth + 1
    x, g, weight = tokens(spec, width), tokens(spec, width), torch.ones(width)
    aten = torch.ops.aten
    _, mean, rstd = aten.native_layer_norm(x, [width], weight, weight, 1e-5)
    wanted = [True, True, True]
    return {
        "y": (count, lambda: aten.native_layer_norm(x, [width], weight, weight, 1e-5)),
        "dx": (count, lambda: aten.native_layer_norm_backward(g, x, [width], mean, rstd, weight, weight, wanted)),
    }


def rest(spec: RunSpec) -> Kernels:
    """Sums of the stream and of its gradient at each sublayer, gradients of the biases, embedding, loss, optimiser."""
    m, depth = spec.model, spec.model.depth
    x, y, out, hidden = *(tokens(spec, m.width) for _ in range(3)), tokens(spec, m.hidden)
    logits, targets = tokens(spec, spec.task.vocab)[0], torch.zeros(x.shape[1], dtype=torch.long)
    table, rows = torch.randn(spec.task.vocab, m.width), torch.zeros(x.shape[1], dtype=torch.long)
    log_p, aten = torch.log_softmax(logits, 1), torch.ops.aten
    size = sum(parameter.numel() for parameter in Decoder(spec).parameters())
    param_SP, grad_SP = (torch.zeros(1, size) for _ in range(2))
    optimizer, rate_S1 = OPTIMIZERS[spec.optim.name]([spec.optim], param_SP), torch.full((1, 1), spec.optim.lr)
    corrections_2 = torch.tensor(optimizer.corrections(1))
    return {
        "sums": (4 * depth, lambda: torch.add(x, y, out=out)),
        "bias, width": (2 * depth, lambda: x.sum(1)),
        "bias, hidden": (depth, lambda: hidden.sum(1)),
        "embedding": (1, lambda: torch.nn.functional.embedding(rows, table)),
        "its gradient": (1, lambda: aten.embedding_dense_backward(x[0], rows, len(table), -1, False)),
        "log p": (1, lambda: torch.log_softmax(logits, 1)),
        "loss": (1, lambda: torch.nn.functional.nll_loss(log_p, targets)),
        "its gradient by logits": (1, lambda: aten._log_softmax_backward_data(logits, log_p, 1, torch.float32)),
        "optimiser": (1, lambda: optimizer.update(param_SP, grad_SP, rate_S1, corrections_2)),
    }


def tokens(spec: RunSpec, width: int) -> Tensor:
    """Random numbers of one lane, (1, N, width) with N tokens in a batch."""
    return torch.randn(1, spec.train.batch * spec.task.length, width)
