"""Engine: SGLang's class for use without a server."""
from __future__ import annotations

import time
import uuid
from typing import Any, AsyncIterator, Iterator, Optional, Union

from . import _abi
from .aio import Pump
from .core import Core
from .llm import Answers, texts_of
from .params import SamplingParams, StructuredOutputsParams

# SGLang's fields of sampling_params for those of SamplingParams.
NAMES = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens", "sampling_seed": "seed",
         "no_stop_trim": "include_stop_str_in_output"}
# SGLang's names of settings.
SETTINGS = {"lora_paths": "lora_modules", "max_loras_per_batch": "max_loras"}
FORMS = {"json_schema": "json", "regex": "regex", "ebnf": "grammar"}


def params_of(given: Optional[dict], return_logprob: bool, top_logprobs_num: int, prompt_logprobs: bool) -> SamplingParams:
    fields: dict = {"temperature": None, "top_p": None, "top_k": None, "min_p": None, "repetition_penalty": None,
                    "max_tokens": 128}
    for name, value in (given or {}).items():
        if name in FORMS:
            if value is not None:
                fields["structured_outputs"] = StructuredOutputsParams(**{FORMS[name]: value})
        elif name not in SamplingParams.__dataclass_fields__ and name not in NAMES:
            raise TypeError(f"sampling_params: {name!r} is not known")
        else:
            fields[NAMES.get(name, name)] = value
    if return_logprob:
        fields["logprobs"] = top_logprobs_num
        fields["prompt_logprobs"] = top_logprobs_num if prompt_logprobs else None
    return SamplingParams(**fields)


