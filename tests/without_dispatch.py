"""Measures in a process whose kernel seems not to hand system calls to user space.

A seccomp filter lets ``prctl(PR_SET_SYSCALL_USER_DISPATCH)`` fail, as an older kernel does.
"""

import ctypes
import json
import struct

import oracle_cases as cases
from alloccheck.oracle import Oracle

PR_SET_SYSCALL_USER_DISPATCH = 59
SYS_PRCTL = 157
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL_WITH_EINVAL = 0x7FFF0000, 0x00050000 | 22
NUMBER, FIRST_ARGUMENT = 0, 16  # offsets in struct seccomp_data


def forbid_dispatch():
    program = b"".join(
        struct.pack("<HBBI", *row)
        for row in (
            (LOAD, 0, 0, NUMBER),
            (EQUAL, 0, 3, SYS_PRCTL),
            (LOAD, 0, 0, FIRST_ARGUMENT),
            (EQUAL, 0, 1, PR_SET_SYSCALL_USER_DISPATCH),
            (RETURN, 0, 0, FAIL_WITH_EINVAL),
            (RETURN, 0, 0, ALLOW),
        )
    )
    held = ctypes.create_string_buffer(program)
    described = struct.pack("<HxxxxxxQ", 6, ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, described) == 0  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


if __name__ == "__main__":
    forbid_dispatch()
    with Oracle() as oracle:
        libc_malloc = oracle.count(cases.through_libc_malloc)
        by_function = oracle.count(cases.raw_mmap)
        print(
            json.dumps(
                {
                    "system_calls": oracle.coverage.system_calls,
                    "heap": oracle.coverage.heap,
                    "mallocs": libc_malloc.allocations,
                    "complete": libc_malloc.steady.complete,
                    "listed": libc_malloc.steady.system_calls,
                    "mmap": {t.name: t.count for t in by_function.steady.tallies},
                }
            )
        )
