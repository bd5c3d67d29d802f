"""SamplingParams: vLLM's names and defaults. What this engine does not do raises unless it holds its default."""
from __future__ import annotations

import dataclasses
import enum
import json
from typing import Any, Optional, Sequence, Union


class RequestOutputKind(enum.Enum):
    CUMULATIVE = 0  # everything so far
    DELTA = 1  # what is new
    FINAL_ONLY = 2


@dataclasses.dataclass
class StructuredOutputsParams:
    """What the answer is held to; one of these."""

    json: Optional[Union[str, dict]] = None
    regex: Optional[str] = None
    choice: Optional[Sequence[str]] = None
    grammar: Optional[str] = None
    json_object: Optional[bool] = None


@dataclasses.dataclass
class SamplingParams:
    n: int = 1
    temperature: Optional[float] = 1.0
    top_p: Optional[float] = 1.0
    top_k: Optional[int] = 0
    min_p: Optional[float] = 0.0
    seed: Optional[int] = None
    stop: Union[None, str, Sequence[str]] = None
    stop_token_ids: Optional[Sequence[int]] = None
    ignore_eos: bool = False
    max_tokens: Optional[int] = 16
    min_tokens: int = 0
    logprobs: Optional[int] = None
    prompt_logprobs: Optional[int] = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: Optional[float] = 1.0
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    logit_bias: Optional[dict] = None
    allowed_token_ids: Optional[Sequence[int]] = None
    bad_words: Optional[Sequence[str]] = None
    logits_processors: Optional[Sequence[Any]] = None
    truncate_prompt_tokens: Optional[int] = None
    structured_outputs: Union[None, dict, StructuredOutputsParams] = None
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE

    def __post_init__(self):
        for name, default in (("allowed_token_ids", None), ("bad_words", None), ("logits_processors", None),
                              ("truncate_prompt_tokens", None), ("spaces_between_special_tokens", True)):
            value = getattr(self, name)
            if value != default and value not in ([], ()):
                raise NotImplementedError(f"SamplingParams: {name} is not supported; leave it at {default!r}")
        if self.n < 1:
            raise ValueError(f"n must be at least 1, got {self.n}")
        if isinstance(self.structured_outputs, dict):
            self.structured_outputs = StructuredOutputsParams(**self.structured_outputs)

    def clone(self) -> "SamplingParams":
        return dataclasses.replace(self)

    @property
    def stops(self) -> list:
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())

    def form(self, abi) -> tuple:
        """(kind, text) of the C interface."""
        s = self.structured_outputs
        if s is None:
            return abi.ANY_FORM, ""
        names = ("json", "regex", "choice", "grammar", "json_object")
        given = [name for name in names if getattr(s, name) not in (None, False)]
        if len(given) != 1:
            raise ValueError(f"structured_outputs: one of {', '.join(names)} is expected, not {given}")
        if s.json is not None:
            return abi.JSON_SCHEMA, s.json if isinstance(s.json, str) else json.dumps(s.json)
        if s.regex is not None:
            return abi.REGEX, s.regex
        if s.choice is not None:
            return abi.CHOICE, json.dumps(list(s.choice))
        if s.grammar is not None:
            return abi.EBNF, s.grammar
        return abi.JSON, ""
