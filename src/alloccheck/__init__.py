"""Proof that compiled Python does not allocate, and that the code proved is the code that runs."""
