"""Parts of `scripts/bench_engine.py`."""
