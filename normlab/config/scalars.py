"""Scalars by the core schema of YAML 1.2, with one deviation: `017` is refused, since readers differ on what it is.

PyYAML follows YAML 1.1, where `1e-3` is text, `no` is false, `1:30` is 90 and `2024-01-01` a date.
"""

from __future__ import annotations

import math
import re
from typing import Any

_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INF = re.compile(r"[-+]?\.(inf|Inf|INF)")
_NAN = {".nan", ".NaN", ".NAN"}
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_MAX_DIGITS = 400

# Text that needs no quotes: starts with a letter, holds nothing that YAML reads as syntax, even inside [] and {}.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.+/()=<>-]*( [A-Za-z0-9_.+/()=<>-]+)*")
_UNPRINTABLE = re.compile("[^\t\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


def read_scalar(text: str) -> Any:
    """The value of a plain (unquoted) scalar: None, bool, int, float or str; ValueError says what is wrong with it."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _LEADING_ZERO.fullmatch(text):
        mend = text.lstrip("+-").lstrip("0") or "0"
        raise ValueError(f"a number with a leading zero, {text}: write {mend}, or '{text}' in quotes for text")
    if len(text) > _MAX_DIGITS and (_INT.fullmatch(text) or _FLOAT.fullmatch(text)):
        raise ValueError(f"a number of {len(text)} characters: at most {_MAX_DIGITS} are read")
    if _INT.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text):
        return int(text[2:], 8)
    if _HEX.fullmatch(text):
        return int(text[2:], 16)
    if _FLOAT.fullmatch(text):
        return _finite(text)
    if _INF.fullmatch(text):
        return -math.inf if text[0] == "-" else math.inf
    if text in _NAN:
        return math.nan
    return check_text(text)


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is too large for a float")
    return value


def check_text(text: str) -> str:
    """Return `text`; ValueError if it cannot be written as UTF-8 (half of a surrogate pair)."""
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError("text that is not valid Unicode")
    return text


def show(value: Any) -> str:
    """The shortest YAML 1.2 spelling of a scalar, also the label of an axis value: `1e-3`, `0.5`, `true`, `post`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return _show_float(value)
    return str(value)


def _show_float(value: float) -> str:
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else (".inf" if value > 0 else "-.inf")
    plain = repr(value).removesuffix(".0")
    digits, _, exponent = f"{value:.17e}".partition("e")
    for precision in range(17):
        digits, _, exponent = f"{value:.{precision}e}".partition("e")
        if float(f"{digits}e{exponent}") == value:
            break
    scientific = f"{digits}e{int(exponent)}"
    if "e" in plain or len(scientific) < len(plain) or (len(scientific) == len(plain) and abs(value) < 0.1):
        return scientific
    return plain


def quote(value: Any) -> str:
    """A scalar as it is written into YAML: `show`, with text in double quotes wherever it could be misread."""
    if not isinstance(value, str):
        return show(value)
    if _PLAIN.fullmatch(value) and value not in _BOOL and value not in _NULL:
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t").replace("\n", "\\n")
    return '"' + _UNPRINTABLE.sub(lambda match: f"\\U{ord(match.group()):08x}", escaped) + '"'
