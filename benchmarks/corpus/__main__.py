"""Runs the drivers of the named packages: ``python -m benchmarks.corpus stumpy sparse``."""

import importlib
import sys

for name in sys.argv[1:]:
    importlib.import_module(f"benchmarks.corpus.drive_{name}").run()