class Engine:
    """Settings by their names with underscores: Engine(model_path=..., max_running_requests=8)."""

    def __init__(self, model_path: str, **settings: Any):
        if settings.get("trust_remote_code") is False:
            del settings["trust_remote_code"]
        settings = {SETTINGS.get(name, name): value for name, value in settings.items()}
        self._core = Core({"model_path": model_path, **settings})
        self._pump = Pump(self._core)

    def _jobs(self, prompt, input_ids, sampling_params, return_logprob, logprob_start_len, top_logprobs_num, rid,
              lora_path=None) -> tuple:
        """(whether there is a list, the answers)."""
        if (prompt is None) == (input_ids is None):
            raise ValueError("one of prompt and input_ids is expected")
        several = isinstance(prompt, list) or bool(input_ids) and isinstance(input_ids[0], (list, tuple))
        given = (prompt if prompt is not None else input_ids) if several else [prompt if prompt is not None else input_ids]
        params = sampling_params if isinstance(sampling_params, list) else [sampling_params] * len(given)
        rids = rid if isinstance(rid, list) else [rid if rid and not several else None] * len(given)
        adapters = lora_path if isinstance(lora_path, list) else [lora_path] * len(given)
        if len(adapters) != len(given):
            raise ValueError(f"{len(given)} prompts and {len(adapters)} lora_path")
        out = []
        for one, p, name, adapter in zip(given, params, rids, adapters):
            ids = self._core.encode(one) if isinstance(one, str) else list(one)
            top = top_logprobs_num or 0
            out.append(Answers(self._core, name or uuid.uuid4().hex, None, ids,
                               params_of(p, return_logprob, top, logprob_start_len is not None and logprob_start_len >= 0)))
            out[-1].began = time.monotonic()
            out[-1].adapter = adapter or ""
        return several, out

    def _shown(self, a: Answers) -> Union[dict, list]:
        answers = []
        for o in a.output.outputs:
            reason = None
            if o.finish_reason == "length":
                reason = {"type": "length", "length": len(o.token_ids)}
            elif o.finish_reason == "abort":
                reason = {"type": "abort", "message": "the request was cancelled"}
            elif o.finish_reason:
                matched = o.stop_reason if o.stop_reason is not None else (o.token_ids[-1] if o.token_ids else None)
                reason = {"type": "stop", "matched": matched}
            meta = {"id": a.output.request_id, "finish_reason": reason, "prompt_tokens": len(a.output.prompt_token_ids),
                    "completion_tokens": len(o.token_ids), "cached_tokens": a.output.num_cached_tokens,
                    "e2e_latency": time.monotonic() - a.began}
            if a.params.logprobs is not None:
                meta["output_token_logprobs"] = [(own, token, None) for token, (own, _) in zip(o.token_ids, o._scores)]
                meta["output_top_logprobs"] = [[(value, other, None) for other, value in top] for _, top in o._scores]
            if a.output.prompt_logprobs:
                ids = a.output.prompt_token_ids
                meta["input_token_logprobs"] = [(None, ids[0], None)] + [
                    (scores[token].logprob, token, None) for token, scores in zip(ids[1:], a.output.prompt_logprobs[1:])]
            answers.append({"text": o.text, "output_ids": list(o.token_ids), "meta_info": meta})
        return answers[0] if a.params.n == 1 else answers

    def _submit(self, a: Answers, priority, cache_salt) -> int:
        return self._core.submit(a.output.prompt_token_ids, a.params, a.take, priority=priority or 0,
                                 name=a.output.request_id, cache_salt=cache_salt or "", adapter=a.adapter)

    def _wait(self, answers: list):
        while not all(a.output.finished for a in answers):
            if not self._core.pump(100):
                time.sleep(0.001)
        for a in answers:
            if a.error:
                raise a.error

    def generate(self, prompt=None, sampling_params=None, input_ids=None, return_logprob: bool = False,
                 logprob_start_len: Optional[int] = None, top_logprobs_num: Optional[int] = None, stream: bool = False,
                 rid=None, priority: Optional[int] = None, cache_salt: Optional[str] = None,
                 lora_path=None):
        """A dict for a prompt, a list of them for a list; with stream=True an iterator of dicts, each with all so far."""
        several, answers = self._jobs(prompt, input_ids, sampling_params, return_logprob, logprob_start_len,
                                      top_logprobs_num, rid, lora_path)
        if stream:
            if several:
                raise NotImplementedError("a stream has one prompt; async_generate has several")
            return self._stream(answers[0], priority, cache_salt)
        numbers = []
        try:
            for a in answers:
                numbers.append(self._submit(a, priority, cache_salt))
            self._wait(answers)
        except BaseException:
            for number in numbers:
                self._core.cancel(number)
            raise
        shown = [self._shown(a) for a in answers]
        return shown if several else shown[0]

    def _stream(self, a: Answers, priority, cache_salt) -> Iterator[dict]:
        number, seen = self._submit(a, priority, cache_salt), -1
        try:
            while not a.output.finished:
                if not self._core.pump(100):
                    time.sleep(0.001)
                now = sum(len(o.token_ids) for o in a.output.outputs)
                if now != seen or a.output.finished:
                    seen = now
                    if now:
                        yield self._shown(a)
            if a.error:
                raise a.error
        finally:
            if not a.output.finished:
                self._core.cancel(number)

    async def async_generate(self, prompt=None, sampling_params=None, input_ids=None, return_logprob: bool = False,
                             logprob_start_len: Optional[int] = None, top_logprobs_num: Optional[int] = None,
                             stream: bool = False, rid=None, priority: Optional[int] = None,
                             cache_salt: Optional[str] = None, lora_path=None):
        """As generate(); with stream=True its result is an async iterator."""
        several, answers = self._jobs(prompt, input_ids, sampling_params, return_logprob, logprob_start_len,
                                      top_logprobs_num, rid, lora_path)
        if stream:
            if several:
                raise NotImplementedError("a stream has one prompt; start one for each")
            return self._async_stream(answers[0], priority, cache_salt)
        made = [self._pump.submit(a.output.prompt_token_ids, a.params, priority=priority or 0, name=a.output.request_id,
                                  cache_salt=cache_salt or "", adapter=a.adapter) for a in answers]
        for a, (number, queue) in zip(answers, made):
            async for event in self._pump.events(number, queue, a.params.n):
                a.take(event)
            if a.error:
                raise a.error
        shown = [self._shown(a) for a in answers]
        return shown if several else shown[0]

    async def _async_stream(self, a: Answers, priority, cache_salt) -> AsyncIterator[dict]:
        number, queue = self._pump.submit(a.output.prompt_token_ids, a.params, priority=priority or 0,
                                          name=a.output.request_id, cache_salt=cache_salt or "", adapter=a.adapter)
        async for event in self._pump.events(number, queue, a.params.n):
            a.take(event)
            if a.error:
                raise a.error
            if event.kind != _abi.STARTED:
                yield self._shown(a)

    def encode(self, prompt) -> Union[dict, list]:
        """The vector of a text, {"embedding": [...], "meta_info"}, or a list of them for a list."""
        shown = [{"embedding": row, "meta_info": {"id": uuid.uuid4().hex}}
                 for row in self._core.embed(texts_of(prompt, "prompt"))]
        return shown[0] if isinstance(prompt, str) else shown

    def rerank(self, prompt: list) -> list:
        """The scores of pairs [query, document], each as the "embedding" of a dict."""
        for pair in prompt:
            if len(texts_of(pair, "prompt")) != 2:
                raise ValueError("prompt: a list of pairs [query, document] is expected")
        return [{"embedding": self._core.score(query, [document])[0], "meta_info": {"id": uuid.uuid4().hex}}
                for query, document in prompt]

    def load_lora_adapter(self, lora_name: str, lora_path: str):
        """A LoRA adapter as PEFT saves it; generate(lora_path=NAME) chooses it."""
        self._core.load_adapter(lora_name, lora_path)

    def unload_lora_adapter(self, lora_name: str):
        self._core.unload_adapter(lora_name)

    def get_server_info(self) -> dict:
        return {**self._core.describe("model"), "settings": self._core.describe("settings"),
                "internal_states": [self._core.describe("counters")]}

    def shutdown(self):
        self._pump.stop()
        self._core.close()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *ignored):
        self.shutdown()
