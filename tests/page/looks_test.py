"""The page in headless Chromium: what every part that people open must keep: contrast, names of controls, a phone's width."""
import browser
import skipping
import views_test
from fake_server import content, ending, tool_call, usage
from logprobs_test import ANSWER

NARROW = (390, 844)
MARKDOWN = "| a | b |\n|--:|---|\n| 1 | long words in a cell |\n\n```python\ndef f():  # why\n    return 'x' + 1\n```\n"


class LooksTest(browser.FakeServerTest):
    def answer(self, *events):
        self.server.answer = [*events, ending("stop"), usage(5, 2)]

    def show_markdown(self):
        self.answer(content(MARKDOWN))
        self.ask("Show " + "me " * 40)

    def show_editor(self):
        self.show_markdown()
        self.one(".edit-message").click()

    def show_tokens(self):
        self.script("document.getElementById('set-logprobs').click()")
        self.server.answer = ANSWER
        self.ask("Show")
        self.script("document.querySelectorAll('.token')[1].focus()")

    def show_missing_result(self):
        self.server.answer = [tool_call(0, "get_weather", '{"city": "Oslo"}'), ending("tool_calls"), usage(9, 9)]
        self.ask("Show")
        self.one(".result-form button").click()

    def show_wrong_tools(self):
        if not self.id("settings").is_displayed():
            self.id("settings-toggle").click()
        self.set("tools", "[1 2]")

    def show_chats(self, button=None):
        self.id("chats-toggle").click()
        self.one("label[for=keep-chats]").click()
        self.script("document.getElementById('chats-close').click()")
        self.ask("A long question " * 20)
        self.id("chats-toggle").click()
        if button:
            self.one(button).click()

    def show_panel(self):
        self.id("model-name").click()
        self.until(lambda: self.all("#model-panel dt"), "the facts")

    def parts(self):
        return {"panel": self.show_panel, "markdown": self.show_markdown, "editor": self.show_editor, "tokens": self.show_tokens, "result": self.show_missing_result,
                "tools": self.show_wrong_tools, "chats": self.show_chats, "rename": lambda: self.show_chats(".chat-rename"),
                "delete": lambda: self.show_chats(".chat-delete"), "delete all": lambda: self.show_chats("#delete-all")}

    NAMELESS = """
      return [...document.querySelectorAll('button, input, textarea, select')].filter((node) =>
        !(node.getAttribute('aria-label') || node.textContent.trim() || node.labels?.length)).map((node) => node.outerHTML)"""
    OUTSIDE = """
      return [...document.querySelectorAll('button, textarea, input, .token-tip, .question, p, h3')]
        .filter((node) => node.getClientRects().length && !node.closest('.only-read, .table-scroll, pre'))
        .filter((node) => node.getBoundingClientRect().right > innerWidth + 1 || node.getBoundingClientRect().left < -1)
        .map((node) => node.outerHTML.slice(0, 80))"""
    UNDESCRIBED = """
      return [...document.querySelectorAll('[aria-describedby], [aria-controls]')].flatMap((node) =>
        [node.getAttribute('aria-describedby'), node.getAttribute('aria-controls')])
        .filter((id) => id && !document.getElementById(id))"""

    def test_every_part_has_contrast_and_names_in_light_and_dark(self):
        for scheme in ("light", "dark"):
            for name, show in self.parts().items():
                with self.subTest(part=name, scheme=scheme):
                    self.open(scheme=scheme)
                    show()
                    self.assertEqual(self.script(views_test.AccessTest.CONTRAST), [])
                    self.assertEqual((self.script(self.NAMELESS), self.script(self.UNDESCRIBED)), ([], []))

    def test_every_part_fits_a_phone(self):
        for name, show in self.parts().items():
            with self.subTest(part=name):
                self.open(size=NARROW)
                show()
                self.assertEqual(self.script("return document.documentElement.scrollWidth"), NARROW[0])
                self.assertEqual(self.script(self.OUTSIDE), [])

    EDGES = """
      return arguments[0].map((selector) => {
        const {left, right} = document.querySelector(selector).getBoundingClientRect();
        return [left, right];
      })"""

    def test_what_went_wrong_stands_in_line_with_the_message_box(self):
        self.server.error = (400, {"error": {"message": "no"}})
        for size in (NARROW, (700, 800), (1000, 800), browser.DESKTOP):
            with self.subTest(size=size):
                self.open(size=size)
                self.ask("Hi " * 300)  # what can be scrolled has a bar on most systems
                problem, composer = self.script(self.EDGES, [".problem", "#composer"])
                self.assertEqual(problem, composer)


if __name__ == "__main__":
    skipping.main()
