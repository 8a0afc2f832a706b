"""Members of an enumeration are constants."""

from enum import IntEnum


class Side(IntEnum):
    BUY = 1
    SELL = 2


def ENTRY(side, price):
    return price if side == Side.BUY else -price


SIGNATURE = "(int64, float64)"
GUARANTEE = "nonblocking"
RAISES = False
RESULT = -3.0


def ARGS():
    return 2, 3.0
