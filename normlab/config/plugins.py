"""A user's own modules: imported before a config is validated, they register norms, placements or mixers."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from normlab.config.errors import ConfigError


def load_plugins(plugins: Iterable[str]) -> None:
    """Import modules by name and .py files by path, each once a process; ConfigError if one fails."""
    for plugin in plugins:
        try:
            _import_file(Path(plugin)) if plugin.endswith(".py") else importlib.import_module(plugin)
        except (Exception, SystemExit) as error:
            if isinstance(error, ModuleNotFoundError) and error.name == plugin:
                mend = ": a .py file is named by its path, relative to the config"
                raise ConfigError([f"plugins: no module '{plugin}'{mend}"]) from None
            lines = str(error).strip().splitlines() or [""]
            what = f"{type(error).__name__}: {lines[0]}"
            raise ConfigError([f"plugins: '{plugin}' cannot be imported: {what}"]) from error


def plugin_file(name: str, folder: Path) -> Path:
    """Absolute path of a .py plugin that a config in `folder` names, relative to it.

    Results keep the absolute path. Where that is not there, as on another machine, a file of the same name beside the
    config or in the current folder is taken; its SHA-256 in the new manifest says which code it was."""
    path = (folder / name).resolve()
    if not path.is_file() and Path(name).is_absolute():
        near = (place.resolve() / path.name for place in (folder, Path()))
        return next((found for found in near if found.is_file()), path)
    return path


def plugin_digests(plugins: Iterable[str]) -> dict[str, str]:
    """SHA-256 of the source of each plugin, by file or module name: which code a plugin's name stood for.

    The folder is left out, so that a project may move. ConfigError for a plugin without a source file."""
    return {_short(plugin): hashlib.sha256(_source(plugin).read_bytes()).hexdigest() for plugin in plugins}


def _short(plugin: str) -> str:
    return Path(plugin).name if plugin.endswith(".py") else plugin


def _source(plugin: str) -> Path:
    spec = None if plugin.endswith(".py") else importlib.util.find_spec(plugin)
    origin = plugin if plugin.endswith(".py") else spec and spec.origin
    if not origin or not Path(origin).is_file():
        raise ConfigError([f"plugins: '{plugin}' has no source file"])
    return Path(origin)


def _import_file(path: Path) -> None:
    path = path.resolve()
    name = f"normlab_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}; a copy beside the config, or in this folder, would do")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
