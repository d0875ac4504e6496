"""Pages of others in headless Chromium against the real server: they try to read, generate, abort and flush, with all that
a page can send without being asked, and every try is refused by the server (its log says so), not just hidden by the
browser."""
import http.client
import http.server
import json
import threading
import unittest
import urllib.parse

import browser
import skipping
from serving import Serving

KEY = "foreign-page-key"
LONG = "One fish, two fish, and then a fox. " * 20  # more than a block of the cache
ASK = {"text": LONG, "sampling_params": {"max_new_tokens": 2, "temperature": 0}}
ENDLESS = {"text": "Go on.", "stream": True, "sampling_params": {"max_new_tokens": 20000, "ignore_eos": True}}

# What a page may send to any server without a preflight, and with the browser's login for it. Errors are what it gets.
ATTACK = """
  const [target, done] = arguments;
  const send = (path, body, mode) => fetch(target + path, {
      method: body === null ? 'GET' : 'POST', mode, credentials: 'include', body,
      headers: body === null ? {} : {'Content-Type': 'text/plain'},
  }).then(async (answer) => `${path} ${answer.type} ${await answer.text()}`, (error) => `${path} ${error.name}`);
  const image = (path) => new Promise((resolve) => {
    const element = new Image();
    element.onload = element.onerror = () => resolve(`${path} image`);
    element.src = target + path;
  });
  const framed = (path, post) => new Promise((resolve) => {
    const frame = document.createElement('iframe');
    frame.name = 'frame' + Math.random();
    document.body.append(frame);
    frame.onload = () => resolve(`${path} frame`);
    if (post === undefined) { frame.src = target + path; return; }
    const form = document.createElement('form');
    Object.assign(form, {action: target + path, method: 'post', enctype: 'text/plain', target: frame.name});
    const field = document.createElement('input');
    // A body of type text/plain is NAME=VALUE: JSON with the sign in a string.
    Object.assign(field, {name: post.slice(0, -1) + ', "x": "', value: '"}'});
    form.append(field);
    document.body.append(form);
    form.submit();
  });
  const generate = JSON.stringify({text: 'x', sampling_params: {max_new_tokens: 1}});
  const abort = JSON.stringify({abort_all: true});
  Promise.all([
    ...['cors', 'no-cors'].flatMap((mode) => [
      send('/server_info', null, mode), send('/v1/models', null, mode), send('/metrics', null, mode),
      send('/generate', generate, mode), send('/abort_request', abort, mode),
      send('/flush_cache', null, mode), send('/flush_cache', '', mode),
    ]),
    image('/flush_cache'), image('/stats'), framed('/flush_cache'), framed('/generate', generate),
    framed('/abort_request', abort),
  ]).then(done, (error) => done(['failed: ' + error]));
"""
NUM_TRIES = {"/server_info": 2, "/v1/models": 2, "/metrics": 2, "/generate": 3, "/abort_request": 3, "/flush_cache": 6,
             "/stats": 1}


class ForeignSite(http.server.ThreadingHTTPServer):
    """An empty page on a port of its own."""

    def __init__(self):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                page = b"<!doctype html><title>foreign</title><body></body>"
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, *_):
                pass
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, host):
        return f"http://{host}:{self.server_address[1]}/"

    def close(self):
        self.shutdown()
        self.server_close()


