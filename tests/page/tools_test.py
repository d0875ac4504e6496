"""The page in headless Chromium: tools that the person defines, and results of their calls entered by hand."""
import json

import browser
import skipping
from browser import Keys
from fake_server import content, ending, tool_call, usage

TWO_CALLS = [tool_call(0, "get_weather", '{"city": "Oslo"}'), tool_call(1, "get_time", '{"city": "Bergen"}'),
             ending("tool_calls"), usage(90, 20)]


def tool(**function):
    return {"type": "function", "function": function}


class ToolsTest(browser.FakeServerTest):
    def enter(self, text):
        self.script("""
          const area = document.getElementById('set-tools');
          area.value = arguments[0];
          area.dispatchEvent(new Event('input', {bubbles: true}))""", text)
        return self.id("set-tools-hint").text

    PROBLEMS = [
        ('[{"type": "function"\n  "function": {}}]', "line 2: a comma is missing before “\"function\":”"),
        ("[{'type': 'function'}]", "line 1: a name in double quotes should stand before “'type':”"),
        ('[\n{"name": "f"},\n]', "line 3: the comma before ] is too much"),
        ('[{"name": "f"}', "line 1: the [ is never closed with ]"),
        ('[{"name": "f]', "line 1: a text has no closing double quote"),
        ('[{"name": True}]', "“True” is written true"),
        ('[{"name": f}]', "“f” is no number; a text stands in double quotes"),
        ('[{"name": "f"}], []', "there is more behind the end"),
        ('[{"name": "f", // mine\n}]', "JSON has no comments"),
        ('[{"name": "f"]}', "] stands where } should close the { of line 1"),
        ("[" * 100000, "nested too deeply"),
        ("{}", "must be an array of tools"),
        ("[1]", "tool 1: must be an object"),
        (json.dumps([{"type": "code"}]), "tool 1: its \"type\" can only be \"function\""),
        (json.dumps([{"type": "function"}]), "tool 1: it needs a \"function\""),
        (json.dumps([tool(name="f"), tool(name="")]), "tool 2: its function needs a \"name\""),
        (json.dumps([{"type": "function", "function": []}]), "its \"function\" must be an object"),
        (json.dumps([tool(name="f", description=1)]), "the \"description\" of “f” must be a text"),
        (json.dumps([tool(name="f", parameters=[])]), "the \"parameters\" of “f” must be a JSON schema"),
        (json.dumps([tool(name="f"), {"name": "f"}]), "tool 2: “f” is the name of tool 1 already"),
    ]

    def test_what_is_wrong_with_tools_is_said_in_plain_words_and_nothing_is_sent(self):
        self.open()
        for text, words in self.PROBLEMS:
            with self.subTest(text=text[:60]):
                self.assertIn(words, self.enter(text))
                self.assertEqual(self.id("set-tools").get_attribute("aria-invalid"), "true")
        self.send("Hi")
        self.assertEqual(self.script("return document.activeElement.id"), "set-tools")
        self.assertEqual(self.server.requests, [])

    def test_tools_as_the_server_takes_them_are_sent(self):
        self.open()
        for tools in ([tool(name="f")], [{"name": "f", "description": None, "parameters": {"type": "object"}}], []):
            with self.subTest(tools=tools):
                self.assertEqual(self.enter(json.dumps(tools, indent=1)), "")
                self.ask("Hi")
                self.assertEqual(self.server.requests[-1]["tools"], tools)

    def test_every_call_needs_a_result_before_they_are_sent(self):
        self.server.answer = TWO_CALLS
        self.open()
        self.ask("Weather in Oslo, time in Bergen?")
        self.assertEqual([node.text for node in self.all(".result-form label")], ["1. Result of get_weather", "2. Result of get_time"])
        self.id("result-0").send_keys('{"celsius": 4}')
        self.one(".result-form button").click()
        self.assertEqual(self.driver.switch_to.active_element.get_attribute("id"), "result-1")
        self.assertEqual(self.id("result-1").get_attribute("aria-invalid"), "true")
        self.assertIn("Enter a result", self.id("result-1-hint").text)
        self.assertEqual(len(self.server.requests), 1)
        self.id("result-1").send_keys("noon")
        self.assertEqual(self.id("result-1-hint").text, "")
        self.server.answer = [content("Cold at noon."), ending("stop"), usage(120, 4)]
        self.one(".result-form button").send_keys(Keys.ENTER)
        self.until(lambda: len(self.server.requests) == 2, "the request with the results")
        self.wait_for_answer()
        self.assertEqual([(message["tool_call_id"], message["content"]) for message in self.server.requests[1]["messages"][2:]],
                         [("call_0", '{"celsius": 4}'), ("call_1", "noon")])
        self.assertEqual([node.get_attribute("aria-label") for node in self.all(".tool-result")], ["Result of get_weather", "Result of get_time"])
        self.assertEqual(self.all(".result-form"), [])

    def test_calls_that_were_never_answered_are_left_out_of_what_is_sent(self):
        self.server.answer = TWO_CALLS
        self.open()
        self.ask("Weather in Oslo, time in Bergen?")
        self.server.answer = [content("All right."), ending("stop"), usage(120, 4)]
        self.ask("Never mind.")
        self.assertEqual([message["content"] for message in self.server.requests[1]["messages"]],
                         ["Weather in Oslo, time in Bergen?", "Never mind."])

    def test_results_can_still_be_entered_after_a_reload(self):
        self.server.answer = TWO_CALLS
        self.open()
        self.ask("Weather in Oslo, time in Bergen?")
        self.open(keep=True)
        self.assertEqual(len(self.all(".result-form textarea")), 2)


if __name__ == "__main__":
    skipping.main()
