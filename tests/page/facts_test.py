"""The page in headless Chromium: what it says of the model and the server, their defaults, and the context that is used."""
import browser
import skipping
from browser import Keys
from fake_server import content, ending, server_info, usage


class FactsTest(browser.FakeServerTest):
    def facts(self):
        self.id("model-name").click()
        self.until(lambda: len(self.all("#model-panel dt")) > 2, "the server's answer")
        return dict(zip([node.text for node in self.all("#model-panel dt")], [node.text for node in self.all("#model-panel dd")]))

    def test_the_name_opens_what_is_served_and_how(self):
        self.open()
        self.assertEqual(self.facts(), {
            "Model": "deepseek-ai/DeepSeek-V3.1", "Read from": "/models/DeepSeek-V3.1", "Context": "131,072 tokens",
            "Weights": "bfloat16, 671 GB", "Device": "NVIDIA H200", "KV cache": "499,968 tokens, 40.3 GB", "Prefix cache": "on",
            "Chat format": "v3.1", "Version": "0.9.0"})
        self.assertEqual([link.get_attribute("href") for link in self.all("#model-panel a")],
                         [self.url() + "docs", self.url() + "metrics"])
        self.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
        self.assertFalse(self.id("model-panel").is_displayed())

    def test_several_ranks_are_named_and_the_panel_fits_a_phone(self):
        self.server.info = server_info("m", tp_size=2, ep_size=2, model_path="/models/" + "x" * 200)
        self.open(size=(390, 844))
        self.assertEqual(self.facts()["Device"], "NVIDIA H200, 2 ranks, experts over 2")
        box = self.id("model-panel").rect
        self.assertTrue(0 <= box["x"] and box["x"] + box["width"] <= 390, box)
        self.assertEqual(self.script("return document.documentElement.scrollWidth"), 390)

    def test_the_engine_view_has_a_row_for_each_lane_of_a_server_with_several_ranks(self):
        self.open(view="#engine")
        self.wait_for_default("top_p", "0.95")
        self.assertFalse(self.id("ranks").is_displayed())
        self.assertNotIn("/v1/loads", self.server.paths)
        self.server.info = server_info("m", tp_size=4, dp_size=2, ep_size=4)
        lane = {"dp_rank": 0, "num_running_reqs": 3, "num_used_tokens": 12800, "max_total_num_tokens": 64000, "token_usage": 0.2}
        self.server.loads = [lane, lane | {"dp_rank": 1, "num_running_reqs": 7, "num_used_tokens": 640, "token_usage": 0.01}]
        self.open(view="#engine", size=(390, 844))
        self.until(lambda: self.id("ranks").is_displayed(), "the ranks")
        self.assertIn("4 ranks in 2 lanes, experts over 4", self.id("ranks").text)
        rows = lambda: [[cell.text for cell in row.find_elements("css selector", "th, td")] for row in self.all("#ranks tbody tr")]
        self.until(lambda: rows() == [["0", "3", "12.8k", "64k", "20"], ["1", "7", "640", "64k", "1"]], "the lanes")
        self.assertEqual(self.script("return document.documentElement.scrollWidth"), 390)
        self.server.loads = [lane | {"num_running_reqs": 12}, self.server.loads[1]]
        self.until(lambda: rows()[0][1] == "12", "the next answer")

    def test_a_server_that_was_started_anew_is_asked_anew(self):
        self.open()
        self.wait_for_default("top_p", "0.95")
        self.server.readiness = {"status": "loading", "phase": "weights", "progress": 0.5}
        self.until(lambda: self.id("loading").is_displayed(), "the page to see it")
        self.server.info = server_info("other", max_req_input_len=4095)
        self.server.readiness = {"status": "ready"}
        self.wait_for_default("max_tokens", "to 4,096")

    def test_empty_settings_show_what_the_server_will_use(self):
        self.open()
        self.wait_for_default("top_p", "0.95")
        shown = {name: self.default_of(name) for name in
                 ("temperature", "top_p", "top_k", "max_tokens", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty")}
        self.assertEqual(shown, {"temperature": "1", "top_p": "0.95", "top_k": "-1", "max_tokens": "to 131,072", "seed": "random",
                                 "presence_penalty": "0", "frequency_penalty": "0", "repetition_penalty": "1"})
        self.id("set-top_p").send_keys(Keys.ARROW_DOWN)
        self.assertEqual(self.id("set-top_p").get_attribute("value"), "0.9", "a step does not begin at the default")
        self.assertEqual(self.one("label[for=thinking-default]").text, "Default: off")

    def test_a_model_with_one_way_to_answer_leaves_no_choice_of_thinking(self):
        self.open()
        self.one("label[for=thinking-on]").click()
        for way, words in (("always", "This model always reasons."), ("never", "This model does not reason.")):
            with self.subTest(way=way):
                info = server_info("m")
                info["chat_defaults"]["thinking"] = way
                self.server.info = info
                self.open(keep=True)
                self.until(lambda: self.id("thinking-hint").text == words, words)
                self.assertFalse(self.id("thinking-on").is_enabled())
                self.ask("Hi")
                self.assertNotIn("chat_template_kwargs", self.server.requests[-1])

    def test_the_context_that_the_conversation_takes_stands_below_the_box(self):
        self.server.answer = [content("Hello!"), ending("stop"), usage(1200, 90)]
        self.open()
        self.assertFalse(self.id("context-used").is_displayed())
        self.ask("Hi")
        self.until(lambda: self.id("context-used").text == "1,290 of 131,072 tokens of context used", "the count")
        self.assertNotIn("nearly-full", self.id("context-used").get_attribute("class"))
        self.server.answer = [content("Hello!"), ending("stop"), usage(120000, 5000)]
        self.ask("More")
        self.assertIn("125,000 of 131,072", self.id("context-used").text)
        self.assertIn("nearly-full", self.id("context-used").get_attribute("class"))
        self.id("new-chat").click()
        self.assertFalse(self.id("context-used").is_displayed())


if __name__ == "__main__":
    skipping.main()
