"""Core: one engine of the library. The faces of vLLM and SGLang are written over it."""
from __future__ import annotations

import atexit
import ctypes
import difflib
import json
import math
import os
import struct
import sys
import threading
import weakref
from typing import Any, Callable, NamedTuple, Optional

from . import _abi, library
from .library import Error, blob, call, text
from .params import SamplingParams

_open = weakref.WeakSet()
_EVENTS = ctypes.POINTER(ctypes.POINTER(ctypes.POINTER(_abi.reprise_event)))


@atexit.register
def _close_all():
    for core in list(_open):
        core.close()


class Event(NamedTuple):
    """A copy of a reprise_event."""

    request: int
    kind: int
    answer: int
    finish: int
    text: str
    stop: str
    ids: list
    logprobs: list
    top: list  # for each id [(id, logprob), ...]
    error: Optional[Error]
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    queued_s: float
    first_token_s: float
    total_s: float


def _layout() -> tuple:
    """reprise_event for struct, and the place of each member in what it gives; reading members by ctypes takes longer."""
    codes = {ctypes.c_int32: "i", ctypes.c_int64: "q", ctypes.c_uint64: "Q", ctypes.c_size_t: "N", ctypes.c_double: "d",
             ctypes.c_void_p: "P"}
    form, places = "@", {}
    for name, kind in _abi.reprise_event._fields_:
        places[name] = len(form) - 1
        form += "PN" if kind is _abi.reprise_text else codes.get(kind, "P")
    return struct.Struct(form), places


_EVENT, _AT = _layout()
_REQUEST, _KIND, _ANSWER, _FINISH, _TEXT, _STOP, _IDS, _LOGPROBS, _TOP, _IDS_COUNT, _TOP_COUNT, _ERROR = (
    _AT[name] for name in ("request", "kind", "answer", "finish", "text", "stop", "ids", "logprobs", "top", "id_count",
                           "top_count", "error"))
_COUNTS = slice(_AT["prompt_tokens"], _AT["completion_tokens"] + 1)
_TIMES = slice(_AT["queued_s"], _AT["total_s"] + 1)


# All of the process's memory, from address 0 on: events are read where they lie, without a call of ctypes for each
# part of them.
_memory = memoryview((ctypes.c_char * sys.maxsize).from_address(0)).cast("B")
_unpack, _one_id = _EVENT.unpack_from, struct.Struct("@i").unpack_from


def _copy(address: int) -> Event:
    e = _unpack(_memory, address)
    count = e[_IDS_COUNT]
    ids, logprobs, top = [], [], []
    if count:
        at = e[_IDS]
        ids = [*_one_id(_memory, at)] if count == 1 else _memory[at:at + 4 * count].cast("i").tolist()
        if e[_LOGPROBS]:
            logprobs = _memory[e[_LOGPROBS]:e[_LOGPROBS] + 4 * count].cast("f").tolist()
        width = e[_TOP_COUNT]
        if width and e[_TOP]:
            flat = struct.unpack_from("if" * (count * width), _memory, e[_TOP])
            pairs = list(zip(flat[::2], flat[1::2]))
            top = [[p for p in pairs[i * width:(i + 1) * width] if p[0] >= 0] for i in range(count)]
    text, stop = "", ""
    if e[_TEXT + 1]:
        text = str(_memory[e[_TEXT]:e[_TEXT] + e[_TEXT + 1]], "utf-8", "replace")
    if e[_STOP + 1]:
        stop = str(_memory[e[_STOP]:e[_STOP] + e[_STOP + 1]], "utf-8", "replace")
    # What Event() does, without a call of Python's.
    return tuple.__new__(Event, (e[_REQUEST], e[_KIND], e[_ANSWER], e[_FINISH], text, stop, ids, logprobs, top,
                                 library.error_of(e[_ERROR]) if e[_ERROR] else None, *e[_COUNTS], *e[_TIMES]))


def text_of(value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, dict) else str(value)


def check_names(settings: dict):
    known = library.table()
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, 3)
            raise TypeError(f"{name!r} is not a setting" + (f"; did you mean {', '.join(near)}?" if near else ""))


