"""The machine-code reader: from an address in this process to a closed set of code chunks.

Knows ELF, unwind tables and two instruction sets; knows nothing of Numba, contracts or verdicts.
"""
