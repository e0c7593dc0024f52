"""The folder of a reproduction: its manifest, when a command may go on in it, and what of it `--overwrite` deletes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from normlab.execute.measuring import clear_measure
from normlab.execute.parts import Measuring, Plan
from normlab.execute.target import Refused, check_folder, clear, remove_if_empty
from normlab.manifests import FORMAT, NAME, REPRODUCTION, ResultsError, looks_ours, read_object
from normlab.store import file_hashes, strict_json, write_file

# What of the parts the manifest has hashes of: their own manifests hold those of everything else.
HASHED = ("studies/*/manifest.json", "studies/*/measure.json")
# What is derived from the whole.
DERIVED: tuple[str, ...] = (
    "tables/*.csv",
    "tables/*.md",
    "tables/*.tex",
    "tables/*.html",
    "figures/*.svg",
    "figures/*.png",
)
DERIVED += ("verdicts.json", "REPORT.md", "report.html", "failed/*/error.txt", ".tmp-*", "*/.tmp-*")


def is_reproduction(folder: Path) -> bool:
    """Whether `folder` is one of a reproduction."""
    try:
        return read_object(folder / NAME).get("kind") == REPRODUCTION
    except ResultsError:
        return False


def check_target(folder: Path, resume: bool, overwrite: bool) -> None:
    """Refuse a folder that holds something else, or a reproduction where neither flag is given."""
    check_folder(folder, resume, overwrite, is_reproduction, "reproduction of normlab's")


def read_journal(folder: Path) -> dict[str, Any]:
    """The manifest of the reproduction in `folder`; empty if there is none."""
    return read_object(folder / NAME) if is_reproduction(folder) else {}


def plan_facts(plan: Plan) -> dict[str, Any]:
    """The part of the manifest that is the same for the same plan."""
    studies = [
        {"name": part.name, "kind": part.kind, "folder": f"studies/{part.name}", "command": part.command}
        for part in plan.parts
    ]
    return {
        "format": FORMAT,
        "kind": REPRODUCTION,
        "command": plan.command,
        "quick": plan.quick,
        "shortened": plan.shortened,
        "seeds": list(plan.seeds),
        "studies": studies,
    }


def check_same(folder: Path, old: Mapping[str, Any], plan: Plan) -> None:
    """Refuse to go on with another plan than the one that the folder was made with."""
    new = plan_facts(plan)

    def value(facts: Mapping[str, Any], key: str) -> Any:
        return [study.get("name") for study in facts.get(key, ())] if key == "studies" else facts.get(key)

    sides = [(key, value(old, key), value(new, key)) for key in ("quick", "seeds", "studies")]
    lines = [f"  {key}: {_show(one)} -> {_show(two)}" for key, one, two in sides if one != two]
    if lines:
        head = f"{folder}: --resume needs the reproduction that the folder was made with, but these keys differ:"
        raise Refused(
            "\n".join([head, *lines, "  choose another folder with -o, or replace this one with --overwrite"])
        )


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def write_journal(
    folder: Path,
    plan: Plan,
    environment: Mapping[str, Any],
    sessions: Sequence[Mapping[str, Any]],
    known: Mapping[str, str],
) -> None:
    """Write `folder/manifest.json` by one rename, with the hashes of what the parts have written by now. A hash in
    `known` is kept as it is, so that a file that was changed since is still found out."""
    hashes = file_hashes(folder, HASHED)
    files = {name: known.get(name, found) for name, found in hashes.items()}
    facts = {**plan_facts(plan), **environment, "sessions": list(sessions), "files": files}
    write_file(folder / NAME, strict_json(facts))


def known_hashes(old: Mapping[str, Any], changed: Iterable[str] = ()) -> dict[str, str]:
    """The hashes in the manifest `old`, without those of the parts named in `changed`."""
    files, parts = old.get("files"), set(changed)
    kept = files if isinstance(files, dict) else {}
    return {name: found for name, found in kept.items() if Path(name).parent.name not in parts}


def clear_reproduction(folder: Path, plan: Plan, derived: Iterable[Path]) -> None:
    """Delete what a reproduction wrote in `folder`, and the `derived` tables and figures of its studies; the manifest
    last. Refuse, as `clear`, if the folder of a run holds something else."""
    derived = list(derived)
    for part in plan.parts:
        inner = folder / "studies" / part.name
        if isinstance(part, Measuring):
            clear_measure(inner)
        elif looks_ours(inner):
            clear(inner, [path for path in derived if inner in path.parents])
        remove_if_empty(inner)
    for pattern in DERIVED:
        for path in folder.glob(pattern):
            path.unlink()
    for inner in [
        *(folder / "failed").glob("*"),
        *(folder / name for name in ("failed", "tables", "figures", "studies")),
    ]:
        remove_if_empty(inner)
    (folder / NAME).unlink(missing_ok=True)
