"""Aggregations over arrays with missing values: whole, grouped, moving, exponential."""

import numbagg
import numpy as np

PACKAGE = "numbagg"


def run() -> None:
    values = np.array([[1.0, np.nan, 3.0, 4.0], [2.0, 5.0, np.nan, 1.0]])
    for name in ("nansum", "nanmean", "nanvar", "nanstd", "nanmin", "nanmax", "nancount",
                 "nanargmin", "nanargmax", "allnan", "anynan"):  # fmt: skip
        getattr(numbagg, name)(values, axis=1)
    numbagg.nanquantile(values, 0.5, axis=1)
    numbagg.nanmedian(values, axis=1)
    for name in ("move_mean", "move_sum", "move_var", "move_std"):
        getattr(numbagg, name)(values, window=2, min_count=1)
    numbagg.move_corr(values, values + 1.0, window=2, min_count=1)
    for name in ("move_exp_nanmean", "move_exp_nansum", "move_exp_nanvar"):
        getattr(numbagg, name)(values, alpha=0.5)
    labels = np.array([0, 1, 1, 0])
    for name in ("group_nanmean", "group_nansum", "group_nanmin", "group_nanargmax"):
        getattr(numbagg, name)(values, labels, axis=1)
    numbagg.ffill(values, axis=1)
    numbagg.bfill(values, axis=1)
