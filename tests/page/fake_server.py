"""Serves the page's files and plays back answers, as slowly or as brokenly as a test wants.

    server = FakeServer()
    server.answer = [reasoning("Let me see. "), content("**19**"), ending("stop")]
    driver.get(server.url)
    server.requests[-1]["temperature"]

An answer may also hold a threading.Event: what follows waits until it is set. It may be endless (itertools.repeat).
"""
import html
import http.server
import itertools
import json
import math
import pathlib
import threading
import time

PAGE = pathlib.Path(__file__).resolve().parents[2] / "src" / "page"
TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
         ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
KATEX = pathlib.Path("/usr/share/javascript/katex/katex.js")  # what the build embeds
POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"


def delta(**fields):
    return {"choices": [{"index": 0, "delta": {"reasoning_content": None, **fields}, "finish_reason": None}]}


def content(text):
    return delta(content=text)


def reasoning(text):
    return delta(reasoning_content=text)


def tool_call(index, name=None, arguments=""):
    call = {"index": index, "function": {"name": name, "arguments": arguments}}
    if name:
        call |= {"id": f"call_{index}", "type": "function"}
    return delta(tool_calls=[call])


def ending(reason):
    return {"choices": [{"index": 0, "delta": {"reasoning_content": None}, "finish_reason": reason, "matched_stop": None}]}


def usage(prompt, completion, cached=0):
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion,
                                     "total_tokens": prompt + completion,
                                     "prompt_tokens_details": {"cached_tokens": cached} if cached else None}}


WEATHER_CALL = [tool_call(0, "get_weather"), tool_call(0, None, '{"city": "Os'), tool_call(0, None, 'lo", "days": 3}'),
                ending("tool_calls"), usage(90, 20)]


def busy_samples(now, count=300):
    """A load that comes in waves, with a pause in it."""
    samples = []
    for i in range(count):
        wave = max(0.0, math.sin(i / 23) + 0.35 * math.sin(i / 5))
        latency = None if wave == 0 else {"p50": 18 + 9 * wave, "p90": 26 + 20 * wave, "p99": 44 + 50 * wave}
        samples.append({
            "t": round(now - count + i, 3), "running": round(28 * wave), "queued": max(0, round(14 * wave - 9)),
            "prompt_tokens_per_s": round(5200 * wave * (1 + 0.3 * math.sin(i)), 1),
            "generation_tokens_per_s": round(1900 * wave * (1 + 0.08 * math.sin(3 * i)), 1),
            "kv_usage": round(min(1, 0.62 * wave), 4), "cache_hit_rate": None if wave == 0 else round(0.4 + 0.3 * wave, 4),
            "ttft_ms": latency and {k: round(4 * v, 1) for k, v in latency.items()},
            "itl_ms": latency and {k: round(v / 2, 2) for k, v in latency.items()}})
    return samples


def speculating_samples(now, count=300):
    """The same load on a server that drafts, and drafts less where more runs."""
    samples = busy_samples(now, count)
    for sample in samples:
        busy = sample["generation_tokens_per_s"] > 0
        depth = 3 if sample["running"] < 12 else 1
        sample |= {"num_drafts": depth, "accept_length": round(1 + 0.8 * depth ** 0.9, 3) if busy else None,
                   "accept_rate": 0.83 if busy else None,
                   "drafted_tokens_per_s": round(0.6 * depth * sample["generation_tokens_per_s"], 1),
                   "accepted_tokens_per_s": round(0.5 * depth * sample["generation_tokens_per_s"], 1)}
    return samples


def bounded_samples(now, count=300):
    """The same load on a server that bounds the time of its steps."""
    samples = busy_samples(now, count)
    for sample in samples:
        longest = round(20 + 0.9 * sample["running"], 2) if sample["running"] else None
        sample["step_ms"] = {"bound": 50, "longest": longest, "predicted": longest and longest - 2}
    return samples


def split_samples(now, count=300, measures_layers=True):
    """The same load on a server that says where the time of its steps goes."""
    samples = busy_samples(now, count)
    for sample in samples:
        running = sample["running"]
        parts = {"step": 8 + 0.4 * running, "forward": 6 + 0.3 * running, "sampling": 1.2 + 0.05 * running, "mask_wait": 0.3,
                 "plan": 0.02 + 0.002 * running, "commit": 0.01 + 0.001 * running, "hand_over": 0.03 + 0.001 * running}
        if not measures_layers:
            parts |= {"forward": None, "sampling": None}
        sample["step_parts_ms"] = {name: round(value, 4) if running and value is not None else None for name, value in parts.items()}
    return samples


