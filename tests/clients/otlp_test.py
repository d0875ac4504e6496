"""Spans of `fathom serve`, read by OpenTelemetry's own types (opentelemetry-proto from PyPI) as a collector reads them."""
import http.server
import json
import threading
import time
import unittest
import urllib.request

import skipping
import venv_python

venv_python.enter("otlp")

from google.protobuf import json_format  # noqa: E402
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest  # noqa: E402
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status  # noqa: E402
from serving import PATIENCE_SECONDS, Serving  # noqa: E402

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector(http.server.BaseHTTPRequestHandler):
    taken = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.taken.append((self.path, self.headers["content-type"], json.loads(body)))
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


def ids_of(span):
    """The ids, which OTLP's JSON has as hexadecimal digits and protobuf's own JSON would have in base64."""
    return [span.pop(name) for name in ("traceId", "spanId", "parentSpanId") if name in span]


class OtlpTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
        cls.addClassCleanup(collector.server_close)
        cls.addClassCleanup(collector.shutdown)
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        cls.server = Serving("--otlp-traces-endpoint", f"http://127.0.0.1:{collector.server_address[1]}")
        cls.addClassCleanup(cls.server.close)

    def ask(self, **headers):
        body = {"model": "default", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
        request = urllib.request.Request(self.server.url + "/v1/chat/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json", **headers})
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return json.load(answer)

    def test_a_collector_reads_the_spans_of_a_request(self):
        answer = self.ask(traceparent=f"00-{TRACE}-{PARENT}-01", tracestate="vendor=1")
        end = time.monotonic() + PATIENCE_SECONDS
        while not Collector.taken and time.monotonic() < end:
            time.sleep(0.05)
        (path, kind, body), = Collector.taken
        self.assertEqual((path, kind), ("/v1/traces", "application/json"))
        ids = [ids_of(span) for span in body["resourceSpans"][0]["scopeSpans"][0]["spans"]]
        for trace, span, _ in ids:
            self.assertEqual(trace, TRACE)
            self.assertEqual(len(bytes.fromhex(span)), 8)
        self.assertEqual([parent for _, _, parent in ids], [PARENT, *3 * [ids[0][1]]])
        self.assertEqual(len({span for _, span, _ in ids}), len(ids))
        # Refuses every field that it does not know and every value of another type.
        request = json_format.ParseDict(body, ExportTraceServiceRequest())
        resource = {one.key: one.value.string_value for one in request.resource_spans[0].resource.attributes}
        self.assertEqual(resource["service.name"], "fathom")
        whole, *parts = request.resource_spans[0].scope_spans[0].spans
        self.assertEqual([span.name for span in parts], ["queue", "prompt", "answer"])
        self.assertEqual((whole.kind, whole.trace_state), (Span.SPAN_KIND_SERVER, "vendor=1"))
        self.assertEqual({span.kind for span in parts}, {Span.SPAN_KIND_INTERNAL})
        self.assertEqual(whole.status.code, Status.STATUS_CODE_UNSET)
        self.assertLess(abs(whole.end_time_unix_nano / 1e9 - time.time()), PATIENCE_SECONDS)
        edges = [whole.start_time_unix_nano] + [span.end_time_unix_nano for span in parts]
        self.assertEqual([span.start_time_unix_nano for span in parts], edges[:-1])
        self.assertEqual((edges, edges[-1]), (sorted(edges), whole.end_time_unix_nano))
        attributes = {one.key: one.value for one in whole.attributes}
        self.assertEqual(attributes["gen_ai.usage.prompt_tokens"].int_value, answer["usage"]["prompt_tokens"])
        self.assertEqual(attributes["gen_ai.usage.completion_tokens"].int_value, answer["usage"]["completion_tokens"])
        self.assertEqual(attributes["http.route"].string_value, "/v1/chat/completions")


if __name__ == "__main__":
    skipping.main()
