"""Functions on which the parity of pipelines is tested, in this process and in the oracle's."""

from alloccheck import check_allocs

OPTIONS = {
    "plain": {},
    "fastmath": {"fastmath": True},
    "numpy errors": {"error_model": "numpy"},
    "bounds checked": {"boundscheck": True},
    "debug": {"debug": True},
}


def scale(out, x, g):
    """Scale an array and return the sum of its squares, by loops that vectorise."""
    total = 0.0
    for i in range(x.size):
        out[i] = g * x[i]
        total += out[i] * out[i]
    return total / g


def made(options):
    """Return the function checked under some options, whatever the verdict."""
    return check_allocs(on_failure="report", **OPTIONS[options])(scale)
