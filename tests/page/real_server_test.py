"""The page on the real server with the demo model behind an API key: chat, stop, plots, and that nothing leaves it."""
import unittest
import urllib.error
import urllib.request

import browser
import skipping
from serving import Serving

KEY = "page-test-key"
NAME = "demo \"><img src='x' onerror='window.hit=1'>&amp;"  # nothing of it may become markup


class RealServerTest(browser.PageTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = Serving("--api-key", KEY, "--device", "cpu", "--served-model-name", NAME)
        cls.addClassCleanup(cls.server.close)
        cls.addClassCleanup(cls.driver.get, "about:blank")
        # What typing the key into the browser's dialog does: it is kept for the origin and sent as Basic.
        cls.driver.get(cls.server.url.replace("://", f"://any:{KEY}@") + "/page/icon.svg")

    def url(self):
        return self.server.url + "/"

    def test_without_the_key_the_page_is_refused_with_a_basic_challenge(self):
        with self.assertRaises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(self.url(), timeout=browser.PATIENCE_SECONDS)
        self.assertEqual(caught.exception.code, 401)
        self.assertNotIn(b"demo", caught.exception.read())
        self.assertTrue(caught.exception.headers["WWW-Authenticate"].startswith("Basic"))

    def test_an_answer_comes_and_the_engine_view_shows_it(self):
        self.requested_urls()  # of earlier tests
        self.open()
        self.assertEqual(self.id("model-name").get_attribute("textContent"), NAME)
        self.assertIsNone(self.script("return document.querySelector('img') ?? window.hit ?? null"))
        self.set("temperature", "0")
        self.ask("Mia has 12 apples. Mia gets 7 more apples. How many apples does Mia have now?")
        self.assertIn("19", self.one(".prose").text)
        self.assertRegex(self.one(".figures").text, r"(?s)\d+ tokens.*tokens/s.*first after .*prompt \d+")
        self.id("tab-engine").click()
        # The parts of a step come with the first sample that has some.
        self.wait_for_script("document.querySelectorAll('.chart').length == 9", "all plots")
        self.wait_for_script("[...document.querySelectorAll('.chart')].every((chart) => chart.querySelector('path.line, circle.dot'))",
                             "data in every plot")
        parts = self.all(".chart")[6]
        self.assertEqual(parts.find_element("tag name", "h3").text, "Time of a step")
        self.wait_for_script("document.querySelectorAll('.plot')[6].querySelector('.s1') && document.querySelectorAll('.plot')[6].querySelector('.s4')",
                             "the time of layers, and of what is left")
        samples = self.driver.execute_async_script("fetch('/stats').then((answer) => answer.json()).then(arguments[0])")["samples"]
        measured = next(sample["step_parts_ms"] for sample in samples if sample["step_parts_ms"]["step"])
        self.assertGreater(min(measured[name] for name in ("forward", "sampling", "plan", "commit", "hand_over")), 0)
        # Their histograms are read one after the other: another step may lie between two of them.
        self.assertLess(measured["forward"] + measured["sampling"], 2 * measured["step"])
        self.assertEqual(measured["mask_wait"], 0)
        self.wait_for_script("/[1-9]/.test(document.querySelectorAll('.tile-value')[5].textContent)", "the count of tokens")
        urls = [url for url in self.requested_urls() if not url.startswith(("about:", "chrome:", "data:"))]
        self.assertTrue(any("/v1/chat/completions" in url for url in urls))
        self.assertEqual([url for url in urls if not url.startswith(self.url())], [])
        self.assertEqual(self.console_errors(), [])

    def test_an_answer_streams_until_stop_ends_it_in_the_engine(self):
        self.open()
        # Without an end by itself: the model would go on to the limit of the context.
        self.script("""
          const send = window.fetch;
          window.fetch = (path, options = {}) => send(path, options.body
            ? {...options, body: JSON.stringify({...JSON.parse(options.body), ignore_eos: true})} : options)""")
        self.send("Hello!")
        self.wait_for_script("document.querySelector('.prose')?.textContent.length > 20", "the first text")
        length = self.script("return document.querySelector('.prose').textContent.length")
        self.wait_for_script(f"document.querySelector('.prose').textContent.length > {length}", "more text")
        self.id("stop").click()
        self.wait_for_answer()
        self.assertIn("stopped by you", self.one(".figures").text)
        self.assertGreater(len(self.one(".prose").text), 20)
        self.wait_for_script("document.getElementById('pulse').dataset.state === 'idle'", "the engine to be idle")
        self.assertEqual(self.console_errors(), [])

    def test_every_token_of_an_answer_has_a_probability(self):
        self.open()
        self.set("temperature", "0")
        self.one("label[for=set-logprobs]").click()
        self.ask("Mia has 12 apples. Mia gets 7 more apples. How many apples does Mia have now?")
        made = int(self.one(".figures").text.split(" token")[0].split()[-1])
        tokens = self.script("return [...document.querySelectorAll('.token')].map((node) => node.textContent)")
        self.assertEqual(len(tokens), made)
        self.one(".show-tokens").click()
        self.assertTrue("".join(tokens).startswith(self.one(".prose").text), tokens)
        self.one(".show-tokens").click()
        self.script("document.querySelector('.token').focus()")
        tip = self.one(".token-tip").text.split("\n")
        self.assertEqual(len(tip), 2 + 2 * 5)
        self.assertEqual(tip[:2], tip[2:4], "temperature 0 takes the likeliest")

    def test_the_panel_and_the_settings_say_what_the_server_says(self):
        self.open()
        self.wait_for_default("temperature", "1")
        info = self.driver.execute_async_script("fetch('/server_info').then((answer) => answer.json()).then(arguments[0])")
        self.assertEqual(self.one("label[for=thinking-default]").text, f"Default: {info['chat_defaults']['thinking']}")
        self.id("model-name").click()
        rows = dict(zip([node.text for node in self.all("#model-panel dt")], [node.text for node in self.all("#model-panel dd")]))
        self.assertEqual((rows["Model"], rows["Version"], rows["Device"]), (NAME, info["version"], info["runs_on"]))
        self.assertIn("CPU", info["runs_on"])
        self.assertEqual(rows["Context"], f"{info['max_req_input_len'] + 1:,} tokens")
        self.assertIn(f"{info['max_total_num_tokens']:,} tokens", rows["KV cache"])
        self.assertEqual(self.console_errors(), [])

    def test_katex_comes_with_its_licence_or_not_at_all(self):
        self.open()
        length, licence = self.driver.execute_async_script("""
          const done = arguments[0];
          Promise.all([fetch('/page/katex.js').then((answer) => answer.text()), fetch('/page/katex-licence.txt')])
            .then(([text, licence]) => done([text.length, licence.status]))""")
        self.assertEqual(licence, 200 if length > 1000 else 404)

    def test_a_refused_setting_is_explained(self):
        self.open()
        self.set("max_tokens", "99999999")
        self.ask("Hello!")
        self.assertIn("Lower “Max tokens”", self.one(".problem").text)
        self.set("max_tokens", "8")
        self.one(".retry").click()
        self.until(lambda: self.one(".prose").text, "text")
        self.wait_for_answer()


if __name__ == "__main__":
    skipping.main()
