"""Lets a program tell sublet the priority of its buffers; see include/sublet.h.

    import sublet
    sublet.set_priority(weights, 5)     # a tensor of PyTorch, an array of CuPy, or an address

Copy this file or put its folder on PYTHONPATH; it needs nothing else. If the program runs without
sublet, set_priority() does nothing."""

import ctypes

_entry = getattr(ctypes.CDLL(None), "sublet_buffer_priority", None)
if _entry is not None:
    _entry.argtypes = (ctypes.c_uint64, ctypes.c_int)
    _entry.restype = ctypes.c_int


def is_here():
    """Returns True if the program runs under sublet."""
    return _entry is not None


def _address(buffer):
    if isinstance(buffer, int):
        return buffer
    if hasattr(buffer, "data_ptr"):  # PyTorch
        return buffer.data_ptr()
    if hasattr(buffer, "__cuda_array_interface__"):  # CuPy, numba
        return buffer.__cuda_array_interface__["data"][0]
    raise TypeError(f"neither an address nor an array on a GPU: {type(buffer).__name__}")


def set_priority(buffer, priority):
    """Sets the priority of the allocation that contains the buffer. Returns False if no allocation of more than 1 MiB
    contains it."""
    address = _address(buffer)
    return _entry is None or _entry(address, priority) == 0
