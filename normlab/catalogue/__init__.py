"""Everything that a config can name: one line for each entry, and what an entry says of itself. Nothing here imports
torch; an entry's class is imported when it is first looked up, and torch when a net is built."""

from __future__ import annotations

from pydantic import Field

from normlab.catalogue.entry import Entry, Node, Options
from normlab.catalogue.lists import (
    CATALOGUES,
    INITS,
    MIXERS,
    NORMS,
    OPTIMIZERS,
    PLACEMENTS,
    SCHEDULES,
    TASKS,
    Catalogue,
)

__all__ = ["CATALOGUES", "INITS", "MIXERS", "NORMS", "OPTIMIZERS", "PLACEMENTS", "SCHEDULES", "TASKS"]
__all__ += ["Catalogue", "Entry", "Field", "Node", "Options"]
