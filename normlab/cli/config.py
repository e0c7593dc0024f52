"""`normlab config check|show|schema`, `normlab list KIND`, `normlab env`: what there is, before anything trains."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from normlab.catalogue import CATALOGUES, Catalogue, Options
from normlab.catalogue.lists import suggest
from normlab.cli.options import Plugins, Quiet, Verbose
from normlab.config.errors import ConfigError
from normlab.config.load import find_config, load_study, shipped_configs, study_yaml
from normlab.config.plan import expand
from normlab.config.plugins import load_plugins
from normlab.config.scalars import show as show_scalar

KINDS = (*CATALOGUES, "configs")

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
    from normlab.cli.training import inspect_entries

    answers: list[dict[str, Any]] = []
    for name in names:
        try:
            path = find_config(name)
            study = load_study(path, overrides, inspect=inspect_entries)
            runs = math.prod(len(axis.points) for axis in study.axes) * len(study.seeds)
            unusual = list(dict.fromkeys(clause for run in expand(study) for clause in run.spec.model.unusual()))
            answers.append({"config": str(path), "ok": True, "runs": runs, "problems": [], "unusual": unusual})
        except ConfigError as error:
            answers.append({"config": name, "ok": False, "runs": None, "problems": error.problems, "unusual": []})
    if as_json:
        print(json.dumps(answers, indent=1))
    for answer in () if as_json else answers:
        if answer["ok"]:
            print(f"{answer['config']}: ok, {answer['runs']} run{'s' if answer['runs'] > 1 else ''}")
            for clause in answer["unusual"]:
                print(f"  unusual: {clause}")
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
    plugins: Plugins = (),  # type: ignore[assignment]
    as_json: bool = _JSON,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """List what a config can name, a line each on what it is; with -v its source and options with their defaults."""
    if kind not in KINDS:
        near = suggest(kind, list(KINDS))
        raise typer.BadParameter(f"expected one of {', '.join(KINDS)}, got '{kind}'{near}", param_hint="'KIND'")
    load_plugins(plugins)
    entries = _configs() if kind == "configs" else _entries(CATALOGUES[kind])
    if as_json:
        print(json.dumps(entries, indent=1))
        return
    width = max(len(entry["name"]) for entry in entries)
    for entry in entries:
        print(f"{entry['name']:<{width}}  {entry['about']}")
        for line in _details(entry) if verbose else ():
            print(f"{'':<{width}}    {line}")


def _configs() -> list[dict[str, Any]]:
    return [{"name": path.stem, "about": load_study(path).question} for path in shipped_configs()]


def _entries(catalogue: Catalogue) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "about": _first_paragraph(entry.__doc__ or ""),
            "title": catalogue.title(name),
            "source": getattr(entry, "source", ""),
            "options": _options(getattr(entry, "Options", None)),
        }
        for name, entry in catalogue.items()
    ]


def _options(options: type[Options] | None) -> dict[str, dict[str, Any]]:
    fields = options.model_fields if options else {}
    return {name: {"default": field.default, "about": field.description or ""} for name, field in fields.items()}


def _details(entry: dict[str, Any]) -> Iterator[str]:
    """The lines of `-v` below an entry."""
    if entry.get("source"):
        yield f"source: {entry['source']}"
    for option, field in entry.get("options", {}).items():
        yield f"{option}: {show_scalar(field['default'])}  {field['about']}".rstrip()


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
    facts["fused_step"] = _fused_step()
    facts["devices"] = ["cpu", *(f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(count))]
    facts |= {name: _version(name) for name in ("numpy", "pandas", "matplotlib", "pydantic", "typer", "rich")}
    facts = {key: value for key, value in facts.items() if key not in ("device", "device_name")}
    if as_json:
        print(json.dumps(facts, indent=1))
        return
    for key, value in facts.items():
        print(f"{key}: {', '.join(value) if isinstance(value, list) else value}")


def _fused_step() -> str:
    """What the fused step was compiled for and by, and where it lies; or why there is none."""
    from normlab.fused.build import CannotCompile, load

    try:
        library = load()
    except CannotCompile as reason:
        return f"none: {reason}"
    return f"{library.name}; {library.path}"


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None
