"""Sparse arrays: arithmetic, products, reductions, slices, conversions."""

import numpy as np
import sparse

PACKAGE = "sparse"


def run() -> None:
    dense = np.array([[0.0, 1.0, 0.0], [2.0, 0.0, 3.0], [0.0, 0.0, 4.0]])
    coo = sparse.COO.from_numpy(dense)
    (coo + coo.T).sum(axis=0)
    coo @ coo
    sparse.matmul(coo, dense)
    sparse.tensordot(coo, coo, axes=1)
    sparse.concatenate([coo, coo])
    coo[1:, ::2].todense()
    coo.max()
    (coo * 2.0).reshape((9, 1))
    gcxs = sparse.GCXS.from_numpy(dense)
    gcxs @ gcxs
    gcxs @ dense
    gcxs[0].todense()
    gcxs.tocoo()
    changing = sparse.DOK((3, 3))
    changing[1, 1] = 5.0
    changing.to_coo()
    sparse.random((4, 4), density=0.3, random_state=1)
