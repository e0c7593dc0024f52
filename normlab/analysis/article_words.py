"""What the article's tables say around their numbers, in English and in Chinese: our words, one dict a language."""

from __future__ import annotations

import re

# A verdict's mark in a cell, and its letter in LaTeX.
MARKS = {
    "reproduced": ("✓", "r"),
    "direction only": ("↗", "d"),
    "contradicted": ("✗", "c"),
    "undecided": ("◇", "u"),
    "not testable here": ("○", "t"),
    "not run": ("∅", "n"),
}
VERDICT_WORDS = {
    "zh": {
        "reproduced": "复现",
        "direction only": "仅方向一致",
        "contradicted": "不符",
        "undecided": "未定",
        "not testable here": "此处无法检验",
        "not run": "未运行",
    }
}
_OUTCOME_WORDS = {
    "nan@": "NaN@",
    "nan": "NaN",
    "stalled": "停滞",
    "unsteady": "不稳",
    "diverged": "发散",
    "failed": "失败",
    "missing": "缺",
    "trained": "可训练",
    "not run": "未运行",
    "not measurable here": "此处无法测量",
    "none": "无",
    "with warm-up": "带 warmup",
    "warm-up steps": "warmup 步数",
    "runs missing or failed": "个运行缺失或失败",
    "run missing or failed": "个运行缺失或失败",
}
# Words that the article prints in cells; the ledger keeps them in English.
_PRINTED = {
    "nan": "NaN",
    "3.9, then oscillates": "3.9 后震荡",
    "about 1 decade": "约 1 个数量级",
    "about 3 decades": "约 3 个数量级",
    "2.44 (with warm-up)": "2.44（带 warmup）",
    "warm-up steps": "warmup 步数",
    "none": "无",
    "unusable": "不可用",
    "diverges": "发散",
    "equal": "相当",
    "slightly better": "略好",
    "about 25%; LN about 67% slower than the baseline": "约 25%；LN 比基线慢约 67%",
    "11 to 34%": "11% 到 34%",
    "7 to 9%; 248 to about 230 s per 1000 steps; no norm fails to train":
        "7% 到 9%；每千步 248 秒降到约 230 秒；无归一化训不动",
    "about 20%": "20% 上下",
    "40 to 64%": "40% 到 64%",
    "2 norms x 2": "2 次每次 2 个",
    "2 norms x 1": "2 次每次 1 个",
    "half": "减一半",
}  # fmt: skip
_WORDS = {
    "en": {
        "compare": "In brackets the value that the article prints.",
        "marks": "Verdict of a cell: {marks}.",
        "of table": "Verdict of the table: {verdict}.",
        "seeds": "{study}: {n} seed{s} ({seeds})",
        "not run": "not run: {studies}",
        "needs": "not run: needs {studies}",
        "quick": "SHORTENED RUN (--quick): {what}. The numbers are not those of the full setting.",
        "spread": "Mean ± sample standard deviation over the seeds; where seeds end differently, each ending with"
        " the seeds that share it.",
        "one seed": "One seed: no spread.",
        "step": "nan: at or after the first non-finite value; –: not evaluated at that step.",
        "cited": "Cited by the article from the paper; translation, vision and retrieval models are not trained here.",
        "params": "Counted, not timed: no seeds, no spread.",
        "speed": "Median [20th, 80th percentile] in microseconds over n timings of a forward call; a negative share"
        " means that RMSNorm is slower.",
        "window": "Decades between the ends of the longest run of neighbouring grid points at which every seed"
        " trains; ≥ where it touches the edge of the grid.",
        "grids": "Grids: {grids}.",
        "extra": "The best loss with a warm-up is that at lr 1e-3, the control of 6.3's prose.",
    },
    "zh": {
        "compare": "括号内为原文所印数值。",
        "marks": "单元格判定：{marks}。",
        "of table": "全表判定：{verdict}。",
        "seeds": "{study}：{n} 个种子（{seeds}）",
        "not run": "未运行：{studies}",
        "needs": "未运行：需要 {studies}",
        "quick": "缩短运行（--quick）：{what}。数值并非完整设置下的结果。",
        "spread": "数值为各种子的均值 ± 样本标准差；种子结局不同时，分别列出每种结局及其种子数。",
        "one seed": "只有一个种子，没有离散度。",
        "step": "NaN：该步已出现非有限值；–：该步未做评估。",
        "cited": "原文引自论文；翻译、视觉与检索模型不在此处训练。",
        "params": "计数所得，无种子，无离散度。",
        "speed": "单次前向 n 次计时的中位数 [20%, 80% 分位]，单位微秒；百分比为负表示 RMSNorm 更慢。",
        "window": "窗口为所有种子都能训练的最长一段相邻网格点的宽度（数量级）；≥ 表示触及网格边缘。",
        "grids": "网格：{grids}。",
        "extra": "带 warmup 的最优损失取学习率 1e-3 处的值，即 6.3 正文的对照。",
    },
}  # fmt: skip


def say(lang: str, key: str, **values: object) -> str:
    """A phrase in `lang`, filled in."""
    return _WORDS[lang][key].format(**values)


def verdict_word(verdict: str, lang: str) -> str:
    """The verdict as a reader of `lang` sees it."""
    return VERDICT_WORDS.get(lang, {}).get(verdict, verdict)


def cell_words(text: str, lang: str) -> str:
    """A measured cell's text with its words in `lang`; numbers stay."""
    if lang == "en":
        return text
    pattern = "|".join(re.escape(word) for word in sorted(_OUTCOME_WORDS, key=len, reverse=True))
    for english, chinese in (
        (r"(\d+) norms x (\d+)", r"\1 次每次 \2 个"),
        (r"(\S+) to (\S+)", r"\1 至 \2"),
        (r" at (\S+)", r"（\1）"),
    ):
        text = re.sub(english, chinese, text)
    return re.sub(rf"(?<![A-Za-z])(?:{pattern})(?![A-Za-z])", lambda found: _OUTCOME_WORDS[found[0]], text)
