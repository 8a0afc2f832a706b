"""An audio callback in C's calling convention: a gain over two interleaved channels.

https://fhchl.ninja/posts/pure-c-callbacks-for-sounddevice/post.html
"""

from numba import carray


def ENTRY(source, target, frames, time, status, user):
    x = carray(source, (frames, 2))
    y = carray(target, (frames, 2))
    for i in range(frames):
        y[i, 0] = 0.5 * x[i, 0]
        y[i, 1] = 0.5 * x[i, 1]
    return 0


SIGNATURE = "int32(CPointer(float32), CPointer(float32), uint64, voidptr, uint64, voidptr)"
ENTRY_KIND = "c"
GUARANTEE = "nonblocking"
RETURNS = "int32"
RAISES = False
