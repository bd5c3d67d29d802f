"""LLM: vLLM's class for work on a list of prompts."""
from __future__ import annotations

import threading
from typing import Any, Optional, Sequence, Union

from . import _abi
from .core import Core, Event, check_names
from .explain import Explanation
from .lora import Adapters, LoRARequest
from .outputs import (CompletionOutput, EmbeddingOutput, EmbeddingRequestOutput, Logprob, RequestMetrics, RequestOutput,
                      ScoringOutput, ScoringRequestOutput)
from .params import RequestOutputKind, SamplingParams
from .pictures import shown

# vLLM's keywords for settings.
NAMES = {"model": "model_path", "tokenizer": "tokenizer_path", "max_model_len": "context_length",
         "gpu_memory_utilization": "mem_fraction_static", "max_num_seqs": "max_running_requests",
         "max_num_batched_tokens": "chunked_prefill_size", "seed": "random_seed", "tensor_parallel_size": "tp_size",
         "data_parallel_size": "dp_size", "hf_overrides": "json_model_override_args", "block_size": "page_size"}
FINISH = {_abi.STOP: "stop", _abi.TOOL_CALLS: "stop", _abi.LENGTH: "length", _abi.ENDED: "abort", _abi.FAILED: "abort"}


def settings_of(keywords: dict) -> dict:
    """The settings that vLLM's keywords say."""
    out = {}
    for name, value in keywords.items():
        if name == "enable_prefix_caching":
            out["disable_radix_cache"] = None if value is None or value else True
        elif name == "enforce_eager":
            out["graph"] = "off" if value else None
        elif name == "trust_remote_code":
            out[name] = value or None
        elif name == "disable_log_stats":
            continue
        else:
            out[NAMES.get(name, name)] = value
    check_names({name: value for name, value in out.items() if value is not None})
    return out


def texts_of(given, name: str) -> list:
    """One text or several."""
    several = [given] if isinstance(given, str) else list(given)
    for one in several:
        if not isinstance(one, str):
            raise TypeError(f"{name}: a text or a list of texts is expected, not {type(one).__name__}")
    return several


class Tokenizer:
    def __init__(self, core: Core):
        self._core = core

    def encode(self, text: str, add_special_tokens: bool = True) -> list:
        return self._core.encode(text, add_special_tokens)

    def decode(self, ids, skip_special_tokens: bool = False) -> str:
        return self._core.decode([ids] if isinstance(ids, int) else list(ids), not skip_special_tokens)

    def apply_chat_template(self, messages, tokenize: bool = True, add_generation_prompt: bool = True, tools=None,
                            **template_kwargs) -> Union[list, str]:
        ids = self._core.encode_chat(messages, tools=tools, add_generation_prompt=add_generation_prompt,
                                     template_kwargs=template_kwargs or None)
        return ids if tokenize else self._core.decode(ids, True)


class Answers:
    """Collects the events of one request."""

    def __init__(self, core: Core, request_id: str, prompt: Optional[str], ids: list, params: SamplingParams,
                 adapter: Optional[LoRARequest] = None, chat: Optional[tuple] = None):
        self.core, self.params, self.chat = core, params, chat
        self.output = RequestOutput(request_id, prompt, ids, None, [CompletionOutput(i) for i in range(params.n)], False,
                                    RequestMetrics(), 0, adapter)
        for answer in self.output.outputs:
            answer.lora_request = adapter
        self.error: Optional[Exception] = None
        self._left = params.n
        if params.logprobs is not None:
            for o in self.output.outputs:
                o.logprobs, o.cumulative_logprob = [], 0.0

    def scores(self, token: int, own: float, top: list) -> dict:
        ranks = {other: rank for rank, (other, _) in enumerate(top, 1)}
        values = {token: own, **dict(top)}
        return {t: Logprob(v, ranks.get(t), self.core.decode([t], True)) for t, v in values.items()}

    def take(self, e: Event):
        out, answer = self.output, self.output.outputs[e.answer]
        if e.kind == _abi.STARTED:
            out.num_cached_tokens = e.cached_tokens
        elif e.kind == _abi.PROMPT_LOGPROBS:
            out.prompt_logprobs = [None] + [self.scores(token, own, top) for token, own, top in
                                            zip(e.ids[1:], e.logprobs[1:], e.top[1:] or [[]] * len(e.ids))]
        else:
            if self.params.detokenize:
                answer.text += e.text
            answer.token_ids += e.ids
            for token, own, top in zip(e.ids, e.logprobs, e.top or [[]] * len(e.ids)) if e.logprobs else ():
                answer._scores.append((own, top))
                if answer.logprobs is not None:
                    answer.logprobs.append(self.scores(token, own, top))
                    answer.cumulative_logprob += own
        if e.kind == _abi.FINISHED:
            answer.finish_reason, answer.stop_reason = FINISH[e.finish], e.stop or None
            out.metrics = RequestMetrics(e.queued_s, e.first_token_s, e.total_s)
            if e.finish == _abi.FAILED:
                self.error = e.error
            self._left -= 1
            out.finished = self._left == 0


