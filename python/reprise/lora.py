"""LoRARequest: vLLM's class, and how an engine finds the adapter that one names."""
from __future__ import annotations

import dataclasses
import threading
from typing import Optional

from .core import Core, Error


@dataclasses.dataclass(frozen=True)
class LoRARequest:
    """An adapter by name: a folder that PEFT saved. The id is vLLM's; adapters are told apart by their names."""

    lora_name: str
    lora_int_id: int
    lora_path: str = ""

    def __post_init__(self):
        if self.lora_int_id < 1:
            raise ValueError(f"lora_int_id is {self.lora_int_id}; allowed: 1 and more")
        if not self.lora_name or not self.lora_path:
            raise ValueError("lora_name and lora_path are expected")

    @property
    def name(self) -> str:
        return self.lora_name

    @property
    def path(self) -> str:
        return self.lora_path


class Adapters:
    """The adapters that requests have named, loaded when one first does; the one unused for longest makes room."""

    def __init__(self, core: Core):
        self._core = core
        self._paths: dict = {}  # name: path; the last one used stands last
        self._lock = threading.Lock()

    def name_of(self, request: Optional[LoRARequest]) -> str:
        """The adapter's name once it is loaded; "" without one."""
        if request is None:
            return ""
        name = request.lora_name
        with self._lock:
            known = self._paths.pop(name, None)
            if known is not None and known != request.lora_path:
                self._core.unload_adapter(name)
                known = None
            if known is None:
                self._load(name, request.lora_path)
            self._paths[name] = request.lora_path
        return name

    def _load(self, name: str, path: str):
        while True:
            try:
                return self._core.load_adapter(name, path)
            except Error as e:
                if e.code != "busy" or not self._paths:
                    raise
            oldest = next(iter(self._paths))
            self._core.unload_adapter(oldest)
            del self._paths[oldest]
