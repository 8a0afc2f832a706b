"""One side of an order book: price levels in a structured array, best price first.

Feeds send some hundred thousand updates a second. The array has room for a fixed number of levels;
an update finds its level by bisection and moves the others by hand. Moving them by slices,
``levels[i + 1:] = levels[i:-1]``, would copy them to the heap first, for the two overlap.
"""

import numpy as np
from numba import from_dtype, types

from alloccheck import nonblocking

LEVEL = np.dtype([("price", np.int64), ("size", np.int64)])
LEVELS = from_dtype(LEVEL)[::1]


@nonblocking(types.int64(LEVELS, types.int64, types.int64))
def find(bids, count, price):
    """Index of the first of `count` bids that is not above `price`."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if bids[middle].price > price:
            low = middle + 1
        else:
            high = middle
    return low


@nonblocking(types.int64(LEVELS, types.int64, types.int64, types.int64))
def update(bids, count, price, size):
    """Set the size at a price, 0 to remove it, and return the new number of levels.

    When the book is full, the worst level makes room.
    """
    i = find(bids, count, price)
    known = i < count and bids[i].price == price
    if size == 0:
        if not known:
            return count
        for k in range(i, count - 1):
            bids[k].price = bids[k + 1].price
            bids[k].size = bids[k + 1].size
        return count - 1
    if not known:
        if i == bids.size:
            return count
        count = min(count + 1, bids.size)
        for k in range(count - 1, i, -1):
            bids[k].price = bids[k - 1].price
            bids[k].size = bids[k - 1].size
    bids[i].price = price
    bids[i].size = size
    return count


def main() -> None:
    """Feed a random walk of bids into the book."""
    random = np.random.default_rng(1)
    bids, count = np.zeros(10, LEVEL), 0
    for _ in range(10_000):
        price = 10_000 + int(random.integers(-20, 21))
        count = update(bids, count, price, int(random.integers(0, 3)) * 100)
    prices = bids["price"][:count]
    assert (np.diff(prices) < 0).all()
    print(f"{count} bids, the best {bids[0]['size']} at {bids[0]['price'] / 100:.2f}")


if __name__ == "__main__":
    main()
