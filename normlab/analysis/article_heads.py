"""The article's tables as it lays them out: which, in what order, with which heads, in English and in its own Chinese.

Facts only. Values are not here: the printed ones stand in the ledger, the measured ones in results folders.
"""

from __future__ import annotations

from dataclasses import dataclass

LANGUAGES = ("en", "zh")


@dataclass(frozen=True)
class Head:
    """A column or row: its key in the ledger, and what a reader sees in each language."""

    key: str
    en: str
    zh: str

    def text(self, lang: str) -> str:
        """The head in `lang`."""
        return self.zh if lang == "zh" else self.en


@dataclass(frozen=True)
class Layout:
    """A table: `id` is that of the ledger, `studies` are those that feed it (none: cited, not measurable), `corner` is
    the head of the rows, `title` ours."""

    id: str
    section: str
    number: int
    studies: tuple[str, ...]
    title: Head
    corner: Head
    columns: tuple[Head, ...]
    rows: tuple[Head, ...]

    def place(self, lang: str) -> str:
        """`section 6.2, table 1`."""
        if lang == "zh":
            return f"第 {self.section} 节" + (f"表 {self.number}" if self.number else "")
        return f"section {self.section}" + (f", table {self.number}" if self.number else "")


def _same(*keys: str) -> tuple[Head, ...]:
    return tuple(Head(key, key, key) for key in keys)


def _h(key: str, en: str, zh: str) -> Head:
    return Head(key, en, zh)


_NORMS = (
    _h("none", "no norm", "无归一化"),
    _h("layernorm", "LayerNorm", "LayerNorm"),
    _h("rmsnorm", "RMSNorm", "RMSNorm"),
)
_STEP = _h("", "step", "步数")
_NETS = (
    _h("post 12", "Post-LN, 12 layers", "Post-LN 12 层"),
    _h("pre 12", "Pre-LN, 12 layers", "Pre-LN 12 层"),
    _h("post 30", "Post-LN, 30 layers", "Post-LN 30 层"),
    _h("pre 30", "Pre-LN, 30 layers", "Pre-LN 30 层"),
)

LAYOUTS = (
    Layout(
        "warmup-curve", "2.3", 0, ("warmup",),
        _h("", "12 layers, with and without a warm-up: validation loss by step", "12 层，有无 warmup：各步的验证损失"),
        _STEP,
        (
            _h("post", "Post-LN without warm-up", "Post-LN 无 warmup"),
            _h("pre", "Pre-LN without warm-up", "Pre-LN 无 warmup"),
            _h("post, warm-up 1000", "Post-LN with warm-up", "Post-LN 带 warmup"),
        ),
        _same("200", "500", "1000", "2000", "3000"),
    ),
    Layout(
        "rms-paper-table", "3.2", 0, (),
        _h("", "LayerNorm and RMSNorm by scenario, as cited from arXiv:1910.07467",
           "LayerNorm 与 RMSNorm 分场景对比（引自 arXiv:1910.07467）"),
        _h("", "scenario", "场景"),
        (
            _h("ln", "quality, LN", "LN 质量"),
            _h("rms", "quality, RMSNorm", "RMSNorm 质量"),
            _h("speed-up", "RMSNorm speed-up", "RMSNorm 提速"),
        ),
        (
            _h("RNNSearch TF", "RNNSearch (TF)", "RNNSearch（TF 实现）"),
            _h("RNNSearch", "RNNSearch (Theano, PyTorch)", "RNNSearch（Theano/PyTorch）"),
            _h("Transformer", "Transformer, translation", "Transformer 翻译"),
            _h("CIFAR-10", "CIFAR-10 CNN", "CIFAR-10 CNN"),
            _h("retrieval", "image-text retrieval", "图文检索"),
        ),
    ),
    Layout(
        "collapse-20", "6.2", 1, ("collapse",),
        _h("", "20 layers, lr 1e-3: validation loss by step", "20 层，学习率 1e-3：各步的验证损失"),
        _STEP, _NORMS, _same("0", "500", "1000", "2000", "3000"),
    ),
    Layout(
        "collapse-depth", "6.2", 2, ("depth",),
        _h("", "validation loss at the last step by depth", "各层数在最后一步的验证损失"),
        _h("", "layers", "层数"), _NORMS, _same("6", "12", "20"),
    ),
    Layout(
        "lr-sensitivity", "6.3", 1, ("postln", "preln"),
        _h("", "validation loss at the last step by learning rate", "各学习率在最后一步的验证损失"),
        _h("", "learning rate", "学习率"), _NETS, _same("1e-4", "3e-4", "1e-3", "3e-3", "1e-2"),
    ),
    Layout(
        "lr-window", "6.3", 2, ("postln", "preln", "warmup", "lr_wide"),
        _h("", "learning-rate window that trains, and the best loss in it", "可训练的学习率窗口及其中的最优损失"),
        _h("", "configuration", "配置"),
        (
            _h("window", "safe learning-rate window", "安全学习率窗口"),
            _h("best loss", "best loss", "最优损失"),
            _h("extra hyper-parameter", "extra hyper-parameter", "额外超参"),
        ),
        _NETS,
    ),
    Layout(
        "norm-speed", "6.4", 1, ("speed",),
        _h("", "median time of a forward call, CPU", "单次前向的中位耗时，CPU"),
        _h("", "shape (batch x seq x d)", "形状 batch seq d"),
        (
            _h("layernorm", "nn.LayerNorm", "nn.LayerNorm"),
            _h("rmsnorm handwritten", "RMSNorm, hand-written", "RMSNorm 手写"),
            _h("rmsnorm faster by", "RMSNorm faster by", "RMSNorm 快多少"),
        ),
        tuple(Head(key, key.replace("x", " x "), key.replace("x", " x "))
              for key in ("4x128x512", "8x256x1024", "16x512x2048", "32x1024x4096")),
    ),
    Layout(
        "norm-parameters", "6.4", 2, ("params",),
        _h("", "norm parameters and reductions, d=4096, 32 layers, two norms a layer",
           "归一化参数量与规约次数，d=4096，32 层，每层两处"),
        _h("", "item", "项"),
        (
            _h("layernorm", "LayerNorm", "LayerNorm"),
            _h("rmsnorm", "RMSNorm", "RMSNorm"),
            _h("difference", "difference", "差值"),
        ),
        (
            _h("one", "parameters of one norm", "单处参数"),
            _h("model", "norm parameters of the model", "全模型归一化参数"),
            _h("reductions", "reductions in a forward pass (per token)", "前向规约次数（每 token）"),
        ),
    ),
)  # fmt: skip
