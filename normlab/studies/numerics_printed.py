"""What the article prints for the experiments of `numerics`, as printed: the digits say how exactly it can agree.

Keys are ids of the ledger, then the dotted path of a number in the measured values. `~1e4` is an order of magnitude.
"""

from __future__ import annotations

_GROWTH = "11.25 11.42 11.68 11.90 12.06 12.32 12.48 12.69 12.92 13.10 13.31 13.49 13.66".split()
_VANISH = "8.0 2.45 0.77 0.25 0.08 0.03 0.01 0.00 0.00".split()

PRINTED: dict[str, dict[str, str]] = {
    "stack-vanish": {f"norms.{layer}": text for layer, text in enumerate(_VANISH)},
    "stack-explode": {"norms.4": "~1e4"},
    "stack-layernorm": {"lowest": "8.0", "highest": "8.0"},
    "batch-statistics": {
        "k4.0": "0.998",
        "k4.1": "4.004",
        "k2.0": "0.996",
        "k2.1": "3.997",
        "k1.0": "0.992",
        "k1.1": "3.981",
    },
    "layer-statistics": {
        "sequences.0.0": "0.994",
        "sequences.0.1": "4.076",
        "sequences.1.0": "1.006",
        "sequences.1.1": "3.918",
    },
    "layernorm-matches-torch": {
        "max_abs_error": "~1e-6",
        "output_mean": "0.0",
        "output_std": "1.0",
        "parameters": "512",
    },
    "block-exit-norms": {"post": "8.0000", "pre": "8.3924"},
    "output-statistics": {
        "ln_row_mean": "0.0000",
        "ln_row_mean_std": "0.0000",
        "rms_row_mean": "0.4475",
        "rms_row_mean_std": "0.0324",
        "ln_row_std": "1.0010",
        "rms_row_std": "0.8944",
    },
    "rms-parameters": {"ln": "2048", "rms": "1024", "rms_output_mean_square": "1.0"},
    "identity-gradient": {"total": "13.79", "identity": "12.15", "share": "0.881", "without_residual": "6.19"},
    "residual-growth": {
        **{f"norms.{layer}": text for layer, text in enumerate(_GROWTH)},
        "after_final": "11.31",
        "growth_per_layer": "0.016",
    },
    "eps-defaults": {"rms": "0.000001", "ln": "0.00001"},
}


def agrees(printed: str, measured: float) -> bool:
    """Whether `measured` rounds to what is printed; for an order of magnitude, whether it is less than ten times
    larger or smaller."""
    if printed.startswith("~"):
        return 0.1 < abs(measured) / float(printed[1:]) < 10
    digits = len(printed.partition(".")[2])
    return float(f"{measured:.{digits}f}") == float(printed)
