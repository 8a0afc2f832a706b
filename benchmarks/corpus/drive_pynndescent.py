"""Approximate nearest neighbours of a few points, by three metrics, and a query."""

import numpy as np
from pynndescent import NNDescent

PACKAGE = "pynndescent"


def run() -> None:
    points = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    index = NNDescent(points, n_neighbors=5, random_state=1)
    index.neighbor_graph  # noqa: B018  (a property that builds)
    index.prepare()
    index.query(points[:3], k=2)
    NNDescent(np.abs(points), metric="manhattan", n_neighbors=5, random_state=1)
    NNDescent(points, metric="cosine", n_neighbors=5, random_state=1)
