"""Large language models in this process: vLLM's LLM, SGLang's Engine, and asyncio streams over libreprise.so.

Nothing is compiled for an interpreter, and neither torch nor transformers is imported. docs/python.md starts from a task.
"""
from .aio import AsyncEngineArgs, AsyncLLM
from .core import Core, Error, Event
from .engine import Engine
from .explain import Explanation
from .library import abi, version
from .llm import LLM, Tokenizer
from .lora import LoRARequest
from .outputs import (CompletionOutput, EmbeddingOutput, EmbeddingRequestOutput, Logprob, RequestOutput, ScoringOutput,
                      ScoringRequestOutput)
from .params import RequestOutputKind, SamplingParams, StructuredOutputsParams

__version__ = "0.1.0"
__all__ = ["AsyncEngineArgs", "AsyncLLM", "CompletionOutput", "Core", "EmbeddingOutput", "EmbeddingRequestOutput", "Engine", "Error",
           "Event", "Explanation", "LLM", "LoRARequest", "Logprob", "RequestOutput", "RequestOutputKind", "SamplingParams",
           "ScoringOutput", "ScoringRequestOutput", "StructuredOutputsParams", "Tokenizer", "abi", "version"]
