"""Taking a results folder: nobody else writes it meanwhile, and what stands in the way is one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from normlab.execute.lease import Held, lease, shard_lease
from normlab.execute.shards import Shard
from normlab.execute.target import Refused, remove_if_empty
from normlab.execute.worker import FULL


@contextmanager
def taken(
    folder: Path, ours: Callable[[], bool], check: Callable[[], None], shard: Shard | None = None
) -> Iterator[None]:
    """Make `folder` if need be and hold its lease for the block, alone or together with the other shards; a new one
    that stays empty is removed again.

    `check` raises `Refused` for a folder that may not be written, `ours` says whether results lie in it.
    `Refused` also if another process holds it or the system does not let us write."""
    with writable(folder):
        # In a results folder the lease comes first: that somebody is writing it is the better answer.
        if not ours():
            check()
        new = not folder.exists()
    try:
        with ExitStack() as held:
            with writable(folder):
                folder.mkdir(parents=True, exist_ok=True)
                held.enter_context(shard_lease(folder, shard) if shard else lease(folder))
            check()
            yield
    except Held as held:
        raise Refused(f"{held}: wait for it, or choose another folder with -o") from None
    finally:
        if new:
            remove_if_empty(folder)


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Refuse if the system does not let us write in `folder`; a full disk is another matter."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise
        why = error.strerror or str(error)
        raise Refused(f"{folder} cannot be written: {why}; choose another folder with -o") from None
