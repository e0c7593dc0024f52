"""What norms, placements and mixers share: modules with an axis of lanes that are described without importing torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from normlab.catalogue import Catalogue, Entry, Options

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module, Parameter
else:
    Module = object

P = TypeVar("P", bound="Part")


@dataclass(frozen=True)
class Site:
    """Where a part stands: block `layer` = 1 .. `depth` (depth + 1 behind the last one), in which of its sublayers."""

    layer: int = 1
    depth: int = 1
    sublayer: Literal["mixer", "ffn", "final"] = "mixer"


class Part(Entry, Module):
    """Base of norms, placements and mixers. `start` makes the parameters; `self.options` holds the entry's options.

    It becomes a `torch.nn.Module` when a net is built: config checks read what a class says of itself without torch."""

    options: Any

    def __init__(self, width: int, lanes: int = 1, options: Options | None = None, site: Site | None = None) -> None:
        super().__init__()
        self.width, self.lanes, self.site = width, lanes, site or Site()
        self.options = type(self).Options() if options is None else options
        self.start(width)

    def start(self, width: int) -> None:
        """Make the parameters and the state, if any, for a stream of `width` entries."""

    def vector(self, size: int, value: float) -> Parameter:
        """A parameter of `size` entries a lane, all starting at `value`: (S, 1, 1, size)."""
        import torch

        return torch.nn.Parameter(torch.full((self.lanes, 1, 1, size), value))

    def state(self, name: str, size: int, value: float) -> None:
        """Make `self.<name>`, (S, 1, 1, size): state that training changes by other means than gradients. Change it in
        place, where `self.training` is true only; every lane must keep to its own row."""
        import torch

        self.register_buffer(name, torch.full((self.lanes, 1, 1, size), value))

    def each(self, function: Callable[[Tensor], Tensor], x_SBTD: Tensor) -> Tensor:
        """Apply a transcendental function such as `torch.tanh` to each entry. A lane's last bits would hang on its
        neighbours otherwise."""
        from normlab.model.layers import lanewise

        return lanewise(function, x_SBTD)


class CannotBuild(ValueError):
    """An entry that cannot be built; one line that names it."""


@cache
def as_module(part: type[P]) -> type[P]:
    """The class of a part, made a `torch.nn.Module`."""
    from torch import nn

    if issubclass(part, nn.Module):
        return part
    return type(part.__name__, (part, nn.Module), {"__module__": part.__module__, "__doc__": part.__doc__})


def make(catalogue: Catalogue, name: str, *arguments: Any, **named: Any) -> Any:
    """The part `name` of a catalogue, built; `CannotBuild` if its constructor does not take what all are given."""
    try:
        return as_module(catalogue[name])(*arguments, **named)
    except Exception as error:
        if name in catalogue.added:
            what = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise CannotBuild(f"{catalogue.singular} '{name}' cannot be built: {what}") from error
        raise
