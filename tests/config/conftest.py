"""Helpers: write a config, and collect the problems of a faulty one."""

import pytest
from hypothesis import settings

from normlab.config.errors import ConfigError
from normlab.config.load import load_study

# The tests may share a busy machine; how long an example takes says nothing.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write text (or bytes) as `study.yaml` in an empty folder, which becomes the current one."""
    monkeypatch.chdir(tmp_path)

    def write(text, name="study.yaml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path.relative_to(tmp_path)

    return write


@pytest.fixture
def load(write):
    """Load a study from text, with overrides."""
    return lambda text, *overrides, seeds=None: load_study(write(text), overrides, seeds)


@pytest.fixture
def problems(load):
    """The lines of the ConfigError that loading a text raises."""

    def problems(text, *overrides, seeds=None):
        with pytest.raises(ConfigError) as caught:
            load(text, *overrides, seeds=seeds)
        assert all("\n" not in line for line in caught.value.problems)
        return caught.value.problems

    return problems
