"""The half that reads results: frames, metrics, tables, figures (pandas and matplotlib, no torch)."""

from normlab.analysis.frames import Results, ResultsError, load
from normlab.analysis.outputs import write_outputs

__all__ = ["Results", "ResultsError", "load", "write_outputs"]
