"""The page in headless Chromium: conversations that the browser keeps, and what happens to them."""
import json
import threading

import browser
import skipping
from browser import Keys
from fake_server import content, ending

STORED = "return Object.keys(localStorage).filter((key) => key.startsWith('fathom.chat'))"


class KeepTest(browser.FakeServerTest):
    def start(self, keeps=True, **how):
        self.open(**how)
        self.id("chats-toggle").click()
        if keeps and not self.id("keep-chats").is_selected():
            self.one("label[for=keep-chats]").click()

    def stored(self):
        return self.script(STORED)

    def titles(self):
        return [node.text for node in self.all(".chat-title")]

    def shown(self):
        return [node.text for node in self.all(".bubble, .prose")]

    def talk(self, *questions):
        """A conversation for each question."""
        for question in questions:
            self.id("new-chat").click()
            self.ask(question)
            self.until(lambda: self.titles()[0] == question, "the conversation in the list")

    def button(self, kind, title):
        return self.one(f".chat-{kind}[aria-label$='“{title}”']")

    def test_nothing_is_stored_before_the_switch_is_on_and_nothing_stays_after_it_is_off(self):
        self.start(keeps=False)
        self.ask("Secret")
        self.assertEqual((self.stored(), self.titles()), ([], ["Secret"]))
        self.assertEqual(self.script("return Object.keys(localStorage)"), [])
        self.one("label[for=keep-chats]").click()
        self.until(lambda: self.titles() == ["Secret"], "the conversation on screen in the list")
        self.assertEqual(len(self.stored()), 2)
        self.one("label[for=keep-chats]").click()
        self.assertIn("delete the conversation?", self.one(".question").text)
        self.assertTrue(self.id("keep-chats").is_selected(), "off before it was confirmed")
        self.all(".question button")[1].click()
        self.assertEqual(len(self.stored()), 2)
        self.one("label[for=keep-chats]").click()
        self.one(".question .danger").click()
        self.assertEqual((self.stored(), self.titles()), ([], ["Secret"]), "what is on screen stays with its tab")
        self.assertFalse(self.id("keep-chats").is_selected())
        self.assertEqual(self.shown(), ["Secret", "Hello!"])
        self.ask("More")
        self.assertEqual(self.stored(), [])

    def test_a_kept_conversation_is_opened_again_and_goes_on(self):
        self.start()
        self.talk("First", "Second")
        self.assertEqual(self.titles(), ["Second", "First"])
        self.script("sessionStorage.clear()")  # as if the tab had been closed
        self.open(keep=True)
        self.assertEqual(self.shown(), [])
        self.id("chats-toggle").click()
        self.assertTrue(self.id("keep-chats").is_selected())
        self.all(".chat-open")[1].click()
        self.assertEqual(self.shown(), ["First", "Hello!"])
        self.assertEqual(self.one("[aria-current]").text.split("\n")[0], "First")
        self.ask("Go on")
        self.assertEqual([message["content"] for message in self.server.requests[-1]["messages"]], ["First", "Hello!", "Go on"])
        self.until(lambda: self.titles() == ["First", "Second"], "the one that was used last to come first")
        self.open(keep=True)
        self.assertEqual(self.shown(), ["First", "Hello!", "Go on", "Hello!"])

    def test_a_conversation_is_renamed_with_the_keyboard(self):
        self.start()
        self.talk("First")
        self.button("rename", "First").send_keys(Keys.ENTER)
        self.driver.switch_to.active_element.send_keys("Other", Keys.ESCAPE)
        self.assertEqual(self.titles(), ["First"])
        self.assertEqual(self.driver.switch_to.active_element, self.button("rename", "First"))
        self.driver.switch_to.active_element.send_keys(Keys.ENTER)
        self.driver.switch_to.active_element.send_keys("<b>Named</b>", Keys.ENTER)
        self.assertEqual(self.titles(), ["<b>Named</b>"])
        self.ask("More")
        self.open(keep=True)
        self.id("chats-toggle").click()
        self.assertEqual(self.titles(), ["<b>Named</b>"])

    def test_one_or_all_are_deleted_all_after_a_question(self):
        self.start()
        self.talk("First", "Second", "Third")
        self.button("delete", "First").click()
        self.assertEqual(self.titles(), ["Third", "Second"])
        self.assertEqual(self.shown(), ["Third", "Hello!"])
        self.button("delete", "Third").click()
        self.assertEqual((self.titles(), self.shown()), (["Second"], []), "the one on screen was deleted")
        self.talk("Fourth")
        self.id("delete-all").click()
        self.assertIn("Delete all 2 conversations?", self.one(".question").text)
        self.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
        self.assertEqual(len(self.titles()), 2)
        self.id("delete-all").click()
        self.one(".question .danger").click()
        self.assertEqual((self.titles(), self.shown(), self.stored()), ([], [], ["fathom.chats"]))
        self.assertTrue(self.id("keep-chats").is_selected())

    def test_a_conversation_that_another_tab_deleted_does_not_come_back(self):
        self.start()
        self.talk("First")
        self.script("localStorage.removeItem(arguments[0]); localStorage.setItem('fathom.chats', '[]')",
                    next(key for key in self.stored() if key != "fathom.chats"))
        self.ask("More")
        self.assertEqual(self.stored(), ["fathom.chats"])
        self.until(lambda: "no longer kept" in self.id("chats").text, "the page to say so")

    def test_an_answer_that_is_left_ends_in_its_own_conversation(self):
        self.start()
        self.talk("First")
        self.server.answer, self.server.event_seconds = [content("word ")] * 4000, 0.02
        self.id("new-chat").click()
        self.send("Second")
        self.until(lambda: "word" in self.id("messages").text, "the first words")
        self.all(".chat-open")[1].click()
        self.wait_for_script("!document.getElementById('send').hidden", "the end of the answer")
        self.assertEqual(self.shown(), ["First", "Hello!"])
        self.assertTrue(self.server.cut_off.wait(browser.PATIENCE_SECONDS), "the stream was not closed")
        next(node for node in self.all(".chat-open") if "Second" in node.text).click()
        self.assertRegex(self.shown()[1], "^word")
        self.assertIn("stopped by you", self.one(".figures").text)

    def test_choosing_the_conversation_on_screen_does_not_end_its_answer(self):
        go_on = threading.Event()
        self.start()
        self.server.answer = [content("first "), go_on, content("last"), ending("stop")]
        self.send("First")
        self.until(lambda: "first" in self.id("messages").text, "the first words")
        self.one(".chat-open").click()
        self.assertTrue(self.id("stop").is_displayed())
        go_on.set()
        self.wait_for_answer()
        self.assertEqual(self.shown(), ["First", "first last"])

    def test_the_oldest_give_way_when_there_are_too_many_or_they_are_too_long(self):
        self.open()
        left = self.driver.execute_async_script("""
          const done = arguments[0];
          import('/page/kept_chats.js').then(({KeptChats, kMaxChats, kMaxLength}) => {
            const chats = new KeptChats();
            let now = 1000;
            Date.now = () => ++now;
            const talk = (text) => [{role: 'user', content: text}];
            const before = chats.add(talk('x'));
            chats.turnOn();
            for (let i = 0; i < kMaxChats + 3; ++i) chats.add(talk(`chat ${i}`));
            const many = chats.list().map(({title}) => title);
            const long = 'y'.repeat(0.45 * kMaxLength);
            for (const name of ['a', 'b', 'c']) chats.add(talk(name + long));
            const tooLong = chats.add(talk('z'.repeat(kMaxLength)));
            const keys = Object.keys(localStorage).filter((key) => key.startsWith('fathom.chat')).length;
            done([before, many.length, many[0], many.at(-1), chats.list().map(({title}) => title[0]), tooLong, keys]);
          }).catch((error) => done(String(error)))""")
        self.assertEqual(left, [None, 50, "chat 52", "chat 3", ["c", "b"], None, 3])

    def test_a_full_storage_drops_the_oldest_and_then_says_so(self):
        self.start()
        self.talk("First")
        self.script("""
          const set = Storage.prototype.setItem;
          Storage.prototype.setItem = function (key, value) {
            if (this === localStorage && key.startsWith('fathom.chat.') && window.full) throw new DOMException('full', 'QuotaExceededError');
            return set.call(this, key, value);
          };
          window.full = true""")
        self.id("new-chat").click()
        self.ask("Second")
        self.until(lambda: "storage is full" in self.id("chats").text, "the page to say so")
        self.assertEqual(self.shown(), ["Second", "Hello!"])
        self.script("window.full = false")
        self.ask("More")
        self.until(lambda: self.titles() == ["Second"], "the conversation to be kept after all")
        self.assertNotIn("storage is full", self.id("chats").text)

    BROKEN = [
        {"fathom.chats": "{"}, {"fathom.chats": "null"}, {"fathom.chats": "7"},
        {"fathom.chats": json.dumps([None, 1, {"id": 3}, {"id": "a", "title": "No turns", "at": 1, "length": 2}])},
        {"fathom.chats": json.dumps([{"id": "a", "title": "T", "at": 1e300, "length": 2}]), "fathom.chat.a": "{]"},
        {"fathom.chats": json.dumps([{"id": "a", "title": "T", "at": 1, "length": 2}]), "fathom.chat.a": '[{"role": "user"}, null]'},
        {"fathom.chats": json.dumps([{"id": "a\"]", "title": "T", "at": 1, "length": 2}]),
         'fathom.chat.a"]': '[{"role": "assistant", "content": "x", "reasoning": "", "toolCalls": [null]}]'},
    ]

    def test_storage_that_makes_no_sense_does_not_break_the_page(self):
        self.start()
        for broken in self.BROKEN:
            with self.subTest(broken=broken):
                self.script("""localStorage.clear(); sessionStorage.clear();
                  for (const [key, value] of Object.entries(arguments[0])) localStorage.setItem(key, value);
                  sessionStorage.setItem('fathom.conversation', '{"id": "a", "turns": [{"role": "tool", "content": 3}]}');
                  sessionStorage.setItem('fathom.settings', '{"temperature": {}, "system": 3, "tools": null}')""", broken)
                self.open(keep=True)
                self.id("chats-toggle").click()
                self.assertEqual(self.shown(), [])
                if self.titles():
                    self.one(".chat-open").click()
                    self.assertIn("cannot be read", self.id("chats").text)
                    self.one(".chat-delete").click()
                self.ask("Works")
                self.until(lambda: self.titles() == ["Works"], "the new conversation in the list")
        self.assertEqual(self.console_errors(), [])

    def test_conversations_outlive_a_broken_list(self):
        self.start()
        self.talk("First", "Second")
        self.script("localStorage.setItem('fathom.chats', 'oops')")
        self.open(keep=True)
        self.id("chats-toggle").click()
        self.assertEqual(sorted(self.titles()), ["First", "Second"])
        self.one(".chat-open").click()
        self.assertEqual(self.shown()[1], "Hello!")

    def test_the_list_lies_over_the_chat_on_a_phone_and_closes_with_a_choice(self):
        self.start(size=browser.PHONE)
        self.id("chats-close").click()
        self.ask("First")
        self.assertEqual(self.script("return document.documentElement.scrollWidth"), browser.PHONE[0])
        self.id("chats-toggle").click()
        self.assertEqual(self.driver.switch_to.active_element.get_attribute("id"), "chats-close")
        self.id("delete-all").click()
        self.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
        self.assertTrue(self.id("chats").is_displayed(), "Escape did more than to take the question back")
        self.one(".chat-open").click()
        self.assertFalse(self.id("chats").is_displayed())
        self.assertEqual(self.shown(), ["First", "Hello!"])


if __name__ == "__main__":
    skipping.main()
