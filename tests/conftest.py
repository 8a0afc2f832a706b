"""Fixtures and options shared by the tests."""

import gc
import itertools

from blessing import blessed, pytest_addoption

__all__ = ["blessed", "pytest_addoption"]

# The programs under cases/ are read by the harness, each anew for every question.
collect_ignore_glob = ["cases/*.py"]


_EVERY = 250
_ended = itertools.count(1)


def pytest_collection_finish():
    """Let the collector leave alone what all modules made: tests ask it to look many times."""
    _leave_alone()


def pytest_runtest_logfinish():
    """Let it leave alone what tests left behind, too."""
    if next(_ended) % _EVERY == 0:
        _leave_alone()


def _leave_alone():
    gc.collect()
    gc.freeze()
