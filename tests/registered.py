"""Entries that a test registers are gone when it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from normlab.catalogue import CATALOGUES


@contextmanager
def only_here() -> Iterator[None]:
    """Take back what is registered inside."""
    before = {kind: list(catalogue.added) for kind, catalogue in CATALOGUES.items()}
    try:
        yield
    finally:
        for kind, catalogue in CATALOGUES.items():
            for name in catalogue.added:
                if name not in before[kind]:
                    del catalogue[name]
