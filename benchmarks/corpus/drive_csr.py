"""Compressed sparse rows: made from coordinates, transposed, filtered, multiplied."""

import numpy as np
from csr import CSR

PACKAGE = "csr"


def run() -> None:
    rows = np.array([0, 0, 1, 2], dtype=np.int32)
    columns = np.array([1, 2, 0, 3], dtype=np.int32)
    matrix = CSR.from_coo(rows, columns, np.array([1.0, 2.0, 3.0, 4.0]), shape=(3, 4))
    matrix.row(0), matrix.row_nnzs(), matrix.rowinds()
    matrix.transpose()
    matrix.subset_rows(0, 2)
    matrix.normalize_rows("center")
    matrix.mult_vec(np.ones(4))
    matrix.multiply(matrix.transpose())
