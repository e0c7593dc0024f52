"""`manifest.json`: what was planned, by which command, on what machine, in which sittings."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import normlab
from normlab.config.dump import study_yaml
from normlab.config.engine import SWITCHES
from normlab.config.plan import PlannedRun
from normlab.config.plugins import plugin_digests
from normlab.config.schema import Study
from normlab.execute.lease import changing_manifest
from normlab.manifests import FORMAT, NAME, ResultsError, find_manifest, plugin_entries, read_object
from normlab.store import run_hashes, strict_json, write_file
from normlab.train.code import code_digest
from normlab.train.subnormals import SETTING

# Circumstances that may change the last digits of a result; they are told, not refused.
COMPARED = ("commit", "dirty", "code", "device", "threads", "torch", "normlab")


def differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The circumstances, of two manifests, that may change last digits and are not the same: `torch 2.12 -> 2.13`."""
    pairs: list[tuple[str, Any, Any]] = [(key, *(side.get(key, "not told") for side in (old, new))) for key in COMPARED]
    pairs += [(key, _switch(old, key), _switch(new, key)) for key in (*SWITCHES, *SETTING)]
    return [f"{key} {one} -> {two}" for key, one, two in pairs if one != two]


def _switch(manifest: Mapping[str, Any], key: str) -> str:
    value = manifest.get(key)
    return value if value and isinstance(value, str) else "on" if value else "off"


def plan_facts(study: Study, plan: Sequence[PlannedRun], command: str) -> dict[str, Any]:
    """The part that is the same for the same plan. `command` is the canonical one."""
    runs = [{"id": run.id, "label": run.label, "cell": run.cell, "seed": run.spec.seed} for run in plan]
    facts = {"format": FORMAT, "study": study.model_dump(mode="json"), "command": command, "runs": runs}
    facts |= config_facts(study)
    if study.plugins:
        facts |= {"plugins": plugin_digests(study.plugins), "entries": plugin_entries(study)}
    return facts


def config_facts(study: Study) -> dict[str, Any]:
    """The hash of config.yaml, as it stands in the manifest."""
    return {"files": {"config.yaml": hashlib.sha256(study_yaml(study).encode()).hexdigest()}}


def environment(device: str, device_name: str) -> dict[str, Any]:
    """Where and with what the runs are made."""
    commit, dirty = checkout()
    return {
        "commit": commit,
        "dirty": dirty,
        "code": code_digest(),
        "device": device,
        "device_name": device_name,
        "threads": 1,
        **SETTING,
        "torch": _version("torch"),
        "normlab": normlab.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": cpu_name(),
    }


def write_manifest(
    folder: Path,
    facts: Mapping[str, Any],
    environment: Mapping[str, Any],
    sessions: Sequence[Mapping[str, Any]],
    known: Mapping[str, str] | None = None,
) -> None:
    """Write `folder/manifest.json` by one rename. `files` in it holds the SHA-256 of config.yaml and of the files of
    every planned run that is published by now; a hash that is `known` (None: that the manifest has) is kept."""
    ids = [run["id"] for run in facts["runs"]]
    files = {"config.yaml": facts["files"]["config.yaml"]}
    files |= run_hashes(folder, ids, _recorded(folder) if known is None else known)
    rest = {key: value for key, value in facts.items() if key != "files"}
    content = {**rest, **environment, "sessions": list(sessions), "files": files}
    write_file(folder / NAME, strict_json(content))


def add_session(
    folder: Path, facts: Mapping[str, Any], environment: Mapping[str, Any], session: Mapping[str, Any]
) -> None:
    """Note in the manifest how a sitting went, and the runs that it published. Everything else stays as it is by now:
    another shard may have written it meanwhile. `facts` and `environment` count if there is none any more."""
    with changing_manifest(folder):
        try:
            old = find_manifest(folder) or {}
        except ResultsError:
            old = {}
        kept = old if "config.yaml" in old.get("files", {}) else {**old, **facts, **environment}
        write_manifest(folder, kept, {}, [*old.get("sessions", []), session])


def _recorded(folder: Path) -> dict[str, str]:
    try:
        files = read_object(folder / NAME).get("files")
    except ResultsError:
        return {}
    return files if isinstance(files, dict) else {}


def checkout() -> tuple[str | None, bool | None]:
    """Commit of the checkout that normlab runs from, and whether its files differ from it; None, None outside one."""
    root = Path(normlab.__file__).resolve().parent.parent
    # A package installed below some other project's checkout is not that project.
    if not (root / "pyproject.toml").exists() or not (root / ".git").exists():
        return None, None
    commit = _git(root, "rev-parse", "--short=12", "HEAD")
    status = _git(root, "status", "--porcelain", "--untracked-files=no", "--", "normlab", "pyproject.toml")
    return (commit, bool(status)) if commit and status is not None else (commit, None)


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def cpu_name() -> str:
    """Name of the processor as the system gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def now() -> str:
    """The time as ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
