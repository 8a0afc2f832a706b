"""Functions of the C library through ctypes: what stands at an address has several names there."""

import ctypes

libc = ctypes.CDLL("libc.so.6")
distance = libc.labs
distance.argtypes, distance.restype = [ctypes.c_long], ctypes.c_long
take = libc.malloc
take.argtypes, take.restype = [ctypes.c_size_t], ctypes.c_void_p
give = libc.free
give.argtypes, give.restype = [ctypes.c_void_p], None


def ENTRY(n):
    size = distance(n)
    memory = take(size)  # ! allocate malloc
    give(memory)  # ! free code=AC202
    return size


SIGNATURE = "(int64,)"
GUARANTEE = "nonblocking"
RAISES = False
RESULT = 8


def ARGS():
    return (-8,)
