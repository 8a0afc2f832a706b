"""One neutral graph of a program and its readers. Knows nothing of Numba or contracts."""
