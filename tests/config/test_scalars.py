"""Scalars by YAML 1.2 (and `017` refused), and written so that they read back as they were."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from normlab.config.scalars import quote, read_scalar, show
from normlab.config.source import parse


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-3", 1e-3), ("1E-3", 1e-3), ("1e3", 1000.0), (".5", 0.5), ("1.0e-3", 1e-3), ("+1e+3", 1000.0), ("1.", 1.0)],
)
def test_floats_are_floats(text, value):
    read = read_scalar(text)
    assert (type(read), read) == (float, value)


@pytest.mark.parametrize("text", ["no", "on", "yes", "off", "1:30", "2024-01-01", "1_000", "0b1", "1e", "e5", ".", "-"])
def test_what_yaml_11_would_turn_into_something_else_stays_text(text):
    assert read_scalar(text) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [("12", 12), ("-3", -3), ("+3", 3), ("0", 0), ("0o17", 15), ("0x1f", 31), ("true", True), ("False", False)],
)
def test_ints_and_bools(text, value):
    read = read_scalar(text)
    assert (type(read), read) == (type(value), value)


def test_null_and_non_finite():
    assert [read_scalar(text) for text in ("null", "~", "")] == [None, None, None]
    assert (read_scalar(".inf"), read_scalar("-.Inf")) == (math.inf, -math.inf)
    assert math.isnan(read_scalar(".nan"))


@pytest.mark.parametrize("text", ["017", "-017", "00", "1e999", "9" * 5000, "\ud800"])
def test_refused_scalars_say_why(text):
    with pytest.raises(ValueError, match="leading zero|too large|characters|Unicode"):
        read_scalar(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e-3, "1e-3"), (0.01, "1e-2"), (0.03, "3e-2"), (0.1, "0.1"), (0.999, "0.999"), (10.0, "10"), (1e-8, "1e-8")],
)
def test_shortest_spelling(value, text):
    assert show(value) == text


@given(st.floats(allow_nan=False))
def test_a_float_reads_back_exactly(value):
    assert float(read_scalar(show(value))) == value


@given(
    st.one_of(st.text(st.characters(exclude_categories=["Cs"])), st.integers(-(2**70), 2**70), st.booleans(), st.none())
)
def test_a_written_scalar_reads_back(value):
    for text in (f"v: {quote(value)}\n", f"v: [{quote(value)}, 1]\n", f"v: {{{quote(value)}: 1}}\n"):
        source = parse(text, "f")
        read = source.data["v"]
        if isinstance(read, dict):
            assert not isinstance(value, str) or list(read) == [value]
        else:
            got = read[0] if isinstance(read, list) else read
            assert (type(got), got) == (type(value), value)
