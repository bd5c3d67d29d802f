"""What an answer is, under vLLM's names."""
from __future__ import annotations

import dataclasses
from typing import Any, Optional


@dataclasses.dataclass
class Logprob:
    logprob: float
    rank: Optional[int] = None  # 1 is the likeliest; None: beyond those that were asked for
    decoded_token: Optional[str] = None


@dataclasses.dataclass
class CompletionOutput:
    index: int
    text: str = ""
    token_ids: list = dataclasses.field(default_factory=list)
    cumulative_logprob: Optional[float] = None
    logprobs: Optional[list] = None  # a dict {id: Logprob} for each token
    finish_reason: Optional[str] = None  # "stop", "length", "abort"
    stop_reason: Any = None  # the stop string
    lora_request: Any = None  # LoRARequest
    _scores: list = dataclasses.field(default_factory=list, repr=False)  # (logprob, [(id, logprob), ...]) by token

    def finished(self) -> bool:
        return self.finish_reason is not None

    def logprobs_arrays(self):
        """numpy arrays (ids, values) of [tokens, 1 + n]: the token itself, then the n best; id -1 where there are fewer."""
        import numpy

        width = 1 + max((len(top) for _, top in self._scores), default=0)
        ids = numpy.full((len(self.token_ids), width), -1, numpy.int32)
        values = numpy.full((len(self.token_ids), width), numpy.nan, numpy.float32)
        for row, (token, (own, top)) in enumerate(zip(self.token_ids, self._scores)):
            ids[row, 0], values[row, 0] = token, own
            for column, (other, value) in enumerate(top, 1):
                ids[row, column], values[row, column] = other, value
        return ids, values


@dataclasses.dataclass
class RequestMetrics:
    queued_s: float = 0.0
    first_token_s: float = 0.0
    total_s: float = 0.0


@dataclasses.dataclass
class EmbeddingOutput:
    embedding: Any  # a numpy array of float32, or a list without numpy

    @property
    def hidden_size(self) -> int:
        return len(self.embedding)


@dataclasses.dataclass
class EmbeddingRequestOutput:
    request_id: str
    outputs: EmbeddingOutput
    finished: bool = True


@dataclasses.dataclass
class ScoringOutput:
    score: float


@dataclasses.dataclass
class ScoringRequestOutput:
    request_id: str
    outputs: ScoringOutput
    finished: bool = True


@dataclasses.dataclass
class RequestOutput:
    request_id: str
    prompt: Optional[str]
    prompt_token_ids: Optional[list]
    prompt_logprobs: Optional[list]
    outputs: list
    finished: bool
    metrics: Optional[RequestMetrics] = None
    num_cached_tokens: Optional[int] = None
    lora_request: Any = None  # LoRARequest
