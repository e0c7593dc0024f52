"""The two errors of the configuration: one for the user's screen, one for a rule that spans several fields."""

from __future__ import annotations

from collections.abc import Iterable


class ConfigError(ValueError):
    """A configuration that cannot be used; `problems` holds one line for each thing that is wrong with it."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = [_printable(problem) for problem in problems]
        super().__init__("\n".join(self.problems))


def _printable(line: str) -> str:
    """Escape line breaks and control characters that came in with a name or a value: a problem stays one line."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)


class FieldError(ValueError):
    """A rule between fields is broken. `fields` are dotted names seen from the node that raises, the culprit first."""

    def __init__(self, message: str, *fields: str) -> None:
        super().__init__(f"'{fields[0]}' {message}")
        self.message = message
        self.fields = fields
