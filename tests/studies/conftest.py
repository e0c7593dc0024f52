"""A machine without a compiler, for the speed study."""

import pytest

from normlab.studies import speed_norms
from normlab.studies.speed_norms import HANDWRITTEN


@pytest.fixture
def no_compiler(monkeypatch):
    """A machine without a compiler: only what needs none comes out of torch.compile."""

    def refuse(module):
        def call(x):
            raise RuntimeError("no C++\n  compiler Set TORCHDYNAMO_VERBOSE=1")

        return module if isinstance(module, HANDWRITTEN["identity"]) else call

    monkeypatch.setattr(speed_norms, "compiled", refuse)
