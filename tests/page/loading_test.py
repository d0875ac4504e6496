"""The page in headless Chromium while the server is not taking requests: what it says, and that it goes on by itself."""
import browser
import skipping
import views_test


class LoadingTest(browser.FakeServerTest):
    def load(self, **state):
        self.server.readiness = {"status": "loading", "phase": "weights", "progress": 0.0, "seconds_left": None} | state
        self.server.stats = lambda now: []

    def test_phase_percent_and_time_left_are_shown_until_the_model_is_there(self):
        for phase, progress, left, words in (
                ("starting", 0, None, ["Starting"]), ("weights", 0.426, 37.2, ["Loading the weights", "42%, 38 s left"]),
                ("weights", 0.5, 600, ["Loading the weights", "50%, 10 min left"]), ("memory plan", 0, None, ["Planning the memory"])):
            with self.subTest(phase=phase, progress=progress):
                self.load(phase=phase, progress=progress, seconds_left=left)
                self.open()
                self.assertEqual(self.id("loading").text.split("\n"), words)
                self.assertEqual(self.id("pulse-text").text, f"Loading {int(100 * progress)}%" if progress else "Loading")
                self.assertEqual(self.script("return document.getElementById('loading-bar').hasAttribute('value')"), progress > 0)
        self.server.readiness = {"status": "ready", "running": 0, "waiting": 0}
        self.until(lambda: not self.id("loading").is_displayed(), "the end of loading")
        self.assertEqual(self.id("pulse-text").text, "Idle")
        self.assertEqual(self.console_errors(), [])

    def test_other_reasons_have_their_words(self):
        for status, words in (("draining", "Shutting down"), ("stalled", "Stalled"), ("paused", "Paused")):
            with self.subTest(status=status):
                self.server.readiness = {"status": status}
                self.open()
                self.assertEqual(self.id("pulse-text").text, words)
                self.assertFalse(self.id("loading").is_displayed())

    def test_it_fits_a_phone_and_a_server_that_goes_is_offline(self):
        self.load(progress=0.1, seconds_left=12)
        for scheme in ("dark", "light"):
            self.open(size=browser.PHONE, scheme=scheme)
            self.assertEqual(self.script("return document.documentElement.scrollWidth"), browser.PHONE[0])
            self.assertEqual(self.script(views_test.AccessTest.CONTRAST), [])
        self.assertIn("10%, 12 s left", self.id("loading").text)
        self.server.close()
        self.wait_for_script("document.getElementById('pulse').dataset.state === 'down'", "the page to see that it is offline")
        self.assertFalse(self.id("loading").is_displayed())


if __name__ == "__main__":
    skipping.main()
