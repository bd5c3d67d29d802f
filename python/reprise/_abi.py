"""The C interface of libreprise.so. Written by tools/make_ctypes.py; do not edit."""
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t,
                    c_uint32, c_uint64, c_void_p)

ABI = 3
OK = 0
INVALID = 1
NOT_FOUND = 2
UNSUPPORTED = 3
OUT_OF_MEMORY = 4
BUSY = 5
CANCELLED = 6
DEVICE = 7
DEVICE_LOST = 8
INTERNAL = 9
SPECIAL = 1
SEEDED = 1
IGNORE_EOS = 2
KEEP_SPECIAL = 4
KEEP_STOP = 8
ANY_FORM = 0
JSON = 1
JSON_SCHEMA = 2
REGEX = 3
CHOICE = 4
EBNF = 5
STARTED = 0
TOKENS = 1
PROMPT_LOGPROBS = 2
FINISHED = 3
RUNNING = 0
STOP = 1
LENGTH = 2
TOOL_CALLS = 3
ENDED = 4
FAILED = 5


class reprise_text(Structure):
    pass


class reprise_hooks(Structure):
    pass


class reprise_scored(Structure):
    pass


class reprise_sampling(Structure):
    pass


class reprise_request(Structure):
    pass


class reprise_event(Structure):
    pass


reprise_text._fields_ = [
    ("data", c_char_p),
    ("size", c_size_t),
]
reprise_hooks._fields_ = [
    ("size", c_size_t),
    ("context", c_void_p),
    ("log", CFUNCTYPE(None, c_void_p, c_int32, reprise_text)),
    ("progress", CFUNCTYPE(c_int32, c_void_p, c_char_p, c_uint64, c_uint64)),
    ("thread", CFUNCTYPE(None, c_void_p, c_char_p)),
    ("event", CFUNCTYPE(None, c_void_p, POINTER(reprise_event))),
]
reprise_scored._fields_ = [
    ("id", c_int32),
    ("value", c_float),
]
reprise_sampling._fields_ = [
    ("size", c_size_t),
    ("temperature", c_double),
    ("top_p", c_double),
    ("min_p", c_double),
    ("repetition_penalty", c_double),
    ("presence_penalty", c_double),
    ("frequency_penalty", c_double),
    ("top_k", c_int64),
    ("max_tokens", c_int64),
    ("min_tokens", c_int64),
    ("seed", c_uint64),
    ("flags", c_uint32),
    ("logprobs", c_int32),
    ("prompt_logprobs", c_int32),
    ("stop", POINTER(reprise_text)),
    ("stop_ids", POINTER(c_int32)),
    ("bias", POINTER(reprise_scored)),
    ("stop_count", c_size_t),
    ("stop_id_count", c_size_t),
    ("bias_count", c_size_t),
    ("form", c_int32),
    ("form_text", reprise_text),
]
reprise_request._fields_ = [
    ("size", c_size_t),
    ("ids", POINTER(c_int32)),
    ("id_count", c_size_t),
    ("prompt", reprise_text),
    ("messages", reprise_text),
    ("chat", reprise_text),
    ("sampling", POINTER(reprise_sampling)),
    ("answers", c_int32),
    ("priority", c_int32),
    ("deadline_s", c_double),
    ("name", reprise_text),
    ("cache_salt", reprise_text),
    ("adapter", reprise_text),
    ("context", c_void_p),
]
reprise_event._fields_ = [
    ("size", c_size_t),
    ("request", c_uint64),
    ("context", c_void_p),
    ("kind", c_int32),
    ("answer", c_int32),
    ("finish", c_int32),
    ("text", reprise_text),
    ("reasoning", reprise_text),
    ("calls", reprise_text),
    ("stop", reprise_text),
    ("ids", POINTER(c_int32)),
    ("logprobs", POINTER(c_float)),
    ("top", POINTER(reprise_scored)),
    ("id_count", c_size_t),
    ("top_count", c_size_t),
    ("error", c_void_p),
    ("prompt_tokens", c_int64),
    ("cached_tokens", c_int64),
    ("completion_tokens", c_int64),
    ("reasoning_tokens", c_int64),
    ("queued_s", c_double),
    ("first_token_s", c_double),
    ("total_s", c_double),
]

