"""Tasks: fixed rules that make sequences of tokens, and what a loss on them can be.

A sequence has `length` + 1 tokens: the first `length` are fed in, each predicts its successor. Every task knows three
losses in nats: `uniform` (ln V), `guess` (best constant guess: entropy of the mean distribution of a target) and
`floor` (mean entropy of a target given all tokens before it, which no net can beat).

Random numbers come from streams of their own, apart from the weights: SeedSequence([seed, stream]).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import TYPE_CHECKING

from normlab.catalogue import TASKS, Entry
from normlab.catalogue.lazy import Lazy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from normlab.config.schema import RunSpec, TaskSpec

    Tokens = NDArray[np.int64]
    Probabilities = NDArray[np.float64]
else:
    np = Lazy("numpy")

__all__ = ["TASKS", "Task", "TrainingData", "entropy", "stream", "validation_set"]

TRAINING, VALIDATION, RULE = 1, 2, 3


def stream(seed: int, purpose: int) -> np.random.Generator:
    """The random stream of one purpose (TRAINING, VALIDATION, RULE) under one seed."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, purpose])))


def entropy(p: Probabilities) -> float:
    """Entropy in nats of a distribution."""
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())


class Task(Entry):
    """A rule under a spec. `draw` makes sequences; the target distributions give guess and floor."""

    def __init__(self, spec: TaskSpec) -> None:
        self.spec = spec

    def draw(self, rng: np.random.Generator, count: int) -> Tokens:
        """`count` sequences, (count, length + 1)."""
        raise AssertionError("a task defines draw")

    def marginals(self) -> list[Probabilities]:
        """The distribution over the vocabulary of each target, positions 1 .. length."""
        raise AssertionError("a task defines marginals")

    def conditional_entropies(self) -> list[float]:
        """The entropy in nats of each target given all tokens before it, positions 1 .. length."""
        raise AssertionError("a task defines conditional_entropies")

    def losses(self) -> dict[str, float]:
        """`uniform`, `guess` and `floor` in nats, over the positions that count."""
        counted = slice(None) if self.spec.loss_on == "all" else slice(-1, None)
        return {
            "uniform": float(np.log(self.spec.vocab)),
            "guess": entropy(np.mean(self.marginals()[counted], axis=0)),
            "floor": float(np.mean(self.conditional_entropies()[counted])),
        }


class Recurrence(Task):
    """x_t = sum_i w_i x_{t-i} + c mod V after as many uniform tokens as there are weights.

    Each token is a linear form of the k first ones, so a batch is one integer matrix product, and a token's marginal is
    uniform over a coset of the subgroup that the form's coefficients generate.
    """

    def __init__(self, spec: TaskSpec, weights: Sequence[int], constant: int) -> None:
        super().__init__(spec)
        self.k = k = len(weights)
        forms = np.zeros((spec.length + 1, k + 1), dtype=np.int64)
        forms[:k, :k] = np.eye(k, dtype=np.int64)
        for t in range(k, spec.length + 1):
            forms[t] = sum(w * forms[t - i] for i, w in enumerate(weights, 1))
            forms[t, k] += constant
            forms[t] %= spec.vocab
        self.forms = forms

    def draw(self, rng: np.random.Generator, count: int) -> Tokens:
        first = rng.integers(self.spec.vocab, size=(count, self.k))
        return (first @ self.forms[:, : self.k].T + self.forms[:, self.k]) % self.spec.vocab

    def marginals(self) -> list[Probabilities]:
        vocab = self.spec.vocab
        found = []
        for *coefficients, constant in self.forms[1:].tolist():
            step = gcd(vocab, *coefficients)
            p = np.zeros(vocab)
            p[constant % step :: step] = step / vocab
            found.append(p)
        return found

    def conditional_entropies(self) -> list[float]:
        return [float(np.log(self.spec.vocab)) if t < self.k else 0.0 for t in range(1, self.spec.length + 1)]


class Affine(Recurrence):
    """x_t = a x_{t-1} + b x_{t-2} + c mod V; first order where b = 0 mod V."""

    def __init__(self, spec: TaskSpec) -> None:
        weights = [spec.a % spec.vocab, spec.b % spec.vocab]
        super().__init__(spec, weights if weights[1] else weights[:1], spec.c % spec.vocab)


class Sum(Recurrence):
    """x_t = x_{t-1} + ... + x_{t-k} mod V."""

    def __init__(self, spec: TaskSpec) -> None:
        super().__init__(spec, [1] * spec.k, 0)


