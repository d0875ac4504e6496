"""The page in headless Chromium: how likely each token of an answer was, under the pointer and with the keyboard."""
import math

import browser
import skipping
from browser import Keys
from fake_server import WEATHER_CALL, content, ending, reasoning, usage


def entry(text, p):
    return {"token": text, "bytes": list(text.encode()), "logprob": math.log(p)}


def token(text, p, *others):
    """With its alternatives, the likeliest first."""
    top = sorted([(text, p), *others], key=lambda other: -other[1])
    return entry(text, p) | {"top_logprobs": [entry(*other) for other in top]}


def with_tokens(event, *tokens):
    event["choices"][0]["logprobs"] = {"content": list(tokens)}
    return event


PART = {"token": "\ufffd", "bytes": [0xE4, 0xBD], "logprob": math.log(0.6), "top_logprobs": []}
ANSWER = [
    with_tokens(content("**Oslo** is"), token("**", 0.95, ("It", 0.03)), token("Oslo", 0.3, ("Bergen", 0.6), ("<b>", 0.00005)), token("**", 0.999999),
                token(" is", 0.05, (" was", 0.04))),
    with_tokens(content(" cold\n"), token(" cold", 0.7), token("\n", 1), PART), ending("stop"), usage(9, 7)]


class LogprobsTest(browser.FakeServerTest):
    def show(self, answer, **how):
        self.server.answer = answer
        self.open(**how)
        if not self.id("settings").is_displayed():
            self.id("settings-toggle").click()
        self.one("label[for=set-logprobs]").click()
        if how.get("size") == browser.PHONE:
            self.id("settings-close").click()
        self.ask("Is Oslo cold?")

    def texts(self):
        return self.script("return [...document.querySelectorAll('.token')].map((node) => node.textContent)")

    def tip(self):
        return self.one(".token-tip").text.split("\n") if self.one(".token-tip").is_displayed() else None

    def test_probabilities_are_asked_for_only_by_choice(self):
        self.open()
        self.ask("Hi")
        self.assertNotIn("logprobs", self.server.requests[0])
        self.assertEqual(self.all(".token"), [])
        self.assertEqual(self.all(".show-tokens"), [])
        self.one("label[for=set-logprobs]").click()
        self.assertEqual(self.id("settings-count").text, "1")
        self.ask("Hi")
        self.assertEqual((self.server.requests[1]["logprobs"], self.server.requests[1]["top_logprobs"]), (True, 5))
        self.id("settings-reset").click()
        self.ask("Hi")
        self.assertNotIn("logprobs", self.server.requests[2])

    def test_the_token_under_the_pointer_says_its_probability_and_what_else_could_stand_there(self):
        self.show(ANSWER)
        self.assertEqual(self.texts(), ["**", "Oslo", "**", " is", " cold", "\n", "‹E4 BD›"])
        tokens = self.all(".token")
        self.assertIsNone(self.tip())
        browser.webdriver.ActionChains(self.driver).move_to_element(tokens[1]).perform()
        self.until(lambda: self.tip() == ["Oslo", "30.0%", "Bergen", "60.0%", "Oslo", "30.0%", "<b>", "< 0.01%"], "the alternatives")
        self.assertEqual(self.one(".token-tip .chosen").text.split("\n")[0], "Oslo")
        browser.webdriver.ActionChains(self.driver).move_to_element(tokens[3]).perform()
        self.until(lambda: self.tip()[:2] == ["␣is", "5.0%"], "the next token's")
        browser.webdriver.ActionChains(self.driver).move_to_element(self.id("prompt")).perform()
        self.until(lambda: self.tip() is None, "the tip to go")

    def test_tokens_are_read_with_the_keyboard(self):
        self.show(ANSWER)
        self.assertEqual(len(self.all(".tokens [tabindex='0']")), 1)
        self.script("document.querySelector('.token').focus()")
        self.assertEqual(self.tip()[:2], ["**", "95.0%"])
        focus = self.driver.switch_to.active_element
        self.assertEqual(focus.get_attribute("aria-label"), "“**” 95.0%; also “It” 3.0%")
        self.assertEqual(focus.get_attribute("role"), "option")
        focus.send_keys(Keys.ARROW_RIGHT)
        focus = self.driver.switch_to.active_element
        self.assertEqual(focus.get_attribute("aria-label"), "“Oslo” 30.0%; also “Bergen” 60.0%, “<b>” < 0.01%")
        self.assertEqual([node.text for node in self.all(".tokens [tabindex='0'], .tokens [aria-selected=true]")], ["Oslo"])
        focus.send_keys(Keys.ESCAPE)
        self.assertIsNone(self.tip())
        focus.send_keys(Keys.END)
        self.assertEqual(self.tip(), ["‹E4␣BD›", "60.0%"])
        self.driver.switch_to.active_element.send_keys(Keys.ARROW_LEFT)
        self.assertEqual(self.tip(), ["↵", "100%", "↵", "100%"])
        self.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT, Keys.HOME)
        self.assertEqual(self.tip()[0], "**")
        self.driver.switch_to.active_element.send_keys(Keys.TAB)
        self.assertIsNone(self.tip())

    def test_unlikely_tokens_are_tinted_and_those_that_were_not_first_underlined(self):
        self.show(ANSWER)
        self.assertEqual([node.get_attribute("class") for node in self.all(".token")][:5],
                         ["token sure", "token unsure not-first", "token sure", "token rare", "token likely"])
        self.assertEqual(len({self.script("return getComputedStyle(arguments[0]).backgroundColor", node) for node in self.all(".token")[1:5]}), 4)

    def test_a_button_switches_between_tokens_and_text(self):
        self.show(ANSWER)
        self.assertFalse(self.one(".prose").is_displayed())
        self.one(".show-tokens").click()
        self.assertEqual(self.one(".prose strong").text, "Oslo")
        self.assertFalse(self.one(".tokens").is_displayed())
        self.assertEqual(self.one(".show-tokens").get_attribute("aria-pressed"), "false")
        self.one(".show-tokens").send_keys(Keys.ENTER)
        self.assertTrue(self.one(".tokens").is_displayed())

    def test_reasoning_and_calls_have_tokens_too(self):
        self.show([with_tokens(reasoning("Hm."), token("Hm", 0.9), token(".", 0.9)), with_tokens(content("</x>"), token("</x>", 0.5)), *WEATHER_CALL])
        self.assertEqual(self.texts(), ["Hm", ".", "</x>"])
        self.assertFalse(self.one(".reasoning").is_displayed())
        self.assertTrue(self.one(".tool-call").is_displayed())
        self.one(".show-tokens").click()
        self.assertTrue(self.one(".reasoning").is_displayed())

    def test_tokens_are_not_stored(self):
        self.show(ANSWER)
        self.assertNotIn("Bergen", self.script("return JSON.stringify({...sessionStorage, ...localStorage})"))
        self.open(keep=True)
        self.assertEqual(self.all(".token"), [])
        self.assertEqual(self.one(".prose strong").text, "Oslo")

    def test_the_tip_stays_within_a_phones_page(self):
        self.show([with_tokens(content("word " * 60), *[token("word ", 0.4, ("other " * 20, 0.5)) for _ in range(60)]), ending("stop"), usage(9, 7)],
                  size=browser.PHONE)
        for index in range(0, 60, 7):
            self.script("document.querySelectorAll('.token')[arguments[0]].focus()", index)
            left, right, width = self.script("""
              const {left, right} = document.querySelector('.token-tip').getBoundingClientRect();
              return [left, right, document.documentElement.scrollWidth]""")
            self.assertTrue(left >= 0 and right <= browser.PHONE[0] and width == browser.PHONE[0], (index, left, right, width))


if __name__ == "__main__":
    skipping.main()