# name: (result, arguments)
FUNCTIONS = {
    "reprise_error_code": (c_int32, [c_void_p]),
    "reprise_error_message": (c_char_p, [c_void_p]),
    "reprise_error_place": (c_char_p, [c_void_p]),
    "reprise_error_free": (None, [c_void_p]),
    "reprise_abi": (c_uint32, []),
    "reprise_version": (c_char_p, []),
    "reprise_blob_data": (c_void_p, [c_void_p]),
    "reprise_blob_size": (c_size_t, [c_void_p]),
    "reprise_blob_free": (None, [c_void_p]),
    "reprise_settings_new": (c_void_p, []),
    "reprise_settings_free": (None, [c_void_p]),
    "reprise_settings_set": (c_int32, [c_void_p,
        c_char_p,
        c_char_p,
        POINTER(c_void_p)]),
    "reprise_settings_json": (c_int32, [c_void_p,
        reprise_text,
        POINTER(c_void_p)]),
    "reprise_settings_table": (reprise_text, []),
    "reprise_open": (c_int32, [c_void_p,
        POINTER(reprise_hooks),
        POINTER(c_void_p),
        POINTER(c_void_p)]),
    "reprise_close": (None, [c_void_p]),
    "reprise_describe": (c_int32, [c_void_p,
        c_char_p,
        POINTER(c_void_p),
        POINTER(c_void_p)]),
    "reprise_encode": (c_int32, [c_void_p,
        reprise_text,
        c_uint32,
        POINTER(c_void_p),
        POINTER(c_void_p)]),
    "reprise_encode_chat": (c_int32, [c_void_p,
        reprise_text,
        reprise_text,
        POINTER(c_void_p),
        POINTER(c_void_p)]),
    "reprise_decode": (c_int32, [c_void_p,
        POINTER(c_int32),
        c_size_t,
        c_uint32,
        POINTER(c_void_p),
        POINTER(c_void_p)]),
    "reprise_sampling_init": (None, [POINTER(reprise_sampling),
        c_size_t]),
    "reprise_submit": (c_int32, [c_void_p,
        POINTER(reprise_request),
        POINTER(c_uint64),
        POINTER(c_void_p)]),
    "reprise_cancel": (None, [c_void_p,
        c_uint64]),
    "reprise_poll": (c_int32, [c_void_p,
        c_int32,
        POINTER(POINTER(POINTER(reprise_event))),
        POINTER(c_size_t),
        POINTER(c_void_p)]),
    "reprise_event_fd": (c_int, [c_void_p]),
    "reprise_step": (c_int32, [c_void_p,
        POINTER(c_int32),
        POINTER(c_void_p)]),
    "reprise_generate": (c_int32, [c_void_p,
        POINTER(reprise_request),
        POINTER(c_void_p),
        POINTER(c_void_p)]),
    "reprise_load_adapter": (c_int32, [c_void_p,
        reprise_text,
        reprise_text,
        POINTER(c_void_p)]),
    "reprise_unload_adapter": (c_int32, [c_void_p,
        reprise_text,
        POINTER(c_void_p)]),
    "reprise_embed": (c_int32, [c_void_p,
        POINTER(reprise_text),
        c_size_t,
        c_char_p,
        POINTER(c_size_t),
        POINTER(c_void_p),
        POINTER(c_void_p)]),
    "reprise_score": (c_int32, [c_void_p,
        reprise_text,
        POINTER(reprise_text),
        c_size_t,
        c_char_p,
        POINTER(c_void_p),
        POINTER(c_void_p)]),
}
