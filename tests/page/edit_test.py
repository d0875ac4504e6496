"""The page in headless Chromium: copying what was written, and sending an earlier message again, edited."""
import threading

import browser
import skipping
from browser import Keys
from fake_server import content, ending, usage


class EditTest(browser.FakeServerTest):
    def answer(self, text):
        self.server.answer = [content(text), ending("stop"), usage(5, 2)]

    def talk(self):
        """Two questions with their answers."""
        self.open()
        for number in ("one", "two"):
            self.answer(f"answer {number}")
            self.ask(f"question {number}")
        self.until(lambda: len(self.all(".prose")) == 2, "both answers")

    def edit(self, index):
        self.all(".message.user")[index].find_element("class name", "edit-message").click()
        area = self.id("edit-text")
        self.assertEqual(self.driver.switch_to.active_element, area)
        return area

    def sent(self, request):
        return [message["content"] for message in self.server.requests[request]["messages"]]

    def test_an_edited_message_replaces_itself_and_all_that_followed(self):
        self.talk()
        area = self.edit(0)
        self.assertEqual(area.get_attribute("value"), "question one")
        self.assertIn("removes the 3 below it", self.id("edit-note").text)
        self.answer("other answer")
        area.send_keys(", otherwise", Keys.ENTER)
        self.until(lambda: len(self.server.requests) == 3, "the request")
        self.wait_for_answer()
        self.assertEqual(self.sent(2), ["question one, otherwise"])
        self.assertEqual([node.text for node in self.all(".bubble")], ["question one, otherwise"])
        self.assertEqual([node.text for node in self.all(".prose")], ["other answer"])
        self.open(keep=True)
        self.assertEqual([node.text for node in self.all(".bubble, .prose")], ["question one, otherwise", "other answer"])

    def test_what_stands_before_an_edited_message_stays(self):
        self.talk()
        area = self.edit(1)
        self.assertIn("removes the one below it", self.id("edit-note").text)
        area.clear()
        area.send_keys("question three", Keys.SHIFT + Keys.ENTER, Keys.NULL, "goes on")
        self.one(".edit-form button[type=submit]").click()
        self.until(lambda: len(self.server.requests) == 3, "the request")
        self.wait_for_answer()
        self.assertEqual(self.sent(2), ["question one", "answer one", "question three\ngoes on"])

    def test_escape_and_cancel_leave_everything_as_it_was(self):
        self.talk()
        for leave in (lambda area: area.send_keys(" changed", Keys.ESCAPE), lambda area: self.one(".edit-form [type=button]").click()):
            leave(self.edit(0))
            self.assertEqual(self.all(".edit-form"), [])
            self.assertIn("edit-message", self.driver.switch_to.active_element.get_attribute("class"))
            self.assertEqual([node.text for node in self.all(".bubble")], ["question one", "question two"])
        area = self.edit(0)
        area.clear()
        area.send_keys(Keys.ENTER)
        self.assertTrue(self.all(".edit-form"), "an empty message was sent")
        self.assertEqual(len(self.server.requests), 2)

    def test_a_message_cannot_be_edited_while_an_answer_comes(self):
        self.talk()
        go_on = threading.Event()
        self.server.answer = [content("slow "), go_on, ending("stop"), usage(5, 2)]
        self.send("question three")
        self.until(lambda: "slow" in self.id("messages").text, "the first words")
        buttons = self.all(".edit-message")
        self.assertEqual([button.is_enabled() for button in buttons], [False] * 3)
        go_on.set()
        self.until(lambda: all(button.is_enabled() for button in self.all(".edit-message")), "the buttons to come back")
        self.edit(2)
        self.assertIn("removes the one below it", self.id("edit-note").text)

    def test_messages_answers_and_code_are_copied(self):
        self.open()
        self.answer("See:\n\n```py\nx = 1\n```\n")
        self.ask("Copy *me*")
        # On an origin that is not secure the page has no clipboard interface; the browser's own command copies.
        for secure in (True, False):
            self.script("""
              window.copied = [];
              document.execCommand = (name) => copied.push(document.activeElement.value) > 0;
              Object.defineProperty(navigator, 'clipboard', {configurable: true, value: arguments[0]
                ? {writeText: async (text) => copied.push(text)} : undefined});""", secure)
            for label, text in (("Copy message", "Copy *me*"), ("Copy code", "x = 1"), ("Copy answer", "See:\n\n```py\nx = 1\n```\n")):
                with self.subTest(label=label, secure=secure):
                    button = self.one(f"[aria-label='{label}']")
                    button.send_keys(Keys.ENTER)
                    self.wait_for_script("copied.length > 0", "the copy")
                    self.assertEqual(self.script("return copied.splice(0)"), [text])
                    self.assertEqual(button.get_attribute("aria-label"), "Copied")
                    self.until(lambda: button.get_attribute("aria-label") == label, "the button's own name")


if __name__ == "__main__":
    skipping.main()
