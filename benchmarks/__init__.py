"""What checking costs, measured against plain Numba: ``python -m benchmarks``."""
