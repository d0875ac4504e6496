"""Headless Chromium on the page, and the steps that the tests share."""
import atexit
import functools
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
import skipping  # noqa: E402
import venv_python  # noqa: E402

# A machine with one processor that others keep busy. A wait ends when its condition holds; this is for what never
# comes.
PATIENCE_SECONDS = 120
MAX_KEYS = 30  # of a text that a test types
START_SECONDS = 300  # until Chromium answers its driver


def found(*names):
    """(path, major version) of the first of them that runs."""
    for path in filter(None, map(shutil.which, names)):
        try:
            done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=START_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            continue
        version = re.search(r"(\d+)\.\d+\.\d+", done.stdout)
        if done.returncode == 0 and version:
            return path, int(version[1])
    return skipping.skip(f"no {names[0]} runs on this machine",
                         "tools/install_packages.sh test, or install Chromium and its chromedriver")


CHROMIUM, CHROMIUM_VERSION = found("chromium", "chromium-browser", "google-chrome")
CHROMEDRIVER, CHROMEDRIVER_VERSION = found("chromedriver")
if CHROMIUM_VERSION != CHROMEDRIVER_VERSION:
    skipping.skip(f"chromium has version {CHROMIUM_VERSION} and chromedriver {CHROMEDRIVER_VERSION}",
                  "install both from one source")
venv_python.enter()

from selenium import webdriver  # noqa: E402
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

from fake_server import FakeServer  # noqa: E402

# A name of somebody else's that leads to this machine, as DNS rebinding makes one.
REBOUND = "rebound.example"
DESKTOP, PHONE = (1280, 800), (360, 740)


@functools.cache
def chromium():
    """The browser of all tests of this process; it ends with the process."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--disable-background-networking", "--disable-component-update",
                     f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    config = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # of the browser, which would use the person's
    atexit.register(config.cleanup)
    service = webdriver.ChromeService(CHROMEDRIVER, env={**os.environ, "XDG_CONFIG_HOME": config.name})
    socket.setdefaulttimeout(START_SECONDS)  # Selenium takes it for its commands to the driver
    try:
        driver = webdriver.Chrome(options=options, service=service)
    finally:
        socket.setdefaulttimeout(None)
    atexit.register(driver.quit)
    driver.set_script_timeout(PATIENCE_SECONDS)
    return driver


class PageTest(unittest.TestCase):
    """url() says where the page is."""

    @classmethod
    def setUpClass(cls):
        cls.driver = chromium()

    def url(self):
        raise NotImplementedError

    def leave(self):
        """No page is left that asks a server or writes into the storage."""
        self.driver.get("about:blank")

    def open(self, size=DESKTOP, scheme="light", motion="no-preference", keep=False, view="", answered=True):
        """The page; answered: once it knows how the engine is. keep: with what it had stored."""
        driver = self.driver
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE})
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": motion}]})
        if keep:
            self.leave()  # or an address with # would not load the page again
        else:
            driver.get(self.url() + "page/icon.svg")  # the page's origin without the page
            driver.execute_script("sessionStorage.clear(); localStorage.clear()")
        driver.get_log("browser")
        driver.get(self.url() + view)
        if answered:
            self.wait_for_script("document.getElementById('pulse-text').textContent !== 'Connecting'",
                                 "the page's first answer from /stats")

    def id(self, name):
        return self.driver.find_element(By.ID, name)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def until(self, condition, what):
        """Waits until the condition holds and returns its value. An element that is not there yet, or was just
        replaced, is one that does not fulfil it yet."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                value = condition()
            except (NoSuchElementException, StaleElementReferenceException):
                value = None
            if value:
                return value
            if time.monotonic() > end:
                self.fail(f"waited {PATIENCE_SECONDS} s for {what}")
            time.sleep(0.03)

    def wait_for_script(self, condition, what):
        """Looked at by the page itself, in few round trips to it."""
        self.until(lambda: self.driver.execute_async_script(f"""
          const done = arguments[0], end = performance.now() + 5000;
          const look = () => ({condition}) ? done(true) : performance.now() > end ? done(false) : setTimeout(look, 10);
          look()"""), what)

    def default_of(self, setting):
        """What an empty setting shows that the server will use: HTML's own attribute of a field for that."""
        return self.id(f"set-{setting}").get_attribute("placeholder")

    def wait_for_default(self, setting, text):
        self.until(lambda: self.default_of(setting) == text, f"{setting} to show {text}")

    def type(self, text):
        """The end of a long text by its keys, which take the driver a while each, and all before it at once."""
        prompt, at_once = self.id("prompt"), max(0, len(text) - MAX_KEYS)
        if at_once:
            self.script("arguments[0].value += arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))",
                        prompt, text[:at_once])
        prompt.send_keys(text[at_once:])

    def send(self, text):
        self.type(text + Keys.ENTER)

    def wait_for_answer(self):
        self.wait_for_script("!document.getElementById('send').hidden && "
                             "document.querySelector('.message.assistant[aria-busy=false]')", "the end of the answer")

    def ask(self, text):
        self.send(text)
        self.wait_for_answer()

    def set(self, name, value):
        field = self.id(f"set-{name}")
        field.clear()
        field.send_keys(value)

    def requested_urls(self):
        """Of everything that the browser asked for since the last call."""
        urls = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                urls.append(message["params"]["request"]["url"])
        return urls

    def console_errors(self):
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


class FakeServerTest(PageTest):
    """On a server of its own that plays back answers."""

    def setUp(self):
        self.server = FakeServer()
        self.addCleanup(self.server.close)
        self.addCleanup(self.leave)  # before the server goes, or the page would note errors for the next test

    def url(self):
        return self.server.url
