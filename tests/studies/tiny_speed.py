"""The speed study in small: a shape and a pace that take no time."""

from normlab.studies.speed_shapes import Pace, Shape

TINY = Shape(2, 3, 8, (21, 18))
PACE = Pace(rounds=2, visit=1e-4, patience=1.0)
