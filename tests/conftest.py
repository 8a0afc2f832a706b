"""Fixtures and options shared by the tests."""

import gc

from blessing import blessed, pytest_addoption

__all__ = ["blessed", "pytest_addoption"]

# The programs under cases/ are read by the harness, each anew for every question.
collect_ignore_glob = ["cases/*.py"]


def pytest_collection_finish():
    """Let the collector leave alone what all modules made: tests ask it to look many times."""
    gc.collect()
    gc.freeze()
