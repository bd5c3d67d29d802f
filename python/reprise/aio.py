"""AsyncLLM: vLLM's asyncio face. One reader of the library's descriptor hands out the events of all requests."""
from __future__ import annotations

import asyncio
from typing import Any, AsyncIterator, Optional

from .core import Core, Error, Event
from .llm import LLM, Answers, Tokenizer, delta_of, settings_of
from .lora import Adapters
from .outputs import RequestOutput
from .params import RequestOutputKind, SamplingParams


class AsyncEngineArgs:
    def __init__(self, model: str, **settings: Any):
        self.settings = settings_of({"model": model, **settings})


class Pump:
    """Reads the events of a core in the event loop that runs now."""

    def __init__(self, core: Core):
        self._core, self._loop = core, None

    def start(self):
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        self.stop()
        loop.add_reader(self._core.event_fd, self._core.pump, 0)
        self._loop = loop

    def stop(self):
        if self._loop and not self._loop.is_closed():
            self._loop.remove_reader(self._core.event_fd)
        self._loop = None

    def submit(self, ids: list, params: SamplingParams, **more) -> tuple:
        """(number, queue of its events)."""
        self.start()
        queue: asyncio.Queue = asyncio.Queue()
        return self._core.submit(ids, params, queue.put_nowait, **more), queue

    async def events(self, number: int, queue: asyncio.Queue, answers: int) -> AsyncIterator[Event]:
        """The events of a request, which is cancelled when its reader goes away."""
        left = answers
        try:
            while left:
                event = await queue.get()
                left -= event.finish != 0
                yield event
        finally:
            if left:
                self._core.cancel(number)


class AsyncLLM:
    def __init__(self, args: AsyncEngineArgs):
        self._core = Core(args.settings)
        self._adapters = Adapters(self._core)
        self._pump = Pump(self._core)
        self._running: dict = {}

    @classmethod
    def from_engine_args(cls, engine_args: AsyncEngineArgs, **ignored: Any) -> "AsyncLLM":
        return cls(engine_args)

    async def generate(self, prompt, sampling_params: Optional[SamplingParams] = None, request_id: str = "", *,
                       priority: int = 0, lora_request=None) -> AsyncIterator[RequestOutput]:
        params = sampling_params or SamplingParams()
        words, ids = LLM._ids(self, prompt)
        answers = Answers(self._core, request_id, words, ids, params, lora_request)
        sent = [(0, 0)] * params.n
        number, queue = self._pump.submit(ids, params, priority=priority, name=request_id,
                                          adapter=self._adapters.name_of(lora_request))
        self._running[request_id] = number
        events = self._pump.events(number, queue, params.n)
        try:
            async for event in events:
                answers.take(event)
                if answers.error:
                    raise answers.error
                final = params.output_kind is RequestOutputKind.FINAL_ONLY
                if answers.output.finished or (event.ids and not final):
                    yield delta_of(answers.output, params.output_kind, sent)
        finally:
            self._running.pop(request_id, None)
            await events.aclose()

    async def abort(self, request_id: str):
        """The stream of that request ends with finish_reason "abort"."""
        if request_id in self._running:
            self._core.cancel(self._running[request_id])

    async def get_tokenizer(self) -> Tokenizer:
        return Tokenizer(self._core)

    def shutdown(self):
        self._pump.stop()
        self._core.close()


__all__ = ["AsyncEngineArgs", "AsyncLLM", "Error", "Pump"]
