"""Entries that a test registers are gone when it ends, and so are the modules of plugins."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from normlab.catalogue import CATALOGUES


@contextmanager
def only_here() -> Iterator[None]:
    """Take back what is registered inside; a plugin that is named again is imported again."""
    before = {kind: list(catalogue.added) for kind, catalogue in CATALOGUES.items()}
    try:
        yield
    finally:
        for kind, catalogue in CATALOGUES.items():
            for name in catalogue.added:
                if name not in before[kind]:
                    del catalogue[name]
        for name in [name for name in sys.modules if name.startswith("normlab_plugin_")]:
            del sys.modules[name]
