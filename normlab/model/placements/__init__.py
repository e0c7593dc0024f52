"""Placements: where the norm stands relative to the residual sum. The equation is `forward`."""

from normlab.catalogue import PLACEMENTS, Field, Options
from normlab.model.placements.base import Placement
from normlab.model.placements.depth import LNS, DeepNorm, MixLN, SubLN
from normlab.model.placements.switched import PreThenPost
from normlab.model.placements.weighted import Admin, LayerScale, ReZero
from normlab.model.placements.where import Post, Pre, Reordered, Sandwich

__all__ = ["PLACEMENTS", "Field", "Options", "Placement"]
__all__ += ["LNS", "Admin", "DeepNorm", "LayerScale", "MixLN", "Post", "Pre", "PreThenPost", "ReZero", "Reordered"]
__all__ += ["Sandwich", "SubLN"]
