"""Proof that compiled Python does not allocate, and that the code proved is the code that runs."""

__version__ = "0.1.0"
