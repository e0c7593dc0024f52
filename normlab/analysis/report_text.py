"""What the report says in words: rules, intervals, how to read it, and what limits it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from normlab.analysis.evidence import Evidence
from normlab.analysis.frames import Results
from normlab.analysis.ledger import Bound, Fails, Monotone, Order, Predicate, Rank, ValueIs
from normlab.analysis.predicates import CONTRADICTED, DIRECTION, NOT_RUN, NOT_TESTABLE, REPRODUCED, UNDECIDED
from normlab.analysis.samples import short, with_unit
from normlab.analysis.verdicts import CellVerdict, Judged

TITLE = "The article, re-run: what holds and what does not"
HOW_TO_READ = {
    REPRODUCED: "the interval of what was measured lies wholly within the tolerance around what is printed (or on the"
    " claimed side of a bound, for every seed)",
    DIRECTION: "the printed number is missed, but what it was meant to show holds: the order, or that a net fails",
    CONTRADICTED: "the interval lies wholly outside the tolerance, or on the other side",
    UNDECIDED: "the interval reaches across the tolerance's edge, the seeds disagree, or there are too few of them",
    NOT_TESTABLE: "a toy, or this machine, cannot test it; the reason stands beside it",
    NOT_RUN: "no study among these results measures it",
}
SECTIONS = {
    "1": "Why deep nets need a norm",
    "2": "Post-LN and Pre-LN",
    "3": "RMSNorm",
    "4": "Residual connections",
    "5": "Variants",
    "6": "Experiments: depth, norm, placement, rate, speed",
    "7": "Limits and pitfalls",
    "": "Other articles of the same reading list",
}


def lead(evidence: Evidence, claims: int) -> str:
    """What the report is, in two sentences."""
    what = "every figure and statement of it was" if evidence.whole else f"only {', '.join(evidence.names)} was"
    return (
        f"An article on normalisation and residual connections, re-run: {what} measured again where that can be done,"
        f" and each of the ledger's {claims} claims has a verdict. All numbers come from the runs in this folder, and"
        " the command that made them stands beside each."
    )


def rule_text(predicate: Predicate, seeds: int = 1, unit: str = "") -> str:
    """The rule of a predicate in words, with its reason; `seeds`: how many the claim needs, `unit`: of its numbers."""
    where = [name for name in (", ".join(predicate.rows), ", ".join(predicate.columns)) if name]
    which = f" ({'; '.join(where)})" if where else ""
    return f"{_rule(predicate, seeds, unit)}{which}: {predicate.reason}"


def _rule(predicate: Predicate, seeds: int, unit: str) -> str:
    if isinstance(predicate, ValueIs):
        if predicate.tolerance == 0:
            return "equal to the printed value"
        one = predicate.tolerance == 1
        points = " percentage points" if unit else ""
        of = f" decade{'' if one else 's'}" if predicate.log10 else " times the value" if predicate.relative else points
        up = "" if predicate.above is None else f" below and {short(predicate.above)}{of} above"
        mean = "" if predicate.single or seeds == 1 else ", interval of the mean"
        further = ", interval of one further run" if predicate.single and seeds > 1 else ""
        return f"within {short(predicate.tolerance)}{of}{up} of the printed value{mean}{further}"
    if isinstance(predicate, Bound):
        ends = [f"at least {with_unit(short(predicate.at_least), unit)}"] if predicate.at_least is not None else []
        ends += [f"at most {with_unit(short(predicate.at_most), unit)}"] if predicate.at_most is not None else []
        return " and ".join(ends)
    if isinstance(predicate, Order):
        pairs = "; ".join(f"{_name(low)} below {_name(high)}" for low, high in predicate.pairs)
        return pairs + (f", margin {short(predicate.margin)}" if predicate.margin else "")
    if isinstance(predicate, Monotone):
        return "; ".join(" > ".join(_name(cell) for cell in row) for row in predicate.falling)
    if isinstance(predicate, Rank):
        return f"the cells of every seed stand in the printed order, Kendall's tau at least {short(predicate.at_least)}"
    assert isinstance(predicate, Fails)
    return "every seed fails to train"


def _name(cell: str) -> str:
    return " ".join(part for part in cell.split("|") if part)


def interval_text(cell: CellVerdict) -> str:
    """`[2.1, 2.4]`; empty where there is none."""
    if cell.low is None or cell.high is None or cell.low == cell.high:
        return ""
    high = "∞)" if math.isinf(cell.high) else f"{short(cell.high)}]"
    return f"[{short(cell.low)}, {high}"


def measured_text(one: Judged) -> str:
    """What was measured in one line; a lone cell with its interval."""
    if len(one.cells) == 1 and (interval := interval_text(one.cells[0])) and interval not in one.measured:
        return f"{one.measured}, interval {interval}"
    return one.measured


def limitations(evidence: Evidence, judged: Sequence[Judged]) -> list[str]:
    """What a reader has to know before quoting a verdict."""
    out_of_reach = sum(one.verdict == NOT_TESTABLE for one in judged)
    lines = [
        "What the article leaves open (the rule, the mixer, the initialisation, the loss positions, fresh or finite"
        " data) was filled in by a default reading that was chosen by looking at the printed numbers: affine rule, mean"
        " mixer, small normal initialisation, float32, loss over all positions, fresh data. A reading chosen that way"
        " is no independent evidence for a number that it reproduces.",
        "The constants of the rule, a = 5, b = 3, c = 7, are ours and were chosen before any run. An affine rule of"
        " order 2 over 64 symbols has only 4096 distinct sequences, and 3000 batches of 32 visit each of them 23 times"
        " on average: fresh data covers them all, so the validation loss is no test on unseen sequences.",
        f"{_seeds(evidence)} An interval of three seeds is wide; 'undecided' often means that and no more.",
        f"{_machine(evidence)} Losses are compared across machines by normlab compare; times are this machine's own,"
        " and are judged by ratios only.",
        f"{out_of_reach} claims need models, data or hardware that are not here and are marked 'not testable here'; a"
        " toy of width 64 says nothing about them.",
    ]
    if evidence.quick:
        lines.insert(0, f"This run was shortened ({'; '.join(evidence.shortened)}): no trained claim is decided by it.")
    return lines


def _seeds(evidence: Evidence) -> str:
    found = [results for name in evidence.names if isinstance(results := evidence.results(name), Results)]
    counts = sorted({len(results.study.seeds) for results in found})
    if not counts:
        return "The article trained with one seed."
    told = " or ".join(map(str, counts))
    return f"Trained studies have {told} seed{'s' if counts != [1] else ''}; the article trained with one."


def _machine(evidence: Evidence) -> str:
    facts = evidence.manifest
    device = str(facts.get("device", "unknown device"))
    model = facts.get("device_name") if device != "cpu" else facts.get("cpu") or facts.get("device_name")
    named = f", {model}" if model else ""
    return f"Everything ran on one machine ({device}{named})."


def environment_rows(evidence: Evidence) -> list[tuple[str, str]]:
    """Name and value of what the results were made with."""
    facts = evidence.manifest
    commit = f"{facts.get('commit') or 'unknown'}{' (modified)' if facts.get('dirty') else ''}"
    names = {"normlab": "normlab", "torch": "torch", "python": "Python", "platform": "platform", "cpu": "CPU"}
    rows = [("command", str(facts.get("command", ""))), ("commit", commit)]
    rows += [(label, str(facts[key])) for key, label in names.items() if facts.get(key)]
    rows += [(label, str(facts[key])) for key, label in (("device", "device"), ("device_name", "device name"),
             ("threads", "threads a process")) if facts.get(key)]  # fmt: skip
    return [row for row in rows if row[1]]
