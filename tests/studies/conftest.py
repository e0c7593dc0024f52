"""A machine without a compiler, for the speed study."""

import pytest

from normlab.model.norms.base import Identity
from normlab.studies import speed_norms


@pytest.fixture
def no_compiler(monkeypatch):
    """A machine without a compiler: only what needs none comes out of torch.compile."""

    def refuse(module):
        def call(x):
            raise RuntimeError("no C++\n  compiler Set TORCHDYNAMO_VERBOSE=1")

        return module if isinstance(module, Identity) else call

    monkeypatch.setattr(speed_norms, "compiled", refuse)
