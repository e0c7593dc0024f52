"""A module that is imported when it is first used, so that looking an entry up imports neither torch nor numpy."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Lazy:
    """Stands for the module `name`: `np = Lazy("numpy")`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)
