"""Which nets the fused step knows, and that it reads all that they can be told."""

from __future__ import annotations

from typing import Any

import pytest
from nets import NETS, spec_of

from normlab.catalogue import MIXERS, NORMS, PLACEMENTS
from normlab.config.engine import Engine
from normlab.config.schema import RunSpec
from normlab.fused import cover

HERE = Engine(fused="x86-64-v3, g++ 12", tf32=False)


@pytest.mark.parametrize("net", NETS, ids=["-".join(net) for net in NETS])
def test_it_knows_what_it_says(net: tuple[str, str, str]) -> None:
    assert cover.gap(spec_of(net)) is None and cover.engine_for(HERE, spec_of(net)) == HERE


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"model": {"norm": "scalenorm"}}, "norm 'scalenorm'"),
        ({"model": {"placement": "sandwich"}}, "placement 'sandwich'"),
        ({"model": {"final_norm": "prmsnorm"}}, "final norm 'prmsnorm'"),
        ({"model": {"norm_options": {"statistics": "float64"}}}, "statistics in float64"),
        ({"model": {"norm_options": {"statistics": "stream"}}}, "statistics in stream"),
        ({"train": {"precision": "bfloat16"}}, "precision bfloat16"),
    ],
)
def test_what_it_does_not_know_is_named_and_left_to_torch(fields: dict[str, Any], why: str) -> None:
    spec = RunSpec.model_validate(fields)
    assert cover.gap(spec) == why
    assert cover.engine_for(HERE, spec) == Engine() and cover.engine_for(Engine(), spec) == Engine()


def test_its_entries_have_no_option_that_the_cpp_does_not_read() -> None:
    read = {"eps", "alpha", "statistics"}
    for name in cover.NORMS:
        assert NORMS[name].Options.model_fields.keys() <= read, name
    for entry in (*(PLACEMENTS[name] for name in cover.PLACEMENTS), *(MIXERS[name] for name in cover.MIXERS)):
        assert not entry.Options.model_fields
