"""Reads an HTML report or a trace as strictly as a browser's neighbours would, and fails where it is broken.

usage: check_report.py html FILE | trace FILE RANKS
"""

import html.parser
import json
import sys
import xml.etree.ElementTree as ElementTree

VOID = {"meta", "input", "br", "hr", "link", "img"}
PARTS = ["time", "passes", "misses", "pieces", "memory", "launches"]


class Report(html.parser.HTMLParser):
    """Every element is closed in order, ids are unique, nothing is loaded from elsewhere."""

    def __init__(self):
        super().__init__()
        self.open = []
        self.ids = set()
        self.count = {}
        self.svg = []
        self.words = []

    def handle_starttag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                assert value not in self.ids, f"id {value} twice"
                self.ids.add(value)
            assert name not in ("src", "onclick"), f"{tag} has {name}"
            if name == "href":
                assert value.startswith("#"), f"a link to {value}"

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]} in line {self.getpos()}"
        self.open.pop()

    def handle_data(self, data):
        self.words.append(data)


def check_html(path, parts):
    text = open(path, encoding="utf-8").read()
    report = Report()
    report.feed(text)
    report.close()
    assert not report.open, report.open
    for part in parts:
        assert part in report.ids, f"part {part} is missing"
    assert "http" not in text, "something from elsewhere"
    # Well-formed XML apart from script and style, whose text is none.
    body = text[text.index("<body>") : text.index("<script>")] + "</body>"
    root = ElementTree.fromstring(body.replace("&nbsp;", " "))
    rects = len(list(root.iter("rect")))
    assert rects > 20, rects
    words = "".join(report.words)
    for word in ("the graph as traced", "the graph that runs", "pack_parallel_linears", "layer 0"):
        assert word in words, word
    print(json.dumps({"bytes": len(text), "rects": rects, "details": report.count["details"]}))


def check_trace(path, threads):
    trace = json.load(open(path, encoding="utf-8"))
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    step = [e for e in events if e["cat"] == "step"]
    assert len(step) == 1, step
    kernels = 0
    for thread in range(threads):
        mine = sorted((e for e in events if e["tid"] == thread), key=lambda e: e["ts"])
        kernels = sum(e["cat"] == "kernel" for e in mine)
        assert kernels > 10, f"thread {thread}: {kernels} kernels"
        assert any(e["cat"] == "wait" for e in mine), f"thread {thread} never waits"
        end = step[0]["ts"]
        for e in mine:
            assert e["dur"] >= 0 and e["ts"] >= end - 1e-3, f"thread {thread}: {e} begins before {end}"
            end = e["ts"] + e["dur"]
        assert end <= step[0]["ts"] + step[0]["dur"] + 1e-3
        # Kernels, waits and the way in and out are all of the step.
        total = sum(e["dur"] for e in mine)
        assert total <= step[0]["dur"] + 1e-3
        # Rank 0 drives the step; the others may sleep until they are called.
        if thread == 0:
            assert total >= 0.2 * step[0]["dur"], f"{total} us of {step[0]['dur']} us are explained"
    for e in events:
        if e["cat"] == "kernel":
            for key in ("node", "op", "kernel", "shapes", "bytes", "pct_of_limit"):
                assert key in e["args"], f"{key} is missing in {e}"
    names = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert names == {f"thread {r}" for r in range(threads)} | {"step"}, names
    print(json.dumps({"events": len(events), "kernels": kernels}))


if __name__ == "__main__":
    if sys.argv[1] == "html":
        check_html(sys.argv[2], [p for p in PARTS if p != "time" or "--no-timing" not in sys.argv])
    else:
        check_trace(sys.argv[2], int(sys.argv[3]))
