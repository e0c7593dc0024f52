"""What every entry of a catalogue says of itself: its title, source, version and options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer


class Node(BaseModel):
    """Base of every node of the configuration: frozen, strict, no extra keys, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class Options(Node):
    """Base of an entry's own options. A dump holds those that were set, so that another entry may take its own
    defaults for the rest."""

    @model_serializer(mode="wrap")
    def _set_ones(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if name in self.model_fields_set}

    def all(self) -> dict[str, Any]:
        """Every option by name, defaults included."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    def changed(self) -> Options:
        """The same options, with only those marked as set that differ from their defaults."""
        fields = type(self).model_fields
        return type(self)(**{name: value for name, value in self.all().items() if value != fields[name].default})


class Entry:
    """Base of everything that a config can name; all that is known of an entry stands in its class.

    The first paragraph of the docstring says what it is (`normlab list` prints it), the rest holds the formula."""

    title: ClassVar[str] = ""  # its name in tables and legends; empty: the catalogue's
    source: ClassVar[str] = ""  # where the definition was read
    version: ClassVar[int] = 1  # raised with every change that gives other results, so that old runs keep their ids

    class Options(Options):
        """No options."""

    @classmethod
    def refusal(cls, model: Any) -> str | None:
        """Why a net with this entry makes no sense (`model`: its ModelSpec), as the end of a sentence that begins with
        the entry's name: "has no norm of its own: set model.norm to none". None if it makes sense."""
        return None

    @classmethod
    def unusual(cls, model: Any) -> str | None:
        """What is unusual about this entry in such a net, in the same form; its runs are marked. None: nothing."""
        return None


class Unknown(Entry):
    """An entry of a user's module that is only read about: its results are here, its code is not."""

    class Options(Options):
        """Taken as they are; `defaults` are those of the entry."""

        model_config = ConfigDict(extra="allow")
        defaults: ClassVar[Mapping[str, Any]] = {}

        def all(self) -> dict[str, Any]:
            return {**self.defaults, **(self.model_extra or {})}

        def changed(self) -> Options:
            changed = {name: value for name, value in self.all().items() if value != self.defaults.get(name)}
            return type(self)(**changed)


def describe(entry: Any) -> dict[str, Any]:
    """What must be known of an entry to read about it where its code is not: title, version, defaults of its options.
    Nothing of a schedule, which is a function."""
    if not (isinstance(entry, type) and issubclass(entry, Entry)):
        return {}
    return {"title": entry.title, "version": entry.version, "options": entry.Options().all()}


def known_by(name: str, facts: Mapping[str, Any]) -> type[Unknown]:
    """The stand-in for an entry that `describe` described."""
    options = type("Options", (Unknown.Options,), {"defaults": dict(facts.get("options", {}))})
    about = {"title": str(facts.get("title", "")), "version": facts.get("version", 1), "Options": options}
    return type(name, (Unknown,), about)
