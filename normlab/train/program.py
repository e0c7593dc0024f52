"""How the steps of a chunk are run: one after the other from Python, or as one captured step that is replayed.

Both take the inputs of K steps and give the statistics of each. On a GPU a step is some thousand small kernels, which
launched one by one would take longer than they run. There the step is captured once as a CUDA graph: inputs and
statistics lie in buffers on the device, a counter there says which row is next, and the host reads once a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from normlab.train.stack import Stack, StepInputs

Call = Callable[[], None]
WARM_UP = 3  # calls before a capture, in which torch sets up what it sets up once


class Statistics(NamedTuple):
    """What K steps left behind: loss and gradient norm before each update, (K, S), and whether loss, gradient,
    parameters and the optimiser's second moment were finite, (K, 4, S)."""

    loss_KS: np.ndarray
    norm_KS: np.ndarray
    fine_K4S: np.ndarray


class Program(Protocol):
    """Runs steps. `chunk` is the largest K; between `start` and `read` the host is free to do something else."""

    chunk: int

    def start(self, inputs: StepInputs) -> None: ...

    def read(self) -> Statistics: ...


class Eager:
    """Every step is called from Python."""

    chunk = 10

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    def start(self, inputs: StepInputs) -> None:
        self.stats = [self.stack.step(inputs.at(k)) for k in range(len(inputs.rate_S1))]

    def read(self) -> Statistics:
        loss_KS, norm_KS, *fine_4KS = (torch.stack(column).cpu().numpy() for column in zip(*self.stats, strict=True))
        return Statistics(loss_KS, norm_KS, np.stack(fine_4KS, axis=1))


class Captured:
    """One step, captured and replayed. `capture` takes the step and the tensors that it changes."""

    chunk = 100

    def __init__(self, stack: Stack, capture: Callable[[Call, Sequence[Tensor]], Call]) -> None:
        assert not stack.looks
        self.stack = stack
        lanes, train, task = len(stack.specs), stack.specs[0].train, stack.specs[0].task
        tokens_KSBT = np.zeros((self.chunk, lanes, train.batch, task.length + 1), dtype=np.int64)
        self.inputs = stack.inputs(1, tokens_KSBT, np.zeros((self.chunk, lanes)))
        numbers = [stack.params_SP.new_zeros(self.chunk, lanes) for _ in range(2)]
        flags = [torch.zeros(self.chunk, lanes, dtype=torch.bool, device=stack.device) for _ in range(4)]
        self.stats = [*numbers, *flags]
        self.rows_K1 = torch.arange(self.chunk, device=stack.device).unsqueeze(1)
        self.row_1 = torch.zeros(1, dtype=torch.int64, device=stack.device)
        self.replay = capture(self._step, [*stack.state(), self.row_1])

    def _step(self) -> None:
        inputs = StepInputs(*(values.index_select(0, self.row_1).squeeze(0) for values in self.inputs))
        # A choice by element has a fixed order everywhere; torch's indexed writes have not, or wait for the GPU.
        here_K1 = self.rows_K1 == self.row_1
        for buffer, value_S in zip(self.stats, self.stack.step(inputs), strict=True):
            buffer.copy_(torch.where(here_K1, value_S, buffer))
        self.row_1.add_(1)

    def start(self, inputs: StepInputs) -> None:
        self.count = len(inputs.rate_S1)
        for buffer, values in zip(self.inputs, inputs, strict=True):
            buffer[: self.count].copy_(values)
        self.row_1.zero_()
        for _ in range(self.count):
            self.replay()

    def read(self) -> Statistics:
        loss_KS, norm_KS, *fine_4KS = (buffer[: self.count].cpu().numpy() for buffer in self.stats)
        return Statistics(loss_KS, norm_KS, np.stack(fine_4KS, axis=1))


def capture_cuda(call: Call, state: Sequence[Tensor]) -> Call:
    """A replay of `call`, which changes `state` (put back after the calls that warm up) and never waits for the GPU."""
    kept = [tensor.clone() for tensor in state]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            call()
    except RuntimeError as error:
        # Ending a capture that failed raises another error in the place of the one that tells why.
        if isinstance(error.__context__, torch.OutOfMemoryError):
            raise error.__context__ from None
        raise
    for tensor, value in zip(state, kept, strict=True):
        tensor.copy_(value)
    return graph.replay


def program_for(stack: Stack) -> Program:
    """The way that suits the stack's device."""
    return Eager(stack) if stack.looks else Captured(stack, capture_cuda)
