"""A study of two runs that trains in no time."""

from tiny_yaml import tiny_yaml

STUDY = tiny_yaml("model.norm: [layernorm, none]", question="Does the command line work?")
