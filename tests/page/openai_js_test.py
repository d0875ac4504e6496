"""OpenAI's JavaScript client, unchanged, on a page of another origin in headless Chromium: the browser's preflight asks
for the headers that the client sends, and a stream is read."""
import http.server
import pathlib
import tempfile
import threading
import unittest

import browser
import openai_js
import skipping

openai_js.checkout()
openai_js.needed("esbuild")

from serving import Serving  # noqa: E402

KEY = "page-client-key"
ASK = """
  const [url, key, done] = arguments;
  (async () => {
    const { default: OpenAI } = await import('/openai.mjs');
    const client = new OpenAI({
      baseURL: url + '/v1', apiKey: key, maxRetries: 0, dangerouslyAllowBrowser: true,
    });
    const stream = await client.chat.completions.create({
      model: 'default', stream: true, temperature: 0, max_tokens: 64,
      messages: [{role: 'user',
                  content: 'Mia has 12 apples. Mia gets 7 more apples. How many apples does Mia have now?'}],
    });
    const pieces = [];
    for await (const chunk of stream) pieces.push(chunk.choices[0]?.delta.content ?? '');
    return pieces;
  })().then(done, (error) => done(`${error.constructor.name}: ${error.message}`));
"""


class Site(http.server.ThreadingHTTPServer):
    """A page on a port of its own, and the client's file."""

    def __init__(self, client):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                is_client = self.path == "/openai.mjs"
                body = client if is_client else b"<!doctype html><title>client</title><body></body>"
                self.send_response(200)
                self.send_header("Content-Type", "text/javascript" if is_client else "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def origin(self):
        # Serving finds its server by the address 127.0.0.1 in the log, where the allowed origins stand too.
        return f"http://localhost:{self.server_address[1]}"


class OpenAiJsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "openai.mjs"
            openai_js.bundle(path)
            cls.site = Site(path.read_bytes())
        cls.addClassCleanup(cls.site.server_close)
        cls.addClassCleanup(cls.site.shutdown)
        cls.driver = browser.chromium()
        cls.addClassCleanup(cls.driver.get, "about:blank")

    def ask(self, *arguments):
        """The pieces of the answer, or the client's error."""
        server = Serving("--api-key", KEY, *arguments)
        self.addCleanup(server.close)
        self.driver.get(self.site.origin())
        return self.driver.execute_async_script(ASK, server.url, KEY)

    def test_a_page_of_an_allowed_origin_reads_a_stream(self):
        pieces = self.ask("--cors-origin", self.site.origin())
        self.assertIsInstance(pieces, list, pieces)
        self.assertGreater(len(pieces), 2)
        self.assertIn("19", "".join(pieces))

    def test_a_page_of_another_origin_is_refused(self):
        self.assertIn("ConnectionError", self.ask("--cors-origin", "http://localhost:1"))


if __name__ == "__main__":
    skipping.main()
