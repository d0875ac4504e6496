"""The page in headless Chromium against a server that plays back answers: what is shown, sent and stopped."""
import itertools
import threading

import browser
import skipping
from browser import FakeServerTest, Keys
from fake_server import WEATHER_CALL, content, ending, reasoning, tool_call, usage

ALL_SETTINGS = {"temperature": 0.25, "top_p": 0.9, "top_k": 40, "max_tokens": 77, "seed": 5, "presence_penalty": -0.5,
                "frequency_penalty": 0.5, "repetition_penalty": 1.1}


class ChatTest(FakeServerTest):
    def test_text_appears_while_the_answer_is_still_coming(self):
        go_on = threading.Event()
        words = [content(f"word{i} ") for i in range(60)]
        self.server.answer = words[:10] + [go_on] + words[10:] + [ending("stop"), usage(9, 60)]
        self.open()
        self.send("Count")
        self.until(lambda: "word2" in self.one(".prose").text, "the first words")
        self.assertNotIn("word59", self.one(".prose").text)
        self.assertTrue(self.id("stop").is_displayed())
        go_on.set()
        self.wait_for_answer()
        self.assertEqual(self.one(".prose").text.split(), [f"word{i}" for i in range(60)])
        self.assertEqual(self.one(".bubble").text, "Count")

    def test_the_request_is_a_streamed_chat_with_usage_and_no_setting_that_was_not_made(self):
        self.open()
        self.ask("Hi")
        self.assertEqual(self.server.requests, [{
            "model": "deepseek-ai/DeepSeek-V3.1", "messages": [{"role": "user", "content": "Hi"}], "stream": True,
            "stream_options": {"include_usage": True}}])

    def test_a_message_that_is_sent_before_any_other_answer_names_the_model(self):
        self.server.hold("/v1/models", "/stats")
        self.open(answered=False)
        self.ask("Hi")
        self.assertEqual(self.server.requests[0]["model"], "deepseek-ai/DeepSeek-V3.1")
        self.assertEqual(self.id("model-name").text, "DeepSeek-V3.1")

    def test_the_model_of_a_server_that_was_started_anew_is_the_one_that_is_asked(self):
        self.open()
        self.server.model = "other/Model"
        self.until(lambda: self.id("model-name").text == "Model", "the other model's name")
        self.ask("Hi")
        self.assertEqual(self.server.requests[0]["model"], "other/Model")

    def test_reasoning_stands_apart_and_folds_when_the_answer_begins(self):
        go_on = threading.Event()
        self.server.answer = [reasoning("Let me "), reasoning("add them. "), go_on, content("It is 19. "),
                              ending("stop"), usage(9, 30)]
        self.open()
        self.send("12 + 7?")
        self.until(lambda: self.one(".reasoning").get_attribute("open") is not None, "the reasoning to be shown")
        go_on.set()
        self.wait_for_answer()
        details = self.one(".reasoning")
        self.assertIsNone(details.get_attribute("open"))
        self.assertRegex(details.text, r"^Thought for [\d.]+ m?s$")
        self.assertNotIn("Let me", self.one(".prose").text)
        details.find_element("tag name", "summary").click()
        self.assertIn("Let me add them.", details.text)

    def test_a_tool_call_shows_its_name_and_indented_arguments(self):
        self.server.answer = WEATHER_CALL
        self.open()
        self.ask("Weather in Oslo?")
        call = self.one(".tool-call")
        self.assertEqual(call.find_element("class name", "tool-name").text, "get_weather")
        self.assertEqual(call.find_element("css selector", "pre").text, '{\n  "city": "Oslo",\n  "days": 3\n}')

    def test_results_of_tool_calls_go_back_with_their_ids_and_what_was_thought(self):
        self.server.answer = [reasoning("Hm."), *WEATHER_CALL]
        self.open()
        self.ask("Weather in Oslo?")
        self.server.answer = [content("It is sunny."), ending("stop"), usage(120, 4)]
        self.id("result-0").send_keys('{"sky": "sunny"}')
        self.one(".result-form button").click()
        self.until(lambda: len(self.server.requests) == 2, "the request with the result")
        self.wait_for_answer()
        call = {"id": "call_0", "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Oslo", "days": 3}'}}
        self.assertEqual(self.server.requests[1]["messages"][1:], [
            {"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_0", "content": '{"sky": "sunny"}'}])
        self.assertIn("It is sunny.", self.id("messages").text)

    def test_a_call_that_was_cut_is_shown_but_not_sent_back(self):
        self.server.answer = [tool_call(0, "get_weather", '{"ci'), ending("length")]
        self.open()
        self.ask("Weather in Oslo?")
        self.assertIn('{"ci', self.one(".tool-call").text)
        self.server.answer = [content("It is sunny."), ending("stop")]
        self.ask("Please try again.")
        self.assertEqual([message["role"] for message in self.server.requests[1]["messages"]], ["user", "user"])

    def stop_with(self, action):
        self.server.answer = itertools.repeat(content("again "))
        self.server.event_seconds = 0.02
        self.open()
        self.send("Go on")
        self.until(lambda: "again" in self.one(".prose").text, "the first words")
        action()
        self.wait_for_answer()
        self.assertTrue(self.server.cut_off.wait(browser.PATIENCE_SECONDS), "the stream was not closed")
        self.assertIn("stopped by you", self.one(".figures").text)
        self.assertIn("again", self.one(".prose").text)
        self.assertEqual(self.script("return document.activeElement.id"), "prompt")

    def test_the_stop_button_ends_the_stream_and_keeps_what_came(self):
        self.stop_with(lambda: self.id("stop").click())

    def test_escape_ends_the_stream(self):
        self.stop_with(lambda: self.type(Keys.ESCAPE))

    def test_usage_and_speed_are_shown_after_the_answer(self):
        self.server.answer = [content("a "), content("b "), ending("stop"), usage(1234, 56, cached=1200)]
        self.open()
        self.ask("Hi")
        text = self.one(".figures").text
        for expected in ("56 tokens", "tokens/s", "first after", "in all", "prompt 1,234 (1,200 cached)"):
            self.assertIn(expected, text)

    def test_an_answer_that_met_the_token_limit_says_so(self):
        self.server.answer = [content("cut"), ending("length"), usage(1, 1)]
        self.open()
        self.ask("Hi")
        self.assertIn("reached the token limit", self.one(".figures").text)

    def test_the_conversation_is_sent_whole_and_survives_a_reload(self):
        self.open()
        self.ask("One")
        self.open(keep=True)
        self.assertEqual([bubble.text for bubble in self.all(".bubble")], ["One"])
        self.ask("Two")
        self.assertEqual([message["content"] for message in self.server.requests[1]["messages"]], ["One", "Hello!", "Two"])
        self.id("new-chat").click()
        self.assertEqual(self.all(".bubble"), [])
        self.ask("Three")
        self.assertEqual(len(self.server.requests[2]["messages"]), 1)

    def test_answering_again_replaces_the_last_answer(self):
        self.open()
        self.ask("Hi")
        self.server.answer = [content("Something else"), ending("stop"), usage(5, 2)]
        self.one("[aria-label='Answer again']").click()
        self.until(lambda: "Something else" in self.id("messages").text, "the other answer")
        self.wait_for_answer()
        self.assertEqual(len(self.all(".message.assistant")), 1)
        self.assertEqual(self.server.requests[1]["messages"], self.server.requests[0]["messages"])


