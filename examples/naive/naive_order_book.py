"""The order book of `order_book.py` as a dictionary: it grows, and its prices make a list."""

from numba import types
from numba.typed import Dict

from alloccheck import nonblocking

BOOK = types.DictType(types.int64, types.int64)


@nonblocking(types.int64(BOOK, types.int64, types.int64), on_failure="report")
def update(bids, price, size):
    """Set the size at a price, 0 to remove it, and return the best price."""
    if size > 0:
        bids[price] = size
    elif price in bids:
        bids.pop(price)
    prices = list(bids)
    return max(prices) if len(prices) > 0 else 0


def main() -> None:
    """Feed three updates into the book."""
    bids = Dict.empty(types.int64, types.int64)
    for price, size in ((9_990, 100), (10_010, 200), (10_010, 0)):
        best = update(bids, price, size)
    print(f"{len(bids)} bids, the best at {best / 100:.2f}")


if __name__ == "__main__":
    main()
