"""The study's list of printed numbers (it steers the searches) against the ledger's."""

from __future__ import annotations

import pytest

from normlab.analysis.ledger import load_ledger
from normlab.studies.numerics_printed import PRINTED


def leaves(tree):
    if isinstance(tree, dict):
        for value in tree.values():
            yield from leaves(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from leaves(value)
    elif isinstance(tree, int | float):
        yield float(tree)


@pytest.mark.parametrize("name", PRINTED)
def test_the_study_aims_at_the_numbers_of_the_ledger(name):
    published = next(entry.published for entry in load_ledger().entries if entry.id == name)
    assert {float(text.removeprefix("~")) for text in PRINTED[name].values()} == set(leaves(published))
