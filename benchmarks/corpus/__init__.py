"""Published packages with Numba kernels: for each a driver that makes small documented calls."""
