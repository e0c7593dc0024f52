"""What the executor tells whoever watches it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Started:
    """A worker took these runs as one stack."""

    ids: tuple[str, ...]


@dataclass(frozen=True)
class Advanced:
    """The runs of a stack are at `step` of `steps`; `losses` and `alive` have an entry a run."""

    ids: tuple[str, ...]
    step: int
    steps: int
    losses: tuple[float, ...]
    alive: tuple[bool, ...]


@dataclass(frozen=True)
class Finished:
    """A run is published. `loss` is its final validation loss in nats, None if it has none."""

    id: str
    outcome: str
    loss: float | None
    onset: int | None


@dataclass(frozen=True)
class Retried:
    """These runs were lost with their stack and will be tried once more: each `alone`, or together."""

    ids: tuple[str, ...]
    reason: str
    alone: bool = True


@dataclass(frozen=True)
class Failed:
    """A run crashed for good; the full text is in `failed/<id>/error.txt`."""

    id: str
    reason: str


@dataclass(frozen=True)
class Waited:
    """A measure is running; `share` of the time that it was thought to need is over."""

    id: str
    share: float


@dataclass(frozen=True)
class Measured:
    """A measure is written, after so many seconds."""

    id: str
    seconds: float


Event = Started | Advanced | Finished | Retried | Failed | Waited | Measured