class SettingsTest(FakeServerTest):
    def test_settings_are_sent(self):
        self.open()
        for name, value in ALL_SETTINGS.items():
            self.set(name, str(value))
        self.set("system", "Be brief.")
        self.one("label[for=thinking-on]").click()
        self.id("tools-example").click()
        self.script("const s = document.getElementById('set-tool_choice'); s.value = 'required';"
                    "s.dispatchEvent(new Event('change'))")
        self.ask("Hi")
        request = self.server.requests[0]
        for name, value in ALL_SETTINGS.items():
            self.assertEqual(request[name], value, name)
        self.assertEqual(request["messages"][0], {"role": "system", "content": "Be brief."})
        self.assertEqual(request["chat_template_kwargs"], {"thinking": True})
        self.assertEqual(request["tools"][0]["function"]["name"], "get_weather")
        self.assertEqual(request["tool_choice"], "required")
        self.open(keep=True)
        self.assertEqual(self.id("set-top_k").get_attribute("value"), "40")
        self.id("settings-reset").click()
        self.ask("Again")
        self.assertNotIn("top_k", self.server.requests[1])
        self.assertNotIn("tools", self.server.requests[1])

    def test_a_wrong_setting_is_named_and_nothing_is_sent(self):
        self.open()
        for name, value, words in (("temperature", "hot", "not a number"), ("temperature", "3", "at most 2"),
                                   ("top_p", "0", "must be above 0"), ("top_k", "1.5", "whole number"),
                                   ("tools", "{", "not valid JSON"), ("tools", "{}", "must be an array")):
            with self.subTest(name=name, value=value):
                self.set(name, value)
                self.assertIn(words, self.id(f"set-{name}-hint").text)
                self.send("Hi")
                self.assertEqual(self.script("return document.activeElement.id"), f"set-{name}")
                self.assertEqual(self.server.requests, [])
                self.id("prompt").clear()
                self.set(name, "1" + Keys.BACKSPACE)

    def test_arrow_keys_step_a_number(self):
        self.open()
        self.id("set-temperature").send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_UP)
        self.assertEqual(self.id("set-temperature").get_attribute("value"), "0.95")


