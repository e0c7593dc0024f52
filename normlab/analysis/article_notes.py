"""What stands below a table of the article: how to read its cells, and where its numbers come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from normlab.analysis.article_cells import window_grids
from normlab.analysis.article_heads import Layout
from normlab.analysis.article_words import MARKS, cell_words, say, verdict_word
from normlab.analysis.evidence import Evidence
from normlab.analysis.frames import OUTCOMES, Results
from normlab.analysis.provenance import commit_text, device_text, listed, machine_text, thresholds_text
from normlab.measures import Measure

_STEPS = ("collapse-20", "warmup-curve")


@dataclass(frozen=True)
class Origin:
    """`lines`: seeds, outcomes, commit and device of each study that feeds a table; `commands` that made them."""

    lines: tuple[str, ...]
    commands: tuple[str, ...]


def notes(
    layout: Layout, evidence: Evidence, lang: str, verdicts: Sequence[tuple[str, str]], whole: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Sentences that always stand below the table, and those that explain the comparison with the article. `verdicts`
    are those of the cells, with the study that a cell lacks to be judged (empty: none)."""
    lines = []
    if cut := shortened(evidence, layout.studies):
        lines.append(say(lang, "quick", what="; ".join(cut)))
    lines += _how_to_read(layout, evidence, lang)
    there = [mark for mark in MARKS if (mark, "") in verdicts and mark != "not run"]
    comparing = [say(lang, "compare")]
    words = {mark: verdict_word(mark, lang) for mark in there}
    if needed := ", ".join(dict.fromkeys(study for _, study in verdicts if study)):
        words["not run"] = say(lang, "needs", studies=needed)
    if words:
        marks = ", ".join(f"{MARKS[mark][0]} {word}" for mark, word in words.items())
        comparing.append(say(lang, "marks", marks=marks))
    if whole:
        comparing.append(say(lang, "of table", verdict=verdict_word(whole, lang)))
    return tuple(lines), tuple(comparing)


def shortened(evidence: Evidence, studies: Sequence[str]) -> list[str]:
    """What `--quick` left out of these studies: told by the reproduction, or by each of them; empty for full ones."""
    if not studies:
        return []
    if evidence.quick or evidence.shortened:
        return list(evidence.shortened) or ["--quick"]
    cut: list[str] = []
    for name in studies:
        found = evidence.measure(name) or evidence.results(name)
        if isinstance(found, Measure) and found.quick:
            cut += [str(text) for text in found.settings.get("shortened") or ["--quick"]]
        if isinstance(found, Results):
            cut += [str(text) for text in found.manifest.get("shortened") or ()]
    return list(dict.fromkeys(cut))


def _how_to_read(layout: Layout, evidence: Evidence, lang: str) -> list[str]:
    if not layout.studies:
        return [say(lang, "cited")]
    if layout.studies == ("params",):
        return [say(lang, "params")]
    if layout.studies == ("speed",):
        return [say(lang, "speed")]
    studies = [results for name in layout.studies if (results := evidence.results(name)) is not None]
    lines = []
    if studies:
        several = max(len(results.study.seeds) for results in studies) > 1
        lines.append(say(lang, "spread" if several else "one seed"))
    if layout.id in _STEPS:
        lines.append(say(lang, "step"))
    if layout.id == "lr-window":
        lines.append(say(lang, "window"))
        if grids := window_grids(evidence):
            lines.append(say(lang, "grids", grids=grids))
        if evidence.results("warmup") is not None:
            lines.append(say(lang, "extra"))
    rules = dict.fromkeys(_thresholds(results, lang) for results in studies)
    return lines + list(rules)


def _thresholds(results: Results, lang: str) -> str:
    if lang == "en":
        return f"{thresholds_text(results)}."
    t = results.study.thresholds
    return (
        "结局取最先符合者：NaN，出现非有限值（@ 后为步数）；发散，最后三次评估的均值高于 max(初始损失, 最优常数猜测)"
        f" + {t.diverged_margin:g}；停滞，最后一次评估高于猜测 - {t.stalled_margin:g}；不稳，最后一次评估高于最优值 +"
        f" {t.unsteady_margin:g}；其余为可训练。单位 nat。"
    )


def origin(layout: Layout, evidence: Evidence, lang: str) -> Origin:
    """Of the studies that feed a table; those that are not there are named."""
    lines: list[str] = []
    commands: list[str] = []
    missing: list[str] = []
    places: dict[str, list[str]] = {}
    for name in layout.studies:
        found = evidence.results(name) or evidence.measure(name)
        if found is None:
            missing.append(name)
            continue
        if isinstance(found, Results):
            seeds_there = listed(list(map(str, found.study.seeds)))
            plural = "s" if len(found.study.seeds) > 1 else ""
            seeds = say(lang, "seeds", study=name, n=len(found.study.seeds), s=plural, seeds=seeds_there)
            lines.append(f"{seeds}; {outcome_counts(found, lang)}")
        places.setdefault(place_text(found), []).append(name)
        commands.append(evidence.command(name))
    if missing:
        lines.append(say(lang, "not run", studies=", ".join(missing)))
    lines += [place if len(places) == 1 else f"{', '.join(names)}: {place}" for place, names in places.items()]
    return Origin(tuple(lines), tuple(dict.fromkeys(commands)))


def outcome_counts(results: Results, lang: str) -> str:
    """`30 runs: 20 trained, 10 nan`, in the language."""
    counts = results.runs["outcome"].value_counts()
    ended = ", ".join(f"{counts[name]} {cell_words(name, lang)}" for name in OUTCOMES if name in counts)
    n = len(results.runs)
    return f"{n} 个运行：{ended}" if lang == "zh" else f"{n} run{'s' if n != 1 else ''}: {ended}"


def place_text(found: Results | Measure) -> str:
    """Commit and device of a study."""
    if isinstance(found, Results):
        return f"{commit_text(found)}; {device_text(found)}"
    facts = found.environment
    modified = " (modified)" if facts.get("dirty") else ""
    return f"commit {facts.get('commit') or 'unknown'}{modified}; {machine_text(facts)}"