class Table(Task):
    """x_t = table[x_{t-2}, x_{t-1}], a fixed uniform random table; a share `noise` of the tokens is drawn uniformly
    instead (and may hit the table's entry by chance)."""

    def __init__(self, spec: TaskSpec) -> None:
        super().__init__(spec)
        self.table = stream(spec.seed, RULE).integers(spec.vocab, size=(spec.vocab, spec.vocab))

    def draw(self, rng: np.random.Generator, count: int) -> Tokens:
        vocab, length = self.spec.vocab, self.spec.length
        x = np.empty((count, length + 1), dtype=np.int64)
        x[:, :2] = rng.integers(vocab, size=(count, 2))
        noisy = rng.random((count, length + 1)) < self.spec.noise
        other = rng.integers(vocab, size=(count, length + 1))
        for t in range(2, length + 1):
            x[:, t] = np.where(noisy[:, t], other[:, t], self.table[x[:, t - 2], x[:, t - 1]])
        return x

    def marginals(self) -> list[Probabilities]:
        vocab, noise = self.spec.vocab, self.spec.noise
        pair = np.full((vocab, vocab), 1 / vocab**2)
        found = [pair.sum(0)]
        destination = np.arange(vocab) * vocab + self.table  # flat index of the pair (y, table[x, y]) for each (x, y)
        for _ in range(2, self.spec.length + 1):
            ruled = np.bincount(destination.ravel(), weights=pair.ravel(), minlength=vocab**2).reshape(vocab, vocab)
            pair = (1 - noise) * ruled + noise * pair.sum(0)[:, None] / vocab
            found.append(pair.sum(0))
        return found

    def conditional_entropies(self) -> list[float]:
        p = np.full(self.spec.vocab, self.spec.noise / self.spec.vocab)
        p[0] += 1 - self.spec.noise
        return [float(np.log(self.spec.vocab))] + [entropy(p)] * (self.spec.length - 1)


class Markov(Task):
    """A first-order chain: x_0 uniform, then x_t drawn from row x_{t-1} of a fixed matrix with Dirichlet rows."""

    def __init__(self, spec: TaskSpec) -> None:
        super().__init__(spec)
        self.matrix = stream(spec.seed, RULE).dirichlet(np.full(spec.vocab, spec.concentration), size=spec.vocab)
        self.cumulative = np.cumsum(self.matrix, axis=1)
        self.cumulative[:, -1] = 1.0

    def draw(self, rng: np.random.Generator, count: int) -> Tokens:
        x = np.empty((count, self.spec.length + 1), dtype=np.int64)
        x[:, 0] = rng.integers(self.spec.vocab, size=count)
        u = rng.random((count, self.spec.length + 1))
        for t in range(1, self.spec.length + 1):
            x[:, t] = (self.cumulative[x[:, t - 1]] <= u[:, t, None]).sum(1)
        return x

    def _distributions(self) -> list[Probabilities]:
        p = [np.full(self.spec.vocab, 1 / self.spec.vocab)]
        for _ in range(self.spec.length):
            p.append(p[-1] @ self.matrix)
        return p

    def marginals(self) -> list[Probabilities]:
        return self._distributions()[1:]

    def conditional_entropies(self) -> list[float]:
        rows = np.array([entropy(row) for row in self.matrix])
        return [float(p @ rows) for p in self._distributions()[:-1]]


class TrainingData:
    """The training sequences of one run: fresh ones at every step, or draws with replacement from a finite set."""

    def __init__(self, task: Task, spec: RunSpec) -> None:
        self.task, self.batch = task, spec.train.batch
        self.rng = stream(spec.seed, TRAINING)
        size = spec.task.train_size
        self.pool = None if size is None else task.draw(self.rng, size)

    def next(self) -> Tokens:
        """The next step's batch, (batch, length + 1)."""
        if self.pool is None:
            return self.task.draw(self.rng, self.batch)
        return self.pool[self.rng.integers(len(self.pool), size=self.batch)]


def validation_set(task: Task) -> Tokens:
    """The fixed validation set, (val_size, length + 1). It hangs on the task's seed alone, so all runs share it; its
    stream is apart from the training data, but a rule with few distinct sequences repeats them in both."""
    return task.draw(stream(task.spec.seed, VALIDATION), task.spec.val_size)
