"""Norms: one token at a time (BatchNorm apart), every lane with parameters of its own; (S, B, T, D) in and out."""

from normlab.catalogue import NORMS, Field, Options
from normlab.model.norms.base import Norm

__all__ = ["NORMS", "Field", "Norm", "Options"]
