"""The page in headless Chromium: the conversations of a tab: a new one leaves the others, deleting is undone, words are
found, files are written and read."""
import json
import pathlib
import tempfile

import browser
import skipping
from browser import Keys
from fake_server import content, ending


class TabChatsTest(browser.FakeServerTest):
    """Nothing is kept in the browser unless a test says so."""

    def start(self, *questions, **how):
        """A conversation for each question, made by the button for a new one."""
        self.open(**how)
        self.id("chats-toggle").click()
        for question in questions:
            self.id("new-chat").click()
            self.ask(question)
            self.until(lambda: question in self.titles(), "the conversation in the list")

    def titles(self):
        return [node.text for node in self.all(".chat-title")]

    def shown(self):
        return [node.text for node in self.all(".bubble, .prose")]

    def delete(self, title):
        self.one(f".chat-delete[aria-label$='“{title}”']").click()

    def test_a_new_chat_leaves_the_one_before_in_the_list(self):
        self.start("First", "Second")
        self.id("new-chat").click()
        self.assertEqual((self.titles(), self.shown()), (["Second", "First"], []))
        self.open(keep=True)
        self.id("chats-toggle").click()
        self.assertEqual(self.titles(), ["Second", "First"], "a reload is the same tab")
        self.all(".chat-open")[1].click()
        self.assertEqual(self.shown(), ["First", "Hello!"])
        self.ask("Go on")
        self.assertEqual([message["content"] for message in self.server.requests[-1]["messages"]], ["First", "Hello!", "Go on"])
        self.assertEqual(self.titles(), ["First", "Second"])
        self.assertEqual(self.script("return Object.keys(localStorage)"), [])

    def test_a_new_chat_while_an_answer_comes_keeps_what_has_come(self):
        self.start()
        self.server.answer, self.server.event_seconds = [content("word ")] * 4000, 0.02
        self.send("First")
        self.until(lambda: "word" in self.id("messages").text, "the first words")
        self.id("new-chat").click()
        self.until(lambda: self.titles() == ["First"] and not self.shown(), "the new chat")
        self.assertTrue(self.server.cut_off.wait(browser.PATIENCE_SECONDS), "the stream was not closed")
        self.one(".chat-open").click()
        self.until(lambda: self.shown()[1].startswith("word"), "what had come")

    def test_the_chats_of_a_tab_are_kept_once_that_is_switched_on(self):
        self.start("First", "Second")
        self.one("label[for=keep-chats]").click()
        self.script("sessionStorage.clear()")  # as if the tab had been closed
        self.open(keep=True)
        self.id("chats-toggle").click()
        self.assertEqual(self.titles(), ["Second", "First"])

    def test_deleting_is_undone_also_of_the_chat_on_screen(self):
        for keeps in (False, True):
            with self.subTest(keeps=keeps):
                self.start("First", "Second")
                if keeps:
                    self.one("label[for=keep-chats]").click()
                self.delete("First")
                self.assertIn("Deleted “First”.", self.one(".chats-undo").text)
                self.assertEqual(self.driver.switch_to.active_element.get_attribute("id"), "undo-delete")
                self.driver.switch_to.active_element.send_keys(Keys.ENTER)
                self.assertEqual((self.titles(), self.shown()), (["Second", "First"], ["Second", "Hello!"]))
                self.delete("Second")
                self.assertEqual((self.titles(), self.shown()), (["First"], []))
                self.id("undo-delete").click()
                self.assertEqual((self.titles(), self.shown()), (["Second", "First"], ["Second", "Hello!"]))
                self.assertEqual(self.all("#undo-delete"), [])
                self.id("delete-all").click()
                self.one(".question .danger").click()
                self.assertEqual(self.titles(), [])
                self.id("undo-delete").click()
                self.assertEqual((self.titles(), self.shown()), (["Second", "First"], ["Second", "Hello!"]))

    def test_what_is_deleted_leaves_the_storage_at_once(self):
        self.start("Secret words")
        self.delete("Secret words")
        self.assertNotIn("Secret", self.script("return JSON.stringify(sessionStorage) + JSON.stringify(localStorage)"))
        self.open(keep=True)
        self.id("chats-toggle").click()
        self.assertEqual((self.titles(), self.all("#undo-delete")), ([], []))

    def test_words_are_found_in_titles_and_in_what_was_said(self):
        self.server.answer = [content("The TIDES follow the moon and, less so, the sun."), ending("stop")]
        self.start("Why is the sea restless?")
        self.server.answer = [content("Four."), ending("stop")]
        self.id("new-chat").click()
        self.ask("What is 2 + 2?")
        for words, found in (("tides", ["Why is the sea restless?"]), ("WHAT is", ["What is 2 + 2?"]),
                             ("(", []), ("", ["What is 2 + 2?", "Why is the sea restless?"])):
            with self.subTest(words=words):
                self.script("arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))", self.id("chat-search"), words)
                self.assertEqual(self.titles(), found)
                self.assertEqual("No conversation has these words." in self.id("chats").text, not found)
        self.id("chat-search").send_keys("tides")
        self.assertEqual(self.one(".chat-words mark").text, "TIDES")
        self.one(".chat-open").click()
        self.assertEqual(self.shown()[0], "Why is the sea restless?")

    def choose(self, name, text):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / name
        path.write_text(text, encoding="utf-8")
        self.script("document.getElementById('import-file').hidden = false")
        self.id("import-file").send_keys(str(path))

    def exported(self):
        """The text of the file that the page would have the browser save."""
        self.script("""
          window.saved = null;
          URL.createObjectURL = (blob) => { window.saved = blob; return '#'; };
          HTMLAnchorElement.prototype.click = function () { window.savedAs = this.download; }""")
        self.id("export-chats").click()
        self.assertRegex(self.script("return window.savedAs"), r"^fathom-chats-\d{4}-\d\d-\d\d\.json$")
        return self.driver.execute_async_script("window.saved.text().then(arguments[0])")

    def test_an_exported_file_is_imported_again_once(self):
        self.start("First", "Second")
        text = self.exported()
        self.assertEqual([chat["title"] for chat in json.loads(text)["chats"]], ["Second", "First"])
        self.choose("mine.json", text)
        self.until(lambda: self.titles() == ["Second", "First"], "nothing to come twice")
        self.open()  # as another tab
        self.id("chats-toggle").click()
        self.assertEqual(self.titles(), [])
        self.choose("mine.json", text)
        self.until(lambda: self.titles() == ["Second", "First"], "the conversations")
        self.all(".chat-open")[1].click()
        self.assertEqual(self.shown(), ["First", "Hello!"])

    def test_a_file_that_is_not_taken_is_named_with_the_reason(self):
        self.start("First")
        chat = json.loads(self.exported())
        cases = [("no.json", "{", "it is not valid JSON"), ("list.json", "[1]", "no file that this page exported"),
                 ("new.json", json.dumps(chat | {"version": 2}), "its version is 2, this page reads 1"),
                 ("odd.json", json.dumps(chat | {"chats": [chat["chats"][0], {"title": "x", "at": 1, "turns": [{"role": "user"}]}]}), "conversation 2 needs"),
                 ("many.json", json.dumps(chat | {"chats": [chat["chats"][0] | {"at": i} for i in range(60)]}), "11 of the 60 conversations")]
        for name, text, words in cases:
            with self.subTest(name=name):
                self.choose(name, text)
                self.until(lambda: words in self.one(".chats-problem").text, words)
                self.assertIn(f"“{name}”", self.one(".chats-problem").text)
        self.assertIn("First", self.titles())


if __name__ == "__main__":
    skipping.main()
