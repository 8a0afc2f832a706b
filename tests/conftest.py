"""Fixtures and options shared by the tests."""

from blessing import blessed, pytest_addoption

__all__ = ["blessed", "pytest_addoption"]
