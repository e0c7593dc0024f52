"""Studies that train in no time, as a user writes them."""

from __future__ import annotations

RATES = "optim.lr: [1e-3, 1e-2, 1e+30]"  # the last one ends in NaN


def tiny_yaml(axis: str, more: str = "", question: str = "Do the parts make the whole?") -> str:
    """The text of a study with one axis, such as `RATES`, and `more` lines."""
    return f"""
question: {question}
base:
  task: {{vocab: 8, length: 4, val_size: 8}}
  model: {{depth: 1, width: 8, hidden: 8}}
  train: {{batch: 4, steps: 6, eval_every: 2}}
axes:
  {axis}
{more}"""
