"""`normlab config check|show|schema`, `normlab list KIND`, `normlab env`: what there is, before anything trains."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import typer

from normlab.catalogue.lists import suggest
from normlab.cli.options import Quiet, Verbose
from normlab.config.errors import ConfigError
from normlab.config.load import find_config, load_study, shipped_configs, study_yaml

KINDS = ("norms", "placements", "mixers", "tasks", "configs")

_CONFIG = typer.Argument(help="A YAML file, or the name of a shipped config.", metavar="CONFIG")
_OVERRIDES = typer.Argument(None, help="Overrides a.b=v; commas make an axis.", metavar="[OVERRIDES]...")
_JSON = typer.Option(False, "--json", help="Print JSON.")
_SEEDS = typer.Option(None, "--seeds", help="Seeds instead of the config's, such as 0-4 or 0,2,5-7.")


def register(app: typer.Typer) -> None:
    """Add this module's commands to the root."""
    group = typer.Typer(help="Check, resolve and explain configs.", no_args_is_help=True, rich_markup_mode=None)
    group.command("check")(check)
    group.command("show")(show)
    group.command("schema")(schema)
    app.add_typer(group, name="config")
    app.command("list")(list_kind)
    app.command("env")(env)


def check(
    configs: list[str] = typer.Argument(help="YAML files or shipped names; a.b=v overrides all.", metavar="CONFIG..."),
    as_json: bool = _JSON,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Check configs: per file `ok` and the number of runs, or every problem, one a line (exit 2)."""
    overrides = [text for text in configs if "=" in text and not Path(text).exists()]
    names = [text for text in configs if text not in overrides]
    if not names:
        raise typer.BadParameter("expected a config before the overrides", param_hint="'CONFIG...'")
    answers: list[dict[str, Any]] = []
    for name in names:
        try:
            path = find_config(name)
            study = load_study(path, overrides)
            runs = math.prod(len(axis.points) for axis in study.axes) * len(study.seeds)
            answers.append({"config": str(path), "ok": True, "runs": runs, "problems": []})
        except ConfigError as error:
            answers.append({"config": name, "ok": False, "runs": None, "problems": error.problems})
    if as_json:
        print(json.dumps(answers, indent=1))
    for answer in () if as_json else answers:
        if answer["ok"]:
            print(f"{answer['config']}: ok, {answer['runs']} run{'s' if answer['runs'] > 1 else ''}")
        else:
            print("\n".join(answer["problems"]), file=sys.stderr)
    return 0 if all(answer["ok"] for answer in answers) else 2


def show(
    config: str = _CONFIG,
    overrides: list[str] = _OVERRIDES,
    seeds: str = _SEEDS,
    as_json: bool = _JSON,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Print the resolved study: every default filled in, overrides applied; loads back as a config."""
    study = load_study(find_config(config), overrides or (), seeds)
    print(study.model_dump_json(indent=1) if as_json else study_yaml(study), end="\n" if as_json else "")


def schema(
    as_json: bool = typer.Option(False, "--json", help="Print the JSON Schema of a config file."),
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Print every field of a config: default, what is legal, meaning."""
    from normlab.config.describe import field_table, json_schema

    print(json.dumps(json_schema(), indent=1) if as_json else field_table())


def list_kind(
    kind: str = typer.Argument(help=f"One of {', '.join(KINDS)}.", metavar="KIND"),
    as_json: bool = _JSON,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """List norms, placements, mixers, tasks or shipped configs, each with a line on what it is."""
    if kind not in KINDS:
        near = suggest(kind, list(KINDS))
        raise typer.BadParameter(f"expected one of {', '.join(KINDS)}, got '{kind}'{near}", param_hint="'KIND'")
    entries = _configs() if kind == "configs" else _catalogue(kind)
    if as_json:
        print(json.dumps([{"name": name, "about": about} for name, about in entries.items()], indent=1))
        return
    width = max(map(len, entries))
    for name, about in entries.items():
        print(f"{name:<{width}}  {about}")


def _configs() -> dict[str, str]:
    return {path.stem: load_study(path).question for path in shipped_configs()}


def _catalogue(kind: str) -> dict[str, str]:
    if kind == "norms":
        from normlab.model.norms import NORMS as catalogue
    elif kind == "placements":
        from normlab.model.placements import PLACEMENTS as catalogue
    elif kind == "mixers":
        from normlab.model.mixers import MIXERS as catalogue
    else:
        from normlab.train.tasks import TASKS as catalogue
    return {name: _first_paragraph(entry.__doc__ or "") for name, entry in catalogue.items()}


def _first_paragraph(doc: str) -> str:
    return " ".join(doc.strip().split("\n\n")[0].split())


def env(as_json: bool = _JSON, quiet: Quiet = False, verbose: Verbose = False) -> None:
    """Print versions, devices, threads and commit: what to add to a report."""
    import torch

    from normlab.execute.manifest import cores, environment

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    facts: dict[str, Any] = environment("", "")
    facts["threads"] = torch.get_num_threads()
    facts["cores"] = cores()
    facts["devices"] = ["cpu", *(f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(count))]
    facts |= {name: _version(name) for name in ("numpy", "pandas", "matplotlib", "pydantic", "typer", "rich")}
    facts = {key: value for key, value in facts.items() if key not in ("device", "device_name")}
    if as_json:
        print(json.dumps(facts, indent=1))
        return
    for key, value in facts.items():
        print(f"{key}: {', '.join(value) if isinstance(value, list) else value}")


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None
