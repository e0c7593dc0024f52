"""Where a cell of the article's tables stands in the ledger, and what the article prints where the ledger has a bare
value or none."""

from __future__ import annotations

from typing import Any

from normlab.analysis.article_heads import Layout
from normlab.analysis.ledger import Cell, Entry

_PARAMETERS = {
    ("one", "layernorm"): ("norm-parameters", "ln_one"),
    ("one", "rmsnorm"): ("norm-parameters", "rms_one"),
    ("model", "layernorm"): ("norm-parameters", "ln_model"),
    ("model", "rmsnorm"): ("norm-parameters", "rms_model"),
    ("model", "difference"): ("norm-parameters", "saved"),
    ("reductions", "layernorm"): ("reductions", "ln_per_layer"),
    ("reductions", "rmsnorm"): ("reductions", "rms_per_layer"),
    ("reductions", "difference"): ("reductions", "saving"),
}
_THREE = ("about 3 decades", "约 3 个数量级")
_NONE = ("none", "无")
_DIVERGES = ("diverges: NaN", "发散 NaN")
# (table, row, column): as printed, in English and in the article's own words.
_PRINTED: dict[tuple[str, str, str], tuple[str, str]] = {
    **{("warmup-curve", step, "post"): _DIVERGES for step in ("200", "500", "1000", "2000", "3000")},
    ("collapse-depth", "6", "none"): ("3.12, can converge", "3.12 可收敛"),
    ("collapse-depth", "12", "none"): ("3.9, then oscillates", "3.9 后震荡"),
    ("lr-window", "post 12", "window"): ("about 1 decade", "约 1 个数量级"),
    ("lr-window", "pre 12", "window"): _THREE,
    ("lr-window", "post 30", "window"): ("unusable", "不可用"),
    ("lr-window", "pre 30", "window"): _THREE,
    ("lr-window", "post 12", "best loss"): ("2.44, with warm-up", "2.44，带 warmup"),
    ("lr-window", "post 30", "best loss"): ("diverges", "发散"),
    ("lr-window", "post 12", "extra hyper-parameter"): ("warm-up steps", "warmup 步数"),
    ("lr-window", "pre 12", "extra hyper-parameter"): _NONE,
    ("lr-window", "post 30", "extra hyper-parameter"): ("—", "—"),
    ("lr-window", "pre 30", "extra hyper-parameter"): _NONE,
    **{
        ("norm-speed", shape, column): (f"{time} us", f"{time} us")
        for shape, times in (("4x128x512", (21, 18)), ("8x256x1024", (63, 54)), ("16x512x2048", (240, 205)),
                             ("32x1024x4096", (1820, 1540)))
        for column, time in zip(("layernorm", "rmsnorm handwritten"), times, strict=True)
    },
    ("norm-parameters", "one", "difference"): ("4096 less", "减 4096"),
    ("norm-parameters", "model", "difference"): ("262144 less", "减 262144"),
    ("norm-parameters", "reductions", "layernorm"): ("2 norms x 2", "2 次每次 2 个"),
    ("norm-parameters", "reductions", "rmsnorm"): ("2 norms x 1", "2 次每次 1 个"),
    ("norm-parameters", "reductions", "difference"): ("half", "减一半"),
    **{
        ("rms-paper-table", row, column): pair
        for row, pairs in {
            "RNNSearch TF": (("Test14 22.6", "Test14 22.6"), ("22.4", "22.4"), ("about 25%", "约 25%")),
            "RNNSearch": (("equal", "相当"), ("equal", "相当"), ("11 to 34%", "11% 到 34%")),
            "Transformer": (("Test14 26.6", "Test14 26.6"), ("Test14 26.5", "Test14 26.5"), ("7 to 9%", "7% 到 9%")),
            "CIFAR-10": (("equal error", "误差相当"), ("equal error", "误差相当"), ("about 20%", "20% 上下")),
            "retrieval": (("equal", "相当"), ("slightly better", "泛化略好"), ("40 to 64%", "40% 到 64%")),
        }.items()
        for column, pair in zip(("ln", "rms", "speed-up"), pairs, strict=True)
    },
}  # fmt: skip


def ledger_place(table: str, row: str, column: str) -> tuple[str, Cell]:
    """Entry of the ledger and its cell (row, column) for a cell of a table of the article."""
    if table == "norm-parameters":
        entry, key = _PARAMETERS.get((row, column), (table, "-"))
        return entry, ("", key)
    if table == "lr-window":
        return table, (column, row)
    if table == "norm-speed":
        return table, ("", row if column == "rmsnorm faster by" else "-")
    return table, (row, column)


def printed(layout: Layout, row: str, column: str, entry: Entry | None, lang: str) -> str:
    """What the article prints in the cell, with its digits; empty where the ledger has no such table or cell."""
    if entry is None:
        return ""
    pair = _PRINTED.get((layout.id, row, column))
    if pair is not None:
        return pair[lang == "zh"]
    _, place = ledger_place(layout.id, row, column)
    return _digits(layout.id, entry.cells().get(place))


def _digits(table: str, value: Any) -> str:
    """A value with the digits that the article gives it; YAML has dropped those that are zero."""
    if value is None:
        return ""
    if isinstance(value, str):
        return "NaN" if value == "nan" else value
    if table == "norm-speed":
        return f"{value:.0f}%"
    return str(value) if table == "norm-parameters" else f"{value:.2f}"