class _Shown:
    """Messages with pictures, whose prompt the library makes."""

    def __init__(self, messages: list, options: dict):
        self.messages, self.options = messages, {**options, "separate_reasoning": False}


class LLM:
    """vLLM's keywords, and any other setting by its name with underscores."""

    def __init__(self, model: str, **settings: Any):
        self._core = Core(settings_of({"model": model, **settings}))
        self._adapters = Adapters(self._core)
        self._count = 0
        self._lock = threading.Lock()

    def _ids(self, prompt) -> tuple:
        if isinstance(prompt, dict) and prompt.get("multi_modal_data"):
            raise NotImplementedError("multi_modal_data is not supported: pictures stand in the messages of LLM.chat")
        if isinstance(prompt, str):
            return prompt, self._core.encode(prompt)
        if isinstance(prompt, _Shown):
            return None, None
        if isinstance(prompt, dict) and "prompt_token_ids" in prompt:
            return prompt.get("prompt"), list(prompt["prompt_token_ids"])
        if isinstance(prompt, dict) and "prompt" in prompt:
            return prompt["prompt"], self._core.encode(prompt["prompt"])
        if isinstance(prompt, (list, tuple)):
            return None, list(prompt)
        raise TypeError(f"a prompt is a text, a list of ids, or a dict with prompt_token_ids, not {type(prompt).__name__}")

    def _next_id(self) -> str:
        with self._lock:
            self._count += 1
            return str(self._count - 1)

    def generate(self, prompts, sampling_params: Union[None, SamplingParams, Sequence[SamplingParams]] = None, *,
                 use_tqdm: Any = True, lora_request=None, priority: Optional[Sequence[int]] = None) -> list:
        single = isinstance(prompts, (str, dict)) or (bool(prompts) and isinstance(prompts[0], int))
        several = [prompts] if single else list(prompts)
        given = sampling_params if isinstance(sampling_params, (list, tuple)) else [
            sampling_params or self.get_default_sampling_params()] * len(several)
        if len(given) != len(several):
            raise ValueError(f"{len(several)} prompts and {len(given)} sampling_params")
        adapters = list(lora_request) if isinstance(lora_request, (list, tuple)) else [lora_request] * len(several)
        if len(adapters) != len(several):
            raise ValueError(f"{len(several)} prompts and {len(adapters)} lora_request")
        made = []
        for params, prompt, adapter in zip(given, several, adapters):
            words, ids = self._ids(prompt)
            chat = (prompt.messages, prompt.options) if isinstance(prompt, _Shown) else None
            made.append(Answers(self._core, self._next_id(), words, ids, params, adapter, chat))
        return self._run(made, priority or [0] * len(made), use_tqdm)

    def _run(self, made: list, priority: Sequence[int], use_tqdm: Any) -> list:
        numbers, bar = [], _bar(use_tqdm, len(made))
        try:
            for answers, p in zip(made, priority):
                numbers.append(self._core.submit(answers.output.prompt_token_ids, answers.params, answers.take, priority=p,
                                                 adapter=self._adapters.name_of(answers.output.lora_request),
                                                 chat=answers.chat))
            done = 0
            while done < len(made):
                if not self._core.pump(100):
                    threading.Event().wait(0.001)  # another thread hands out our events, too
                now = sum(a.output.finished for a in made)
                if bar:
                    bar.update(now - done)
                done = now
        except BaseException:
            for number in numbers:
                self._core.cancel(number)
            raise
        finally:
            if bar:
                bar.close()
        for answers in made:
            if answers.error:
                raise answers.error
        return [answers.output for answers in made]

    def chat(self, messages, sampling_params=None, *, use_tqdm: Any = True, lora_request=None,
             chat_template: Optional[str] = None, add_generation_prompt: bool = True, continue_final_message: bool = False,
             tools=None, chat_template_kwargs: Optional[dict] = None) -> list:
        if chat_template is not None:
            raise NotImplementedError("templates are chosen when the model is loaded: LLM(..., chat_template=FILE)")
        if continue_final_message:
            raise NotImplementedError("continue_final_message is not supported")
        several = [messages] if messages and isinstance(messages[0], dict) else list(messages)
        prompts = []
        for given in several:
            made, shows = shown(given)
            options = {"tools": tools, "add_generation_prompt": add_generation_prompt,
                       "template_kwargs": chat_template_kwargs}
            if shows:
                if tools:
                    raise NotImplementedError("tools beside pictures are not supported here: a server takes both")
                prompts.append(_Shown(made, {k: v for k, v in options.items() if v is not None}))
                continue
            ids = self._core.encode_chat(made, **options)
            prompts.append({"prompt": self._core.decode(ids, True), "prompt_token_ids": ids})
        return self.generate(prompts, sampling_params, use_tqdm=use_tqdm, lora_request=lora_request)

    def embed(self, prompts, *, use_tqdm: Any = True) -> list:
        """A vector for each text, of a model that gives them: `outputs.embedding` of each."""
        return [EmbeddingRequestOutput(self._next_id(), EmbeddingOutput(row))
                for row in self._core.embed(texts_of(prompts, "prompts"))]

    def score(self, data_1, data_2, /, *, use_tqdm: Any = True) -> list:
        """`outputs.score` of each pair: of one text with each of the others, or of as many with one another."""
        first, second = texts_of(data_1, "data_1"), texts_of(data_2, "data_2")
        if len(first) == 1:
            scores = self._core.score(first[0], second)
        elif len(first) == len(second):
            scores = [self._core.score(a, [b])[0] for a, b in zip(first, second)]
        else:
            raise ValueError(f"data_1 has {len(first)} texts and data_2 {len(second)}; expected: one, or as many")
        return [ScoringRequestOutput(self._next_id(), ScoringOutput(score)) for score in scores]

    def get_tokenizer(self) -> Tokenizer:
        return Tokenizer(self._core)

    def get_default_sampling_params(self) -> SamplingParams:
        """Those of the model's publisher."""
        return SamplingParams(**self._core.describe("model")["sampling"])

    def explain(self) -> Explanation:
        return Explanation(self._core.describe("graph"))

    def describe(self, what: str):
        return self._core.describe(what)

    def shutdown(self):
        self._core.close()


def _bar(use_tqdm: Any, total: int):
    if not use_tqdm:
        return None
    if callable(use_tqdm):
        return use_tqdm(total=total, desc="Processed prompts")
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(total=total, desc="Processed prompts", disable=None)


def delta_of(out: RequestOutput, kind: RequestOutputKind, sent: list) -> RequestOutput:
    """A copy of what a stream shows now; `sent` has (characters, tokens) of each answer that it has shown."""
    import copy

    shown = copy.copy(out)
    shown.outputs = []
    for i, answer in enumerate(out.outputs):
        one = copy.copy(answer)
        begin = sent[i] if kind is RequestOutputKind.DELTA else (0, 0)
        one.text, one.token_ids = answer.text[begin[0]:], answer.token_ids[begin[1]:]
        one._scores = answer._scores[begin[1]:]
        if answer.logprobs is not None:
            one.logprobs = answer.logprobs[begin[1]:]
        sent[i] = (len(answer.text), len(answer.token_ids))
        shown.outputs.append(one)
    return shown
