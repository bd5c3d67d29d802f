"""libreprise.so with the types of its functions: loaded at the first call, once in a process."""
import ctypes
import functools
import json
import os
import pathlib

from . import _abi

FOLDER = pathlib.Path(__file__).resolve().parent


class Error(Exception):
    """Why a call failed. `code` is the library's word, "invalid"; `place` the setting or field at fault, or ""."""

    def __init__(self, code: str, message: str, place: str = ""):
        super().__init__(message)
        self.code, self.place = code, place


CODES = ("ok", "invalid", "not_found", "unsupported", "out_of_memory", "busy", "cancelled", "device", "device_lost",
         "internal")


@functools.lru_cache(maxsize=1)
def load():
    """REPRISE_LIBRARY names another file than the wheel's own."""
    file = os.environ.get("REPRISE_LIBRARY") or str(FOLDER / "_lib" / "libreprise.so.0")
    try:
        library = ctypes.CDLL(file)
    except OSError as problem:
        raise ImportError(f"libreprise cannot be loaded: {problem}") from None
    for name, (result, arguments) in _abi.FUNCTIONS.items():
        function = getattr(library, name, None)
        if function is None:
            raise ImportError(f"{file} is an older library: it has no {name}; this package needs ABI {_abi.ABI}")
        function.restype, function.argtypes = result, arguments
    return library


def version() -> str:
    return load().reprise_version().decode()


def abi() -> int:
    return load().reprise_abi()


def error_of(handle) -> Error:
    library = load()
    return Error(CODES[library.reprise_error_code(handle)], library.reprise_error_message(handle).decode(),
                 library.reprise_error_place(handle).decode())


def call(name, *arguments):
    """A function whose last argument is the place for an error, which is raised."""
    library, handle = load(), ctypes.c_void_p()
    code = getattr(library, name)(*arguments, ctypes.byref(handle))
    if code == _abi.OK:
        return
    try:
        raise error_of(handle) if handle else Error(CODES[code], "there is no memory left")
    finally:
        library.reprise_error_free(handle)


def text(value) -> "_abi.reprise_text":
    data = value.encode() if isinstance(value, str) else value
    return _abi.reprise_text(data, len(data))



def blob(name, *arguments) -> bytes:
    """A function that gives a blob, as bytes."""
    library, handle = load(), ctypes.c_void_p()
    call(name, *arguments, ctypes.byref(handle))
    try:
        return ctypes.string_at(library.reprise_blob_data(handle), library.reprise_blob_size(handle))
    finally:
        library.reprise_blob_free(handle)


@functools.lru_cache(maxsize=1)
def table() -> dict:
    """The settings by their names as keywords: {"max_running_requests": {"name", "type", "help", ...}}."""
    t = load().reprise_settings_table()
    rows = json.loads(ctypes.string_at(t.data, t.size))
    return {row["name"].replace("-", "_"): row for row in rows}
