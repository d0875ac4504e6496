"""Stands between a client and the server, keeps what both said, and may change a request on its way.

    proxy = RecordingProxy(server.url, change=lambda path, body: body)
    ... proxy.url ... proxy.exchanges[0].status
    proxy.close()
"""
import dataclasses
import http.client
import http.server
import json
import threading
import urllib.parse


@dataclasses.dataclass
class Exchange:
    method: str
    path: str
    sent: object = None  # the body, as the client sent it
    status: int = 0
    answer: str = ""


class RecordingProxy:
    def __init__(self, target, change=lambda path, body: body):
        self.exchanges = []
        self.lock = threading.Lock()
        proxy, host = self, urllib.parse.urlsplit(target).netloc

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                exchange = Exchange(self.command, self.path, json.loads(body) if body else None)
                with proxy.lock:
                    proxy.exchanges.append(exchange)
                    if body:
                        body = json.dumps(change(self.path, json.loads(body))).encode()
                headers = {name: value for name, value in self.headers.items()
                           if name.lower() not in ("host", "content-length", "accept-encoding", "connection")}
                connection = http.client.HTTPConnection(host, timeout=600)
                connection.request(self.command, self.path, body=body or None, headers=headers)
                response = connection.getresponse()
                exchange.status = response.status
                self.send_response(response.status)
                for name, value in response.getheaders():
                    if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                        self.send_header(name, value)
                self.send_header("Connection", "close")
                self.end_headers()
                self.close_connection = True
                if self.command != "HEAD":
                    self.pass_on(response, exchange)
                connection.close()

            def pass_on(self, response, exchange):
                while piece := response.read1(1 << 16):
                    exchange.answer += piece.decode(errors="replace")
                    try:
                        self.wfile.write(piece)
                        self.wfile.flush()
                    except ConnectionError:  # the client has gone
                        return

            do_GET = do_POST = do_HEAD = do_DELETE = forward  # noqa: N815 (names of http.server)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
