"""What stock Numba makes of a function under different orders, each in a process of its own."""
