"""An embedding of a few points into the plane, and of one more."""

import numpy as np
import umap

PACKAGE = "umap"


def run() -> None:
    points = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    reducer = umap.UMAP(n_neighbors=5, n_epochs=5, random_state=1, init="random")
    reducer.fit_transform(points)
    reducer.transform(points[:2])
