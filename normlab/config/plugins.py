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


def _import_file(path: Path) -> None:
    path = path.resolve()
    name = f"normlab_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
