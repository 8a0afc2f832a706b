"""Names for addresses: which well-known function stands at a constant address of this process."""

from __future__ import annotations

import ctypes
from pathlib import Path


class _DlInfo(ctypes.Structure):
    _fields_ = (
        ("dli_fname", ctypes.c_char_p),
        ("dli_fbase", ctypes.c_void_p),
        ("dli_sname", ctypes.c_char_p),
        ("dli_saddr", ctypes.c_void_p),
    )


_TRUSTED = ("libm.so", "libc.so", "libm-", "libc-")
"""Libraries whose exported names mean what the C standard says."""


def well_known_name(address: int) -> str | None:
    """Return the C library's symbol at exactly this address.

    Parameters
    ----------
    address : int
        An address in this process.

    Returns
    -------
    str or None
        None for any other library: a name alone says nothing about what its code does.

    Examples
    --------
    >>> well_known_name(0) is None
    True
    """
    try:
        dladdr = ctypes.CDLL(None).dladdr
    except (AttributeError, OSError):
        return None
    dladdr.restype = ctypes.c_int
    dladdr.argtypes = (ctypes.c_void_p, ctypes.POINTER(_DlInfo))
    info = _DlInfo()
    if not dladdr(address, ctypes.byref(info)) or info.dli_saddr != address:
        return None
    if not info.dli_fname or not info.dli_sname:
        return None
    library = Path(info.dli_fname.decode(errors="replace")).name
    return str(info.dli_sname.decode()) if library.startswith(_TRUSTED) else None
