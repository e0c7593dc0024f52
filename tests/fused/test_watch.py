"""What the watch shows: the numbers of the step itself, and they are those of torch's modules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from nets import NETS, apart, pair, spec_of, tokens_of
from torch import Tensor

from normlab.fused.build import Library
from normlab.fused.watch import EDGES, Watch
from normlab.train.probes import find_producer
from normlab.train.stack import Stack

IDS = ["-".join(net) for net in NETS]


@contextmanager
def outputs(stack: Stack) -> Iterator[dict[str, Tensor]]:
    """What the modules of a stack give out meanwhile, by name, with the gradients kept."""
    found: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        def hook(module: Any, inputs: Any, output: Tensor) -> None:
            found[name] = output
            output.retain_grad()

        return hook

    handles = [module.register_forward_hook(keep(name)) for name, module in stack.model.named_modules()]
    yield found
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("net", NETS, ids=IDS)
def test_watching_changes_no_bit(net: tuple[str, str, str], precision: str, library: Library) -> None:
    for size in ("odd", "whole", "long"):
        specs = [spec_of(net, precision, size)]
        _, fused = pair(specs, library)
        tokens_SBT = tokens_of(specs)
        assert fused.fused
        watch = Watch(fused.fused, tokens_SBT.shape[1])
        watched, unwatched = fused.fused.gradients(tokens_SBT, watch), fused.gradients(tokens_SBT)
        assert all(torch.equal(one, two) for one, two in zip(watched, unwatched, strict=True))


@pytest.mark.parametrize("net", NETS, ids=IDS)
def test_the_boundaries_are_those_of_the_modules(net: tuple[str, str, str], library: Library) -> None:
    specs = [spec_of(net, size="long", model={"residual_ramp": {"warmup": 30}})]
    plain, fused = pair(specs, library)
    for stack in (plain, fused):
        stack.model.clock.fill_(9.0)
    tokens_SBT = tokens_of(specs)
    with outputs(plain) as found:
        plain.losses(tokens_SBT).sum().backward()
    assert fused.fused
    watch = Watch(fused.fused, tokens_SBT.shape[1])
    fused.fused.gradients(tokens_SBT, watch)
    seen = 0
    named = {**{edge: module for edge, module in EDGES.items() if module and edge not in ("mixed", "gelu")}, "sum2": ""}
    edges = {
        f"blocks.{layer}.{edge}": f"blocks.{layer}.{name}".strip(".")
        for layer in (0, 1)
        for edge, name in named.items()
    }
    if net[1] == "post" and net[0] != "none":  # The block ends with the norm.
        edges = {edge: module for edge, module in edges.items() if not edge.endswith("sum2")}
    for edge, module in {**edges, "embedding": "embedding", "final_norm": "final_norm", "head": "head"}.items():
        if net[0] == "none" and "norm" in module:
            continue  # Torch gives the very tensor that came in, whose gradient is that of the stream.
        assert apart(found[module][0].detach(), watch.value[edge]) < 1e-13, edge
        assert apart(found[module].grad[0], watch.slope[edge]) < 1e-12, edge
        seen += 1
    assert seen >= 10


def overflowing(net: tuple[str, str, str], name: str, value: float) -> Iterator[tuple[Any, Any]]:
    """Specs and states of one lane whose leaves `name` are `value`."""
    for size in ("odd", "whole"):
        spec = spec_of(net, "float32", size)
        stack = Stack([spec])
        with torch.no_grad():
            dict(stack.model.named_parameters())[name].fill_(value)
        yield spec, stack.lane(0)


LEAVES = ("embedding", "blocks.1.mixer.linear", "blocks.0.ffn.inner", "blocks.1.ffn.outer", "head")


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("value", [1e30, 1e20, 1e10])
@pytest.mark.parametrize("net", NETS, ids=IDS)
def test_the_producer_is_the_one_that_torchs_modules_name(
    net: tuple[str, str, str], value: float, leaf: str, train: bool, library: Library
) -> None:
    for spec, state in overflowing(net, f"{leaf}.weight", value):
        tokens_BT = tokens_of([spec])[0]
        plain = find_producer(spec, state, tokens_BT, "cpu", train)
        fused = find_producer(spec, state, tokens_BT, "cpu", train, library)
        assert (fused["phase"], fused["producer"]) == (plain["phase"], plain["producer"])


def test_the_search_looks_at_the_numbers_of_the_fused_step(monkeypatch: pytest.MonkeyPatch, library: Library) -> None:
    """Torch's operations are not asked: at the brink their last digits may stay finite where the step's did not."""
    monkeypatch.setattr(Stack, "losses", lambda *_: pytest.fail("torch's operations were asked"))
    spec, state = next(overflowing(("none", "pre", "mean"), "blocks.0.ffn.inner.weight", 3e38))
    for train in (True, False):
        found = find_producer(spec, state, tokens_of([spec])[0], "cpu", train, library)
        assert (found["phase"], found["producer"]) == ("forward", "blocks.0.ffn.inner")
