"""Distances and scores between small vectors."""

import numpy as np
from fastdist import fastdist as fd

PACKAGE = "fastdist"


def run() -> None:
    u, v = np.linspace(0.1, 1.0, 6), np.linspace(0.9, 0.2, 6)
    bits, more = np.array([1, 0, 1, 1, 0, 1]), np.array([1, 1, 0, 1, 0, 0])
    for name in ("braycurtis", "canberra", "chebyshev", "cityblock", "correlation", "cosine",
                 "euclidean", "jensenshannon", "sqeuclidean"):  # fmt: skip
        getattr(fd, name)(u, v)
    for name in ("dice", "hamming", "jaccard", "kulsinski", "rogerstanimoto",
                 "sokalmichener", "sokalsneath", "yule"):  # fmt: skip
        getattr(fd, name)(bits, more)
    fd.minkowski(u, v, 3)
    fd.mahalanobis(u, v, np.eye(6))
    fd.seuclidean(u, v, np.ones(6))
    fd.cosine_vector_to_matrix(u, np.vstack([u, v]))
    fd.cosine_matrix_to_matrix(np.vstack([u, v]), np.vstack([v, u]))
    for name in ("r2_score", "explained_variance_score", "max_error", "mean_absolute_error"):
        getattr(fd, name)(u, v)
    for name in ("mean_squared_error", "mean_squared_log_error", "median_absolute_error"):
        getattr(fd, name)(u, v)
