"""A trial: the step in one C++ function, compiled once on the machine that runs it. No part of the package uses it."""
