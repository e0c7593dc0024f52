"""The ledger is whole and consistent with itself and with the shipped studies."""

import pytest

from normlab.analysis.ledger import Entry, Monotone, Order, load_ledger
from normlab.config.load import load_study, shipped_configs

LEDGER = load_ledger()
JUDGED = [entry for entry in LEDGER.entries if entry.predicates]
MEASURES = {"numerics", "initial", "mechanism", "speed", "params"}
STUDIES = {path.stem: load_study(path) for path in shipped_configs()}


def test_every_figure_of_the_articles_has_its_entry():
    assert len(LEDGER.entries) == 54 and len(LEDGER.errata) == 11
    assert sum(entry.not_testable is not None for entry in LEDGER.entries) == 2


@pytest.mark.parametrize("entry", JUDGED, ids=lambda entry: entry.id)
def test_a_judged_claim(entry):
    """Its studies exist, every cell is measured, and its predicates speak of cells that are there."""
    assert set(entry.studies) <= MEASURES | set(STUDIES)
    cells = entry.cells()
    assert cells and all(any(m.takes(cell) for m in entry.measured) for cell in cells)
    names = {f"{row}|{column}" for row, column in cells}
    for predicate in (*entry.predicates, *entry.direction):
        assert predicate.reason
        chains = predicate.falling if isinstance(predicate, Monotone) else ()
        chains = predicate.pairs if isinstance(predicate, Order) else chains
        assert all(name in names for chain in chains for name in chain)
        assert any(predicate.takes(cell) for cell in cells)


@pytest.mark.parametrize("entry", JUDGED, ids=lambda entry: entry.id)
def test_selectors_pick_runs_of_their_study(entry):
    """A selector's dotted settings are fields of a run, and points of its study have them."""
    for cell in entry.cells():
        measured = next(m for m in entry.measured if m.takes(cell))
        selector = measured.selector(cell)
        for chosen in (selector, {**selector, **selector.get("against", {})}):
            if chosen["study"] in MEASURES:
                assert "path" in chosen and "{" not in chosen["path"]
                continue
            wanted = {name: value for name, value in chosen.items() if "." in name}
            assert wanted, cell
            assert _points(STUDIES[chosen["study"]], wanted), (cell, chosen)


def _points(study, wanted):
    from normlab.config.plan import expand

    specs = [run.spec.model_dump() for run in expand(study)]
    return [
        spec for spec in specs if all(spec[name.split(".")[0]][name.split(".")[1]] == v for name, v in wanted.items())
    ]


def test_trained_claims_need_seeds_and_seeded_ones_do_not():
    for entry in JUDGED:
        trained = not set(entry.studies) <= {"numerics", "params", "speed"}
        assert entry.seeds == (3 if trained else 1), entry.id


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"predicates": ()}, "expected predicates, not_run or not_testable"),
        ({"not_run": "later"}, "one of them only"),
        ({"measured": ()}, "need `measured`"),
        ({"measured": ({"by": "guess"},)}, "expected one of loss_at"),
        ({"verdict": "reproduced"}, "Extra inputs"),
    ],
)
def test_a_broken_entry_is_refused(change, message):
    good = JUDGED[0].model_dump()
    with pytest.raises(ValueError, match=message):
        Entry.model_validate({**good, **change})
