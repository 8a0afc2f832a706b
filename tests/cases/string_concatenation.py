"""Joining two strings makes a third."""


def ENTRY(a, b):
    return len(a + b)  # ! allocate


SIGNATURE = "(unicode_type, unicode_type)"
