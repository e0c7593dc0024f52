"""Ctrl-C and SIGTERM: the first asks the command to stop, the second ends it at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """The user or the system asked the command to stop; `code` is its exit code, 130 or 143."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.code = 128 + signum


class Interrupts:
    """Turns the first signal into `Stopped` and the second into an immediate end.

    While the pool runs, the exception is deferred to the points where the pool looks (`check`), so that it never
    cuts through bookkeeping; `fileno` becomes readable, which wakes a waiting pool. Elsewhere it is raised at once.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self.deferred = False
        self.on_second: Callable[[], None] = lambda: None
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        """Descriptor that is readable once a signal has arrived (for `multiprocessing.connection.wait`)."""
        return self._read

    def check(self) -> None:
        """Raise `Stopped` if a signal has arrived."""
        if self.signum is not None:
            raise Stopped(self.signum)

    @contextmanager
    def deferring(self) -> Iterator[None]:
        """While inside, a signal is only noted; it is raised on the way out at the latest. Blocks may be nested."""
        self.check()
        outer, self.deferred = self.deferred, True
        try:
            yield
        finally:
            self.deferred = outer
        self.check()

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)

    def handle(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is not None:
            self.on_second()
            os._exit(128 + signum)
        self.signum = signum
        os.write(self._write, b"!")
        if not self.deferred:
            raise Stopped(signum)


@contextmanager
def catching() -> Iterator[Interrupts]:
    """Install the handlers for the block; the earlier ones are restored afterwards. Main thread only."""
    interrupts = Interrupts()
    earlier = {signum: signal.signal(signum, interrupts.handle) for signum in STOPPING}
    try:
        yield interrupts
    finally:
        for signum, handler in earlier.items():
            signal.signal(signum, handler)
        interrupts.close()
