"""The page of the API in headless Chromium, from the real server: groups, examples that work, a phone's width."""
import json
import shlex
import tempfile
import urllib.request

import browser
import looks_test
import skipping
import views_test
from serving import Serving

NAME = "demo's \"<own>\""


class DocsTest(browser.PageTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.server = Serving("--served-model-name", NAME, "--profile-dir", folder.name)
        cls.addClassCleanup(cls.server.close)
        cls.addClassCleanup(cls.driver.get, "about:blank")

    def url(self):
        return self.server.url + "/"

    def show(self, **how):
        self.open(view="docs", answered=False, **how)

    def test_every_endpoint_stands_below_a_heading_and_every_link_leads_somewhere(self):
        self.show()
        self.assertEqual([node.text for node in self.all("main h2")], [
            "Generation", "Tokens and text", "Model and server", "Health and metrics", "For operators", "This description"])
        paths = json.load(urllib.request.urlopen(self.url() + "openapi.json", timeout=60))["paths"]
        shown = self.script("return [...document.querySelectorAll('h3 code, .others code')].map((node) => node.textContent)")
        self.assertEqual(sorted(shown), sorted(f"{method.upper()} {path}" for path in paths for method in paths[path]))
        lost = self.script("""
          const ids = [...document.querySelectorAll('[id]')].map((node) => node.id);
          return [...document.querySelectorAll('a[href^="#"]')].map((node) => node.hash.slice(1)).filter((id) => !ids.includes(id))
            .concat(ids.filter((id, i) => ids.indexOf(id) !== i))""")
        self.assertEqual(lost, [])
        self.one('.contents a[href="#post-generate"]').click()
        self.assertTrue(self.script("return document.querySelector('#post-generate').getBoundingClientRect().top < innerHeight"))
        self.script("location.hash = '#fields-tools'")
        self.wait_for_script("document.getElementById('fields-tools').closest('details').open", "the folded fields to open")
        self.assertEqual(self.console_errors(), [])

    def test_the_examples_are_answered(self):
        self.show()
        examples = self.script("return [...document.querySelectorAll('.example')].map((node) => node.textContent)")
        self.assertGreater(len(examples), 25)
        for command in examples:
            with self.subTest(command=command):
                words = [word.replace("$FATHOM", self.server.url) for word in shlex.split(command)]
                url = next(word for word in words if word.startswith(self.server.url))
                body = words[words.index("-d") + 1].encode() if "-d" in words else None
                method = "POST" if body is not None or "-X" in words else "GET"
                headers = {"Content-Type": "application/json"} if body else {}
                request = urllib.request.Request(url, body, headers, method=method)
                with urllib.request.urlopen(request, timeout=browser.PATIENCE_SECONDS) as answer:
                    self.assertEqual(answer.status, 200)
                if body and b'"model"' in body:
                    self.assertEqual(json.loads(body)["model"], NAME)

    def test_it_has_contrast_and_fits_a_phone(self):
        for scheme in ("light", "dark"):
            for size in (browser.DESKTOP, looks_test.NARROW):
                with self.subTest(scheme=scheme, size=size):
                    self.show(scheme=scheme, size=size)
                    self.script("for (const node of document.querySelectorAll('details')) node.open = true")
                    self.assertEqual(self.script(views_test.AccessTest.CONTRAST), [])
                    self.assertEqual(*self.script("const {scrollWidth, clientWidth} = document.documentElement; return [scrollWidth, clientWidth]"))


if __name__ == "__main__":
    skipping.main()
