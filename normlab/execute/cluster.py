"""Which dask cluster a command uses, and whether it can be reached (dask itself is imported where it is needed)."""

from __future__ import annotations

import json
import logging
import re
import socket
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.execute.target import Refused

if TYPE_CHECKING:
    from distributed import Client

LOOPBACK = "127.0.0.1"
INSTALL = "pip install 'normlab[cluster]'"
# Seconds that a scheduler, or the file that names it, gets to appear.
PATIENCE = 10.0


class SchedulerLost(RuntimeError):
    """The scheduler has gone; the text says which."""


@dataclass(frozen=True)
class Cluster:
    """Where the runs of `--executor dask` train: on the workers of the scheduler at the address `scheduler`, or of the
    one that `scheduler_file` names; with neither, on a cluster of our own whose scheduler listens on `listen`,
    `ADDRESS` or `ADDRESS:PORT`."""

    scheduler: str | None = None
    scheduler_file: Path | None = None
    listen: str = LOOPBACK

    def check(self) -> None:
        """Refuse what contradicts itself or cannot be."""
        if self.scheduler and self.scheduler_file:
            raise Refused("--scheduler and --scheduler-file name a scheduler each: give one of them")
        if not self.own and self.listen != LOOPBACK:
            raise Refused("--listen is for a scheduler that this command starts: leave out --scheduler and its file")
        if self.own:
            self._check_listen()
        if self.scheduler and not re.fullmatch(r"((tcp|tls|wss?|ucx)://)?[^/]+:\d+", self.scheduler):
            raise Refused(f"--scheduler: expected tcp://HOST:PORT, got '{self.scheduler}'")

    @property
    def own(self) -> bool:
        """Whether the command starts scheduler and workers itself."""
        return not self.scheduler and not self.scheduler_file

    def place(self) -> tuple[str, int]:
        """Address and port (0: any) that a scheduler of our own listens on."""
        host, _, port = self.listen.partition(":")
        return host, int(port or 0)

    def _check_listen(self) -> None:
        if not re.fullmatch(r"[^:]+(:\d{1,5})?", self.listen):
            raise Refused(f"--listen: expected ADDRESS or ADDRESS:PORT, as 10.0.0.5:8786, got '{self.listen}'")
        try:
            with socket.socket(socket.AF_INET) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(self.place())
        except (OSError, OverflowError) as error:
            raise Refused(f"--listen {self.listen}: cannot listen there: {error}") from None

    def address(self) -> str:
        """The address of the scheduler that was named; `Refused` if the file does not say."""
        return self.scheduler or _read_address(self.scheduler_file or Path())


def _read_address(path: Path) -> str:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return str(json.loads(path.read_text())["address"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            # A scheduler that has just been started writes the file a moment later.
            if time.monotonic() > deadline or path.is_dir():
                what = f"no such file after {PATIENCE:.0f} s" if isinstance(error, FileNotFoundError) else str(error)
                expected = "expected the file that `dask scheduler --scheduler-file` writes"
                raise Refused(f"--scheduler-file {path}: {expected}: {what}") from None
            time.sleep(0.1)


def need_dask() -> None:
    """Refuse if dask.distributed is not installed; its own messages are silenced, we tell what matters."""
    try:
        import distributed
    except ImportError:
        raise Refused(f"--executor dask needs dask.distributed: {INSTALL}") from None
    for name in ("distributed", *(name for name in logging.root.manager.loggerDict if name.startswith("distributed"))):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.simplefilter("ignore", distributed.versions.VersionMismatchWarning)


def connect(address: str) -> Client:
    """A client of the scheduler at `address`; `Refused` if it cannot be reached."""
    from distributed import Client

    try:
        return Client(address, timeout=PATIENCE, set_as_default=False, name="normlab")
    except (OSError, ValueError) as error:
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise Refused(f"no dask scheduler can be reached at {address}: {why}") from None


def expected_workers(cluster: Cluster, jobs: int | None) -> int | None:
    """How many workers the stacks are cut for: `jobs` if given, else those that the cluster has now, one at least; None
    for a cluster of our own. Refuse if the scheduler cannot be reached or dask is not installed."""
    cluster.check()
    need_dask()
    if cluster.own:
        return jobs
    with connect(cluster.address()) as client:
        return jobs or max(1, len(client.scheduler_info(n_workers=-1)["workers"]))