class ErrorTest(FakeServerTest):
    def setUp(self):
        super().setUp()
        self.open()

    def problem(self):
        self.id("new-chat").click()
        self.ask("Hi")
        return self.one(".problem").text

    def test_refusals_are_told_in_plain_words(self):
        error = {"message": "temperature is 9, must be in [0, 2]", "type": "invalid_request_error", "param": "temperature"}
        cases = [(400, error, ["because of “temperature”", "must be in [0, 2]"]),
                 (400, {**error, "param": None, "code": "context_length_exceeded"}, ["too long for this model"]),
                 (400, {**error, "param": "max_tokens", "code": "context_length_exceeded"}, ["Lower “Max tokens”"]),
                 (401, {}, ["asks for an API key"]), (429, {}, ["queue is full", "Try again in 7 s"]),
                 (503, {}, ["not taking requests"]), (500, {"message": "the request failed"}, ["failed (status 500)"])]
        for status, body, words in cases:
            with self.subTest(status=status):
                self.server.error = (status, {"error": body})
                text = self.problem()
                for word in words:
                    self.assertIn(word, text)

    def test_a_stream_that_breaks_off_keeps_its_text_and_can_be_tried_again(self):
        self.server.answer, self.server.complete = [content("half ")], False
        self.assertIn("ended before the answer was complete", self.problem())
        self.assertIn("half", self.one(".prose").text)
        self.server.answer, self.server.complete = [content("whole"), ending("stop"), usage(1, 1)], True
        self.one(".retry").click()
        self.until(lambda: self.one(".prose").text == "whole", "the whole answer")
        self.wait_for_answer()
        self.assertFalse(self.one(".problem").is_displayed())

    def test_an_error_within_the_stream_is_shown(self):
        self.server.answer = [content("a"), {"error": {"message": "numeric error"}}]
        self.assertIn("numeric error", self.problem())

    def test_a_server_that_has_gone_is_named(self):
        self.server.close()
        self.ask("Hi")
        self.assertIn("cannot be reached", self.one(".problem").text)
        self.until(lambda: self.id("pulse").get_attribute("data-state") == "down", "the top bar to say so")


if __name__ == "__main__":
    skipping.main()