class Core:
    """Any thread. `settings` are those of docs/configuration.md with underscores; None leaves one out."""

    def __init__(self, settings: dict):
        settings = {name: value for name, value in settings.items() if value is not None}
        check_names(settings)
        self._handle = ctypes.c_void_p()
        self._lock = threading.Lock()  # of the next two
        self._handlers: dict = {}
        self._early: dict = {}  # events of requests whose submission has not returned yet
        self._polling = threading.Lock()
        made = library.load().reprise_settings_new()
        try:
            for name, value in settings.items():
                for one in value if isinstance(value, (list, tuple)) else [value]:
                    call("reprise_settings_set", made, name.encode(), text_of(one).encode())
            call("reprise_open", made, None, ctypes.byref(self._handle))
        finally:
            library.load().reprise_settings_free(made)
        self.event_fd = library.load().reprise_event_fd(self._handle)
        self._pid = os.getpid()
        _open.add(self)

    def close(self):
        handle, self._handle = self._handle, ctypes.c_void_p()
        if handle:
            _open.discard(self)
            if self._pid == os.getpid():  # a forked child has no engine
                library.load().reprise_close(handle)

    __del__ = close

    def _open_handle(self):
        if not self._handle:
            raise Error("invalid", "the engine was closed")
        return self._handle

    def encode(self, what: str, special: bool = True) -> list:
        return list(memoryview(blob("reprise_encode", self._open_handle(), text(what), int(special))).cast("i"))

    def decode(self, ids, special: bool = False) -> str:
        ids = (ctypes.c_int32 * len(ids))(*ids)
        return blob("reprise_decode", self._open_handle(), ids, len(ids), int(special)).decode(errors="replace")

    def encode_chat(self, messages, **options) -> list:
        options = {name: value for name, value in options.items() if value is not None}
        return list(memoryview(blob("reprise_encode_chat", self._open_handle(), text(json.dumps(messages)),
                                    text(json.dumps(options)))).cast("i"))

    def describe(self, what: str):
        found = blob("reprise_describe", self._open_handle(), what.encode()).decode()
        return found if what == "metrics" else json.loads(found)

    def submit(self, ids, params: SamplingParams, handler: Callable[[Event], Any], *, priority: int = 0,
               name: str = "", cache_salt: str = "", adapter: str = "", chat: Optional[tuple] = None) -> int:
        """`handler` gets each event, on a thread that is in pump(). `chat`: messages and options in place of ids."""
        sampling, request = _abi.reprise_sampling(), _abi.reprise_request()
        library.load().reprise_sampling_init(ctypes.byref(sampling), ctypes.sizeof(sampling))
        keep = _fill(sampling, params)
        request.size = ctypes.sizeof(request)
        if chat:
            request.messages, request.chat = (text(json.dumps(one)) for one in chat)
        else:
            request.ids = (ctypes.c_int32 * len(ids))(*ids)
            request.id_count = len(ids)
        request.sampling = ctypes.pointer(sampling)
        request.answers, request.priority = params.n, priority
        request.name, request.cache_salt, request.adapter = text(name), text(cache_salt), text(adapter)
        number = ctypes.c_uint64()
        call("reprise_submit", self._open_handle(), ctypes.byref(request), ctypes.byref(number))
        del keep
        with self._lock:
            self._handlers[number.value] = [handler, params.n]
            early = self._early.pop(number.value, [])
        self._tell(early)
        return number.value

    def embed(self, texts: list) -> list:
        """A vector for each text: rows of a numpy array, or lists without numpy."""
        dimension = ctypes.c_size_t()
        found = blob("reprise_embed", self._open_handle(), *_texts(texts), None, ctypes.byref(dimension))
        return floats_of(found, dimension.value)

    def score(self, query: str, documents: list) -> list:
        """How well each document answers the query."""
        return list(memoryview(blob("reprise_score", self._open_handle(), text(query), *_texts(documents), None)).cast("f"))

    def load_adapter(self, name: str, path: str):
        """A LoRA adapter as PEFT saves it, for requests that name it."""
        call("reprise_load_adapter", self._open_handle(), text(name), text(path))

    def unload_adapter(self, name: str):
        call("reprise_unload_adapter", self._open_handle(), text(name))

    def cancel(self, number: int):
        if self._handle:
            library.load().reprise_cancel(self._handle, number)

    def _tell(self, events: list):
        told = []
        with self._lock:
            for event in events:
                known = self._handlers.get(event.request)
                if known is None:
                    self._early.setdefault(event.request, []).append(event)
                    continue
                if event.kind == _abi.FINISHED:
                    known[1] -= 1
                    if known[1] == 0:
                        del self._handlers[event.request]
                told.append((known[0], event))
        for handler, event in told:
            handler(event)

    def pump(self, timeout_ms: int) -> bool:
        """Hands out the events that wait. False: another thread does that."""
        if not self._polling.acquire(blocking=False):
            return False
        try:
            events = ctypes.POINTER(ctypes.c_void_p)()
            count = ctypes.c_size_t()
            call("reprise_poll", self._open_handle(), timeout_ms, ctypes.cast(ctypes.byref(events), _EVENTS),
                 ctypes.byref(count))
            copies = [_copy(address) for address in events[:count.value]]
        finally:
            self._polling.release()
        self._tell(copies)
        return True


def _texts(texts: list) -> tuple:
    """(array, count) for the library; the array holds what it points to."""
    return (_abi.reprise_text * len(texts))(*[text(one) for one in texts]), len(texts)


def floats_of(data: bytes, width: int) -> list:
    try:
        import numpy
    except ImportError:
        values = list(memoryview(data).cast("f"))
        return [values[i:i + width] for i in range(0, len(values), width)]
    return list(numpy.frombuffer(data, numpy.float32).reshape(-1, width).copy())


def _fill(s, p: SamplingParams) -> list:
    """What has to stay until the submission has returned."""
    for name in ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"):
        value = getattr(p, name)
        setattr(s, name, math.nan if value is None else value)
    if p.top_k is not None:
        s.top_k = p.top_k
    s.max_tokens = (1 << 40) if p.max_tokens is None else p.max_tokens
    s.min_tokens = p.min_tokens
    if p.seed is not None:
        s.seed, s.flags = p.seed % (1 << 64), _abi.SEEDED
    s.flags |= (_abi.IGNORE_EOS * bool(p.ignore_eos) | _abi.KEEP_SPECIAL * (not p.skip_special_tokens)
                | _abi.KEEP_STOP * bool(p.include_stop_str_in_output))
    s.logprobs = -1 if p.logprobs is None else p.logprobs
    s.prompt_logprobs = -1 if p.prompt_logprobs is None else p.prompt_logprobs
    stops = [word.encode() for word in p.stops]
    s.stop, s.stop_count = (_abi.reprise_text * len(stops))(*[_abi.reprise_text(w, len(w)) for w in stops]), len(stops)
    ids = list(p.stop_token_ids or ())
    s.stop_ids, s.stop_id_count = (ctypes.c_int32 * len(ids))(*ids), len(ids)
    bias = [_abi.reprise_scored(int(token), float(value)) for token, value in (p.logit_bias or {}).items()]
    s.bias, s.bias_count = (_abi.reprise_scored * len(bias))(*bias), len(bias)
    s.form, words = p.form(_abi)
    s.form_text = text(words)
    return [stops, s.stop, s.stop_ids, s.bias]
