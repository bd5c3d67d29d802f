"""What `reprise serve` sends to a collector, read by OpenTelemetry's own decoder (opentelemetry-proto)."""

import base64
import collections
import http.server
import json
import threading
import time
import unittest
import urllib.request

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from support import MODEL, Server, free_port, soon

CANARY = "xylophone"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
# Of protobuf's own JSON, in which bytes are base64; OTLP says hexadecimal digits (OTLP specification, "JSON Protobuf
# Encoding").
BYTES = {"traceId": 16, "spanId": 8, "parentSpanId": 8}


def decoded(body):
    """The request as a message of protobuf. Unknown members and wrong types are errors."""
    def converted(value, key=None):
        if key in BYTES:
            raw = bytes.fromhex(value)
            assert len(raw) == BYTES[key] and value == value.lower(), (key, value)
            return base64.b64encode(raw).decode()
        if isinstance(value, dict):
            return {k: converted(v, k) for k, v in value.items()}
        return [converted(v) for v in value] if isinstance(value, list) else value

    plain = json.loads(body)
    message = json_format.ParseDict(converted(plain), trace_service_pb2.ExportTraceServiceRequest())
    # Enumerations are numbers, 64-bit integers text.
    for resource in plain["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                assert isinstance(span["kind"], int) and isinstance(span["startTimeUnixNano"], str), span
    return message


class Collector(http.server.ThreadingHTTPServer):
    """Keeps what it is sent; answers with `status`, after `delay` seconds."""

    def __init__(self, port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.status, self.delay = 200, 0
        self.bodies, self.paths, self.types = [], [], []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def spans(self):
        return [span for body in list(self.bodies) for resource in decoded(body).resource_spans
                for scope in resource.scope_spans for span in scope.spans]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(self.server.delay)
        if self.server.status == 200:
            self.server.bodies.append(body)
        self.server.paths.append(self.path)
        self.server.types.append(self.headers["Content-Type"])
        answer = json_format.MessageToJson(trace_service_pb2.ExportTraceServiceResponse()).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        try:
            self.wfile.write(answer)
        except BrokenPipeError:
            pass

    def log_message(self, *args):
        pass


def value_of(any_value):
    kind = any_value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(v) for v in any_value.array_value.values]
    return getattr(any_value, kind)


def attributes(of):
    return {a.key: value_of(a.value) for a in of.attributes}


def chat(server, **more):
    headers = more.pop("headers", {})
    body = {"messages": [{"role": "user", "content": f"Say {CANARY}."}], "max_tokens": 8, "temperature": 0, **more}
    request = urllib.request.Request(server.url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


class Otlp(unittest.TestCase):
    def collector(self, port=0):
        out = Collector(port)
        self.addCleanup(out.server_close)
        self.addCleanup(out.shutdown)
        return out

    def server(self, *flags):
        out = Server("--context-length", "512", *flags)
        self.addCleanup(out.stop)
        return out

    def test_a_request_is_a_trace(self):
        collector = self.collector()
        server = self.server("--otlp-endpoint", collector.url)
        answer = json.loads(chat(server, top_p=0.5, headers={"traceparent": f"00-{TRACE}-{PARENT}-01"}))
        chat(server, stream=True, headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})  # not sampled
        self.assertTrue(soon(lambda: collector.bodies, 20))
        self.assertEqual((collector.paths, collector.types), (["/v1/traces"], ["application/json"]))
        message = decoded(collector.bodies[0])
        resource = attributes(message.resource_spans[0].resource)
        self.assertEqual(resource["service.name"], "reprise")
        scope = message.resource_spans[0].scope_spans[0]
        self.assertEqual(scope.scope.name, "reprise")
        version = attributes(scope.scope)["reprise.conventions.version"]
        self.assertEqual(scope.schema_url, f"https://opentelemetry.io/schemas/{version}")

        root, *children = scope.spans
        self.assertEqual((root.name, root.kind), (f"chat {MODEL}", trace_pb2.Span.SPAN_KIND_SERVER))
        self.assertEqual((root.trace_id.hex(), root.parent_span_id.hex()), (TRACE, PARENT))
        self.assertTrue(root.flags & trace_pb2.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)
        self.assertEqual([c.name for c in children], ["queue", "prefill", "decode"])
        times = [root.start_time_unix_nano]
        for child in children:
            self.assertEqual((child.trace_id, child.parent_span_id), (root.trace_id, root.span_id))
            times += [child.start_time_unix_nano, child.end_time_unix_nano]
        times.append(root.end_time_unix_nano)
        self.assertEqual(times, sorted(times))
        self.assertLess(abs(times[-1] / 1e9 - time.time()), 60)

        told = attributes(root)
        usage = answer["usage"]
        for key, want in {
            "gen_ai.operation.name": "chat", "gen_ai.provider.name": "reprise", "gen_ai.request.model": MODEL,
            "gen_ai.request.max_tokens": 8, "gen_ai.request.temperature": 0.0, "gen_ai.request.top_p": 0.5,
            "gen_ai.response.model": MODEL, "gen_ai.response.id": answer["id"],
            "gen_ai.response.finish_reasons": [answer["choices"][0]["finish_reason"]],
            "gen_ai.usage.input_tokens": usage["prompt_tokens"],
            "gen_ai.usage.output_tokens": usage["completion_tokens"],
            "http.response.status_code": 200,
        }.items():
            self.assertEqual(told[key], want, key)
        queued, first, whole = (told[f"gen_ai.latency.{n}"] for n in ("time_in_queue", "time_to_first_token", "e2e"))
        self.assertTrue(0 <= queued <= first <= whole < 60, (queued, first, whole))
        self.assertNotIn(CANARY.encode(), b"".join(collector.bodies))

    def test_what_waits_is_sent_at_the_end(self):
        collector = self.collector()
        server = self.server("--otlp-endpoint", collector.url + "/some/where")
        for _ in range(3):
            chat(server)
        self.assertEqual(server.stop(), 0)
        self.assertEqual(collections.Counter(s.name for s in collector.spans())[f"chat {MODEL}"], 3)
        self.assertEqual(set(collector.paths), {"/some/where"})
        self.assertEqual(len({s.trace_id for s in collector.spans()}), 3)

    def test_a_collector_that_comes_back_is_found(self):
        port = free_port()
        server = self.server("--otlp-endpoint", f"http://127.0.0.1:{port}")
        chat(server)
        self.assertTrue(soon(lambda: server.counter("reprise:otlp_dropped_total") == 4, 60))
        self.assertIn("spans are dropped", server.said())
        collector = self.collector(port)
        chat(server)
        self.assertTrue(soon(lambda: server.counter("reprise:otlp_sent_total") == 4, 60))
        self.assertIn("spans are taken again", server.said())
        self.assertEqual(len(collector.spans()), 4)

    def test_a_slow_collector_holds_nothing_up(self):
        collector = self.collector()
        collector.delay = 3600
        server = self.server("--otlp-endpoint", collector.url)
        begin = time.monotonic()
        chat(server)
        self.assertLess(time.monotonic() - begin, 30)
        self.assertTrue(soon(lambda: "spans are dropped" in server.said(), 60))
        begin = time.monotonic()
        self.assertEqual(server.stop(), 0)
        self.assertLess(time.monotonic() - begin, 10)


if __name__ == "__main__":
    unittest.main()