def server_info(model, **more):
    """What the page reads of /server_info."""
    state = {"memory_usage": {"weight": 671.0, "kvcache": 40.25, "token_capacity": 499968}, "num_running_reqs": 3, "num_waiting_reqs": 0}
    defaults = {"temperature": 1.0, "top_p": 0.95, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "thinking": "off"}
    return {"served_model_name": model, "model_path": "/models/DeepSeek-V3.1", "max_req_input_len": 131071, "dtype": "bfloat16",
            "device": "auto", "runs_on": "NVIDIA H200", "max_total_num_tokens": 499968, "kv_cache_dtype": "auto", "disable_radix_cache": False,
            "chat_format": "v3.1", "version": "0.9.0", "tp_size": 1, "dp_size": 1, "ep_size": 1, "pp_size": 1,
            "chat_defaults": defaults, "internal_states": [state]} | more


class Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # of a browser that connects faster than a busy machine accepts


class FakeServer:
    def __init__(self):
        self.model = "deepseek-ai/DeepSeek-V3.1"
        self.answer = [content("Hello!"), ending("stop"), usage(5, 2)]
        self.event_seconds = 0.002
        self.error = None           # (status, body) instead of an answer
        self.complete = True        # false: the stream ends without [DONE]
        self.requests = []          # bodies of chat requests
        self.paths = []             # of all requests
        self.cut_off = threading.Event()   # the client closed a stream
        self.closed = False
        self.held = {}              # path: the event that its answers wait for
        self.stats = busy_samples
        self.readiness = {"status": "ready", "running": 0, "waiting": 0}
        self.info = server_info(self.model)
        self.loads = []             # of the lanes, as /v1/loads has them
        self.has_katex = KATEX.is_file()
        handler = type("Handler", (Handler,), {"owner": self})
        self.server = Listener(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def hold(self, *paths):
        """Answers to GET wait until the event that is returned is set, or the server closes."""
        event = threading.Event()
        self.held |= {path: event for path in paths}
        return event

    def wait(self, event):
        while not event.wait(0.1) and not self.closed:
            pass

    def close(self):
        self.closed = True
        self.server.shutdown()
        self.server.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: FakeServer

    def log_message(self, *args):
        pass

    def parse_request(self):
        # Connections that were kept open end with the server.
        parsed = super().parse_request()
        if self.owner.closed:
            self.close_connection = True
        return parsed and not self.owner.closed

    def reply(self, status, body, content_type="application/json", headers=()):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        path = self.path.split("?")[0]
        self.owner.paths.append(path)
        if path in self.owner.held:
            self.owner.wait(self.owner.held[path])
        file = PAGE / ("index.html" if path == "/" else pathlib.PurePosixPath(path).name)
        if path == "/page/katex.js":
            return self.reply(200, KATEX.read_bytes() if self.owner.has_katex else b"// none\n", TYPES[".js"], [("Content-Security-Policy", POLICY)])
        if (path == "/" or path.startswith("/page/")) and file.suffix in TYPES and file.is_file():
            text = file.read_text(encoding="utf-8").replace("{{served_model}}", html.escape(self.owner.model))
            return self.reply(200, text.encode(), TYPES[file.suffix], [("Content-Security-Policy", POLICY)])
        if path == "/favicon.ico":  # what a browser asks for beside a file of the page alone
            return self.reply(204, b"")
        if path == "/v1/models":
            return self.reply(200, {"object": "list", "data": [{"id": self.owner.model, "object": "model"}]})
        if path == "/server_info" and self.owner.readiness["status"] != "loading":
            return self.reply(200, self.owner.info)
        if path == "/v1/loads":
            return self.reply(200, {"loads": self.owner.loads})
        if path == "/stats":
            return self.reply(200, self.stats_body())
        return self.reply(404, {"error": {"message": "no such path"}})

    def stats_body(self):
        now = time.time()
        since = float(self.path.split("since=")[1]) if "since=" in self.path else 0
        samples = self.owner.stats(now)
        current = dict(samples[-1]) if samples else {"running": 0, "queued": 0}
        current |= {"kv_blocks": 7812, "block_tokens": 64, "output_tokens": 1843211,
                    "max_drafts": 3 if "num_drafts" in current else 0,
                    "max_step_ms": 50 if "step_ms" in current else 0}
        return {"now": now, "interval_s": 1, "model": self.owner.model, "current": current, "readiness": self.owner.readiness,
                "samples": [sample for sample in samples if sample["t"] > since]}

    def do_POST(self):
        self.owner.paths.append(self.path)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.owner.requests.append(body)
        if self.owner.error:
            status, error = self.owner.error
            return self.reply(status, error, headers=[("Retry-After", "7")] if status == 429 else ())
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            self.wfile.write(b": keep-alive\n\n")
            first = delta(role="assistant", content="")
            for event in itertools.chain([first], self.owner.answer):
                if isinstance(event, threading.Event):
                    self.owner.wait(event)
                    continue
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
                time.sleep(self.owner.event_seconds)
            if self.owner.complete:
                self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            self.owner.cut_off.set()
