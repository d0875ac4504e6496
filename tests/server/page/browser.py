"""Headless Chromium on the page, and the steps that the tests share."""
import atexit
import functools
import json
import pathlib
import shutil
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients"))
import skipping  # noqa: E402
import venv_python  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CHROMEDRIVER = shutil.which("chromedriver")
if not CHROMIUM or not CHROMEDRIVER:
    skipping.skip("no chromium or no chromedriver", "tools/install_packages.sh test")
venv_python.enter()

from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

DESKTOP, PHONE = (1280, 800), (360, 740)
PATIENCE_SECONDS = 30  # a busy machine with two processors


@functools.cache
def chromium():
    """The browser of all tests of this process; it ends with the process."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--disable-background-networking", "--disable-component-update"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(CHROMEDRIVER))
    driver.set_script_timeout(PATIENCE_SECONDS)
    atexit.register(driver.quit)
    return driver


class PageTest(unittest.TestCase):
    """url() says where the page is."""

    @classmethod
    def setUpClass(cls):
        cls.driver = chromium()

    def url(self):
        raise NotImplementedError

    def open(self, size=DESKTOP, scheme="light", motion="no-preference", keep=False, view=""):
        driver = self.driver
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE})
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": motion}]})
        if driver.current_url.startswith(self.url()):
            if not keep:
                driver.execute_script("sessionStorage.clear(); localStorage.clear()")
            driver.get("about:blank")  # or an address with # would not load the page again
        driver.get_log("browser")
        driver.get(self.url() + view)
        self.wait_for_script("document.getElementById('pulse-text').textContent !== 'Connecting'")

    def id(self, name):
        return self.driver.find_element(By.ID, name)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def until(self, condition, message="nothing happened", seconds=PATIENCE_SECONDS):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = condition()
            if value:
                return value
            time.sleep(0.03)
        self.fail(message)

    def wait_for_script(self, condition, message="nothing happened"):
        """Looked at by the page itself, in one round trip to it."""
        self.assertTrue(self.driver.execute_async_script(f"""
          const done = arguments[0], end = performance.now() + {900 * PATIENCE_SECONDS};
          const look = () => ({condition}) ? done(true) : performance.now() > end ? done(false) : setTimeout(look, 10);
          look()"""), message)

    def type(self, text):
        self.id("prompt").send_keys(text)

    def send(self, text):
        self.type(text + Keys.ENTER)

    def wait_for_answer(self):
        self.wait_for_script("!document.getElementById('send').hidden && "
                             "document.querySelector('.message.assistant[aria-busy=false]')", "the answer did not end")

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
