"""A set is a hash table on the heap."""


def ENTRY(a):
    seen = set()  # ! allocate
    for i in range(a.size):
        seen.add(a[i])  # ! allocate
    return len(seen)


SIGNATURE = "(int64[::1],)"