class ForeignPageTest(browser.PageTest):
    def setUp(self):
        self.site = ForeignSite()
        self.addCleanup(self.site.close)
        self.addCleanup(self.leave)

    def serve(self, *arguments):
        server = Serving("--engine", "sim", "--sim-step-us", "5000", "--log-format", "json", "--log-level", "debug",
                         *arguments)
        self.addCleanup(server.close)
        return server

    def answers(self, server):
        """{(endpoint, status): count} of the server's log."""
        found = {}
        for line in server.output().splitlines():
            entry = json.loads(line) if line.startswith("{") else {}
            if entry.get("event") == "request":
                what = (entry["endpoint"], entry["status"])
                found[what] = found.get(what, 0) + 1
        return found

    def ask(self, server, path, body, key=None):
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(server.url).netloc, timeout=browser.PATIENCE_SECONDS)
        self.addCleanup(connection.close)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        connection.request("POST" if body is not None else "GET", path, json.dumps(body) if body is not None else None, headers)
        return connection.getresponse()

    def attack(self, server, page):
        before = self.answers(server)
        self.driver.get(page)
        self.assertEqual(self.driver.title, "foreign")
        results = self.driver.execute_async_script(ATTACK, server.url)
        self.assertEqual(len(results), sum(NUM_TRIES.values()), results)
        for result in results:  # nothing to read: an error, an opaque answer, or an element without content
            self.assertRegex(result, r"^/\w+(/\w+)? (TypeError|opaque |image|frame)$")

        def refused():
            after = self.answers(server)
            return all(after.get((path, 403), 0) - before.get((path, 403), 0) == num for path, num in NUM_TRIES.items())
        self.until(refused, f"{NUM_TRIES} refusals in the log: {self.answers(server)}")
        allowed = {what: num for what, num in self.answers(server).items()
                   if what[0] in NUM_TRIES and what[1] != 403 and num != before.get(what, 0)}
        self.assertEqual(allowed, {})

    def test_another_port_and_another_site_get_nothing_and_change_nothing(self):
        server = self.serve()
        self.assertEqual(self.ask(server, "/generate", ASK).status, 200)
        stream = self.ask(server, "/generate", ENDLESS)
        self.assertTrue(stream.readline())
        for host in ("127.0.0.1", "localhost", browser.REBOUND):  # same site, cross site, a name of the attacker's
            self.attack(server, self.site.url(host))
        running = json.load(self.ask(server, "/readyz", None))["running"]
        self.assertEqual(running, 1, "the stream was aborted")
        cached = json.load(self.ask(server, "/generate", ASK))["meta_info"]["cached_tokens"]
        self.assertGreaterEqual(cached, 64, "the cache was flushed")
        # The control: what the pages tried works for a client that is no page.
        self.assertEqual(self.ask(server, "/abort_request", {"abort_all": True}).status, 200)
        self.until(lambda: json.load(self.ask(server, "/readyz", None))["running"] == 0, "the end of the stream")
        self.assertEqual(self.ask(server, "/flush_cache", None).status, 200)
        self.assertEqual(json.load(self.ask(server, "/generate", ASK))["meta_info"]["cached_tokens"], 0)

    def test_the_login_that_the_browser_keeps_does_not_work_for_another_page(self):
        server = self.serve("--api-key", KEY)
        # Of the whole origin: a login is kept for the folder of the path that asked for it.
        self.driver.get(server.url.replace("://", f"://any:{KEY}@") + "/stats")
        # The control: the own origin is logged in.
        self.driver.get(server.url + "/page/icon.svg")
        status = self.driver.execute_async_script("fetch('/model_info').then((answer) => arguments[0](answer.status))")
        self.assertEqual(status, 200)
        self.attack(server, self.site.url("127.0.0.1"))

    def test_a_rebound_name_reads_nothing(self):
        server = self.serve()
        port = urllib.parse.urlsplit(server.url).port
        self.driver.get(f"http://{browser.REBOUND}:{port}/")
        self.assertIn("host_not_allowed", self.driver.page_source)
        # The page that the name led to before it was pointed here: of the same origin as the server now.
        statuses = self.driver.execute_async_script("""
          const done = arguments[0];
          const status = (path, options) => fetch(path, options).then((answer) => answer.status, (error) => error.name);
          Promise.all([status('/server_info'), status('/livez'), status('/flush_cache', {method: 'POST'}),
                       status('/generate', {method: 'POST', body: '{"text": "x"}'})]).then(done)""")
        self.assertEqual(statuses, [403] * 4)
        allowed = {what for what in self.answers(server) if what[1] != 403} - {("/readyz", 200), ("/readyz", 503)}
        self.assertEqual(allowed, set())


if __name__ == "__main__":
    skipping.main()
