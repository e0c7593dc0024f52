"""A study of two runs that trains in no time."""

STUDY = """
question: Does the command line work?
base:
  task: {vocab: 8, length: 4, val_size: 8}
  model: {depth: 1, width: 8, hidden: 8}
  train: {batch: 4, steps: 6, eval_every: 2}
axes:
  model.norm: [layernorm, none]
"""
