"""From a config file and overrides to a Study, or to the full list of what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from normlab.catalogue.lists import suggest
from normlab.config.axes import check_grid, read_axes
from normlab.config.dump import diff_studies, study_yaml
from normlab.config.errors import ConfigError
from normlab.config.overrides import OVERRIDE_LINE, apply_overrides
from normlab.config.plan import cells, expand, grid_problem
from normlab.config.plugins import load_plugins, plugin_file
from normlab.config.schema import NAME, RunSpec, Study
from normlab.config.seeds import read_seeds
from normlab.config.source import Source, Unread, read_source
from normlab.config.validate import validate

__all__ = [
    "ConfigError",
    "diff_studies",
    "find_config",
    "load_plugins",
    "load_study",
    "shipped_configs",
    "study_yaml",
]


Inspect = Callable[[RunSpec], object]


def load_study(
    path: Path, overrides: Sequence[str] = (), seeds: str | None = None, inspect: Inspect | None = None
) -> Study:
    """Read, override and check a study, its whole grid included; ConfigError holds all problems, one line each.

    `overrides` are `a.b=v` with commas for lists; `seeds` is the value of `--seeds`, such as `0-4`. `inspect` is called
    with every run (seed 0) of a study with plugins and raises ValueError for entries that cannot be trained.
    """
    source = read_source(Path(path))
    apply_overrides(source, overrides, seeds, _import_plugins)
    data = dict(source.data)
    axes_data, seeds_data = data.pop("axes", {}), data.pop("seeds", [0])
    _refuse_seed(data, source)
    data.setdefault("name", Path(path).stem)
    if not re.fullmatch(NAME, Path(path).stem) and "name" not in source.data:
        source.report(source.place(()), f"name: the file's name '{Path(path).stem}' cannot serve: add 'name: my-study'")
        data["name"] = "unnamed"
    study = validate(Study, data, source)
    axes = read_axes(axes_data, source)
    numbers = _read_seeds(seeds_data, source)
    if study:
        study = study.model_copy(update={"axes": axes, "seeds": numbers})
        _check_rows(study, axes_data, source)
    too_many = grid_problem(axes, len(numbers))
    if too_many:
        source.report(source.place(("axes",), key=True), f"axes: {too_many}")
    source.raise_problems()
    assert study is not None
    _check_plan(study, source)
    if inspect and study.plugins:
        _check_entries(study, inspect, source)
    return study


def _check_entries(study: Study, inspect: Inspect, source: Source) -> None:
    for _, spec in cells(study.base, study.axes):
        assert isinstance(spec, RunSpec)  # The whole grid has been checked.
        try:
            inspect(spec)
        except ValueError as error:
            source.report(source.place(("plugins",)), f"plugins: {error}")
    source.raise_problems()


def _import_plugins(source: Source) -> None:
    """Make the paths of .py plugins absolute and import all of them: they may add names that the rest uses."""
    plugins = source.data.get("plugins")
    if not isinstance(plugins, list) or not all(isinstance(plugin, str) for plugin in plugins):
        return
    overridden = source.place(("plugins",)).line == OVERRIDE_LINE
    folder = Path() if overridden else Path(source.file).parent
    source.data["plugins"] = [str(plugin_file(name, folder)) if name.endswith(".py") else name for name in plugins]
    for index, plugin in enumerate(source.data["plugins"]):
        try:
            load_plugins([plugin])
        except ConfigError as error:
            source.report(source.place(("plugins", index)), error.problems[0])


def _refuse_seed(data: dict[str, Any], source: Source) -> None:
    base = data.get("base")
    if isinstance(base, dict) and "seed" in base:
        source.report(source.place(("base", "seed"), key=True), "seed: set at the top of the study, as 'seeds: [0]'")
        data["base"] = {key: value for key, value in base.items() if key != "seed"}


def _read_seeds(value: Any, source: Source) -> tuple[int, ...]:
    if isinstance(value, Unread) or (isinstance(value, list) and any(isinstance(part, Unread) for part in value)):
        return (0,)
    try:
        return read_seeds(value)
    except ValueError as error:
        source.report(source.place(("seeds",)), f"seeds: {error}")
        return (0,)


def _check_rows(study: Study, axes: Any, source: Source) -> None:
    rows, names = study.outputs.rows, list(axes) if isinstance(axes, dict) else []
    if rows is not None and rows not in names:
        known = f"expected an axis ({', '.join(names)})" if names else "this study has no axes"
        source.report(source.place(("outputs", "rows")), f"outputs.rows: {known}, got '{rows}'{suggest(rows, names)}")


def _check_plan(study: Study, source: Source) -> None:
    try:
        expand(study)
    except ConfigError as error:
        check_grid(study.base, study.axes, source)
        if not source.problems:
            text = error.problems[0].removeprefix(f"{study.name}: ")
            source.report(source.place(("axes",), key=True), f"axes: {text}")
        source.raise_problems()


def shipped_configs() -> list[Path]:
    """The configs that come with normlab, by name: in the package when installed, in the repository when editable."""
    package = Path(__file__).resolve().parent.parent
    folder = next((place for place in (package / "configs", package.parent / "configs") if place.is_dir()), package)
    return sorted(folder.glob("*.yaml"))


def find_config(name: str | Path) -> Path:
    """A file that exists, else the shipped config of that name: `collapse`, `configs/collapse.yaml`."""
    path = Path(name)
    shipped = {config.stem: config for config in shipped_configs()}
    local = path.parent == Path() or path.parent == Path("configs")
    if local and path.suffix in ("", ".yaml", ".yml") and path.stem in shipped and not path.is_file():
        return shipped[path.stem]
    if path.exists():
        return path
    near = suggest(path.stem, list(shipped)) or f"; shipped are {', '.join(shipped)}"
    raise ConfigError([f"{name}: no such file, and no shipped config of that name{near}"])
