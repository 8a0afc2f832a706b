"""Audits programs: records what Numba compiles while one runs, then proves each function."""
