"""`fathom serve` on the demo model, for one test file.

    server = Serving("--api-key", "secret")     # server.url is "http://127.0.0.1:PORT"
    ...
    server.close()
"""
import http.client
import os
import pathlib
import re
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "models" / "demo"
PATIENCE_SECONDS = 300  # one busy processor, a sanitizer's build


class Serving:
    def __init__(self, *arguments, max_total_tokens=32768):
        self.log = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen(
            [os.environ["FATHOM_PROGRAM"], "serve", "--model-path", str(DEMO), "--port", "0",
             "--max-total-tokens", str(max_total_tokens),
             "--cpu-threads", "2", *os.environ.get("FATHOM_TEST_FLAGS", "").split(), *arguments], stdout=self.log, stderr=subprocess.STDOUT)
        self.url = self._wait()

    def _wait(self):
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            found = re.search(r"http://127\.0\.0\.1:(\d+)", self.output())
            if found and self._is_ready(int(found.group(1))):
                return found.group(0)
            time.sleep(0.1)
        self.close()
        raise RuntimeError(f"fathom serve was not ready within {PATIENCE_SECONDS} s, or ended:\n" + self.output())

    @staticmethod
    def _is_ready(port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def output(self):
        self.log.seek(0)
        return self.log.read()

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=PATIENCE_SECONDS)
        finally:
            self.process.kill()  # no-op once it has ended
            self.process.wait()
