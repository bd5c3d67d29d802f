"""Explanation: what was compiled and why, as objects."""
from __future__ import annotations

from typing import Any


class Node(dict):
    """A JSON object whose members are attributes too: explanation.decode.passes[0].name."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no {name!r}; there are {', '.join(self)}") from None


def nodes(value: Any) -> Any:
    if isinstance(value, dict):
        return Node({name: nodes(member) for name, member in value.items()})
    return [nodes(member) for member in value] if isinstance(value, list) else value


class Explanation:
    """`decode` and `prefill`: passes, pieces, kernels, sizes, memory, decisions, as `reprise graph explain --json`."""

    def __init__(self, described: dict):
        self.decode, self.prefill = nodes(described["decode"]), nodes(described["prefill"])

    def fused(self, phase: str = "decode") -> dict:
        """How often each pass changed the graph."""
        return {p.name: p.matched for p in getattr(self, phase).passes if p.matched}

    def __repr__(self):
        return f"Explanation(decode={self.fused('decode')}, prefill={self.fused('prefill')})"
