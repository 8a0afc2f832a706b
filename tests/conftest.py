"""Fixtures and options shared by the tests."""

from blessing import blessed, pytest_addoption

__all__ = ["blessed", "pytest_addoption"]

# The programs under cases/ are read by the harness, each anew for every question.
collect_ignore_glob = ["cases/*.py"]
