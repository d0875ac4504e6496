"""The page in headless Chromium: the view of the engine, and what holds everywhere: widths, keyboard, colours, origins."""
import browser
import skipping
from browser import PHONE, FakeServerTest, Keys
from fake_server import WEATHER_CALL, bounded_samples, busy_samples, content, ending, reasoning, speculating_samples, split_samples, usage


class EngineTest(FakeServerTest):
    def test_plots_have_lines_axes_units_and_a_legend(self):
        self.open(view="#engine")
        self.until(lambda: len(self.all(".plot path.line")) > 10, "the plots' lines")
        charts = self.all(".chart")
        self.assertEqual(len(charts), 6)
        for chart in charts:
            self.assertTrue(chart.find_element("css selector", ".unit").text)
            self.assertTrue(chart.find_elements("css selector", ".plot path.line"))
            self.assertIn("now", chart.text)
            self.assertGreaterEqual(len(chart.find_elements("css selector", ".plot text.tick")), 6)
        self.assertIn("p99", charts[2].text)
        self.assertIn("−4 min", charts[0].text)

    def test_drafts_are_shown_only_by_a_server_that_speculates(self):
        self.open(view="#engine")
        self.until(lambda: self.all(".plot path.line"), "the plots' lines")
        self.assertEqual((len(self.all(".tile")), len(self.all(".chart"))), (6, 6))
        self.server.stats = lambda now: speculating_samples(now)
        self.open(view="#engine")
        self.until(lambda: len(self.all(".chart")) == 9, "the plots of the drafts")
        self.assertIn("Accepted drafts", self.all(".chart")[7].text)
        self.script("document.querySelectorAll('.plot')[7].focus()")
        self.driver.switch_to.active_element.send_keys(Keys.END)
        self.assertRegex(self.all(".chart")[7].find_element("class name", "value").text, "^(83|–)$")
        self.until(lambda: self.all(".chart")[8].find_elements("css selector", ".plot path.line"), "their lines")
        self.assertIn("of 3 drafts", self.one("#tiles").text)
        self.assertIn("Drafts asked for", self.all(".chart")[6].text)
        self.assertEqual([self.one("#tiles").text.count(label) for label in ("Draft depth", "Accept length")], [1, 1])

    def test_times_of_steps_are_shown_only_by_a_server_that_bounds_them(self):
        self.open(view="#engine")
        self.until(lambda: self.all(".plot path.line"), "the plots' lines")
        self.assertEqual(len(self.all(".chart")), 6)
        self.server.stats = lambda now: bounded_samples(now)
        self.open(view="#engine")
        self.until(lambda: len(self.all(".chart")) == 7, "the plot of the steps")
        self.until(lambda: len(self.all(".chart")[6].find_elements("css selector", ".plot path.line")) >= 3, "its lines")
        for name in ("Measured", "Predicted", "Bound"):
            self.assertIn(name, self.all(".chart")[6].text)

    def test_where_the_time_of_a_step_goes_is_plotted_as_far_as_it_is_measured(self):
        # The last sample is a busy one.
        self.server.stats = lambda now: [sample | {"t": now - i} for i, sample in enumerate(s for s in split_samples(now) if s["running"] == 20)][::-1]
        self.open(view="#engine")
        self.until(lambda: len(self.all(".chart")) == 8, "the plots of the parts")
        step, host = self.all(".chart")[6:8]
        self.until(lambda: step.find_elements("css selector", ".plot path.line, .plot circle.dot"), "their lines")
        values = lambda chart: [node.text for node in chart.find_elements("class name", "value")]
        self.assertEqual(values(step), ["16", "12", "2.2", "0.3", "1.5"])
        self.assertEqual(values(host), ["60", "30", "50"])
        for name in ("Step", "Layers", "Sampling", "Wait for masks", "Other"):
            self.assertIn(name, step.find_element("class name", "legend").text)
        strokes = {self.script("const s = getComputedStyle(arguments[0]); return s.stroke + s.strokeDasharray", line)
                   for line in step.find_elements("css selector", ".legend .line")}
        self.assertEqual(len(strokes), 5, "parts look alike")

    def test_parts_that_an_engine_does_not_measure_are_left_out(self):
        self.server.stats = lambda now: [sample | {"t": now - i} for i, sample in
                                         enumerate(s for s in split_samples(now, measures_layers=False) if s["running"] == 20)][::-1]
        self.open(view="#engine")
        self.until(lambda: len(self.all(".chart")) == 8, "the plots of the parts")
        self.until(lambda: self.all(".chart")[6].find_elements("css selector", ".plot .s0"), "the line of the step")
        self.assertEqual([node.text for node in self.all(".chart")[6].find_elements("class name", "value")], ["16", "–", "–", "0.3", "–"])
        self.assertEqual(self.all(".chart")[6].find_elements("css selector", ".plot .s1, .plot .s2, .plot .s4"), [])

    def test_plots_that_come_later_keep_their_places(self):
        self.server.stats = lambda now: bounded_samples(now)
        self.open(view="#engine")
        self.until(lambda: len(self.all(".chart")) == 7, "the plot of the steps")
        self.server.stats = lambda now: [bounded | split for bounded, split in zip(bounded_samples(now), split_samples(now))]
        self.until(lambda: len(self.all(".chart")) == 9, "the plots of the parts")
        self.assertEqual([node.text for node in self.all(".chart h3")][6:],
                         ["Time of a step", "Host’s work on a step", "Longest step with answers"])

    def test_a_server_that_has_just_started_fills_the_plots_with_its_first_minute(self):
        self.server.stats = lambda now: busy_samples(now, 20)
        self.open(view="#engine")
        self.until(lambda: self.all(".plot path.line"), "the plots' lines")
        self.assertIn("−30 s", self.one(".plot").text)
        self.assertNotIn("min", self.one(".plot").text)

    def test_times_below_a_plot_do_not_overlap(self):
        for size in (browser.DESKTOP, PHONE):
            self.open(size, view="#engine")
            self.until(lambda: self.all(".plot path.line"), "the plots' lines")
            overlaps = self.script("""
              const boxes = [...document.querySelectorAll('.plot')[0].querySelectorAll('.tick')]
                .filter((node) => /now|min/.test(node.textContent)).map((node) => node.getBoundingClientRect())
                .sort((a, b) => a.left - b.left);
              return boxes.length < 3 || boxes.some((box, i) => i > 0 && box.left < boxes[i - 1].right + 4)""")
            self.assertFalse(overlaps, size)

    def test_the_values_under_the_pointer_and_the_arrow_keys_are_read_out(self):
        self.open(view="#engine")
        self.until(lambda: self.all(".plot path.line"), "the plots' lines")
        plot = self.one(".plot")
        browser.webdriver.ActionChains(self.driver).move_to_element(plot).perform()
        self.until(lambda: self.one(".when").text, "a time to be read out under the pointer")
        self.assertTrue(self.all(".plot .cursor"))
        browser.webdriver.ActionChains(self.driver).move_to_element(self.id("tab-engine")).perform()
        self.until(lambda: not self.one(".when").text, "the time to go with the pointer")
        self.script("document.querySelector('.plot').focus()")
        self.driver.switch_to.active_element.send_keys(Keys.ARROW_LEFT)
        self.until(lambda: self.one(".when").text, "a time to be read out by the keyboard")
        self.assertIn("Latest: Generation", plot.get_attribute("aria-label"))

    def test_the_same_figures_stand_in_a_table(self):
        self.open(view="#engine")
        self.until(lambda: self.all(".plot path.line"), "the plots' lines")
        self.one(".as-table summary").click()
        self.until(lambda: len(self.all(".as-table tbody tr")) >= 19, "the rows of the table")
        self.assertEqual(self.all(".as-table thead th")[1].text, "Generation, tokens/s")

    def test_without_samples_the_plots_say_so(self):
        self.server.stats = lambda now: []
        self.open(view="#engine")
        self.until(lambda: "No data yet" in self.one(".chart").text, "the plot to say that it is empty")

    def test_a_hidden_page_asks_for_nothing(self):
        self.open()
        # The page notes itself what it asks for while it is hidden, and says when that was long enough: one that
        # can be seen asks once a second.
        self.script("""
          const send = window.fetch;
          window.askedHidden = [];
          window.fetch = (path, options) => {
            if (document.hidden) askedHidden.push(path);
            return send(path, options);
          };
          document.addEventListener('visibilitychange', () => {
            if (document.hidden) setTimeout(() => send('/hidden-for-long'), 2500);
          })""")
        page = self.driver.current_window_handle
        self.driver.switch_to.new_window("tab")
        try:
            self.until(lambda: "/hidden-for-long" in self.server.paths, "the page to be hidden for a while")
        finally:
            self.driver.close()
            self.driver.switch_to.window(page)
        self.assertEqual(self.script("return askedHidden"), [])
        before = self.server.paths.count("/stats")
        self.until(lambda: self.server.paths.count("/stats") > before, "the page to ask again")


class AccessTest(FakeServerTest):
    def test_nothing_scrolls_sideways_at_phone_width(self):
        self.server.answer = [reasoning("thinking " * 30), content("x" * 300 + "\n\n```\n" + "y" * 300 + "\n```\n\n" +
                              "| aaaaaaaaaaaaaaaaaaaa " * 6 + "|\n" + "|---" * 6 + "|\n"), *WEATHER_CALL]
        for view in ("", "#engine"):
            self.open(PHONE, view=view)
            if not view:
                self.ask("A" * 200)
            self.assertEqual(self.script("return document.documentElement.scrollWidth"), PHONE[0])
            outside = self.script("""
              return [...document.querySelectorAll('button, textarea, h1, h2, h3, svg.plot')]
                .filter((node) => node.offsetParent !== null || node.getClientRects().length)
                .filter((node) => node.getBoundingClientRect().right > innerWidth + 1)
                .filter((node) => !node.closest('.only-read'))
                .map((node) => node.outerHTML.slice(0, 80))""")
            self.assertEqual(outside, [])
        self.open(PHONE)
        self.assertFalse(self.id("settings").is_displayed())
        self.id("settings-toggle").click()
        self.assertLessEqual(self.id("settings").rect["width"], PHONE[0])
        self.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
        self.assertFalse(self.id("settings").is_displayed())

    def test_everything_works_with_the_keyboard_alone(self):
        self.open()
        self.script("document.activeElement.blur()")
        body = self.one("body")
        body.send_keys(Keys.TAB)
        self.assertEqual(self.driver.switch_to.active_element.text, "Skip to the message box")
        self.driver.switch_to.active_element.send_keys(Keys.ENTER)
        focus = self.driver.switch_to.active_element
        self.assertEqual(focus.get_attribute("id"), "prompt")
        focus.send_keys("one", Keys.SHIFT + Keys.ENTER, Keys.NULL, "two", Keys.ENTER)
        self.wait_for_answer()
        self.assertEqual(self.server.requests[0]["messages"][0]["content"], "one\ntwo")
        self.script("document.getElementById('tab-chat').focus()")
        self.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
        self.assertTrue(self.id("view-engine").is_displayed())
        self.assertEqual(self.driver.switch_to.active_element.get_attribute("id"), "tab-engine")
        self.driver.switch_to.active_element.send_keys(Keys.HOME)
        self.assertTrue(self.id("view-chat").is_displayed())

    def test_every_stop_of_the_tab_key_shows_where_it_is(self):
        self.open()
        self.script("document.activeElement.blur()")
        num_seen = 0
        while True:
            self.driver.switch_to.active_element.send_keys(Keys.TAB)
            name, is_new, outline, around = self.script("""
              const node = document.activeElement;
              const isNew = node !== document.body && !node.dataset.seen;
              node.dataset.seen = 'yes';
              const shown = node.type === 'radio' ? node.nextElementSibling : node;
              return [node.id || node.outerHTML.slice(0, 60), isNew, getComputedStyle(shown).outlineStyle,
                      getComputedStyle(node.closest('.composer') ?? node).boxShadow]""")
            if not is_new:
                break
            num_seen += 1
            self.assertTrue(outline != "none" or (name == "prompt" and around != "none"), name)
        self.assertGreater(num_seen, 20)

    def test_every_control_has_a_name(self):
        self.open()
        self.ask("Hi")
        nameless = self.script("""
          return [...document.querySelectorAll('button, input, textarea, select')].filter((node) =>
            !(node.getAttribute('aria-label') || node.textContent.trim() || node.labels?.length))
            .map((node) => node.outerHTML)""")
        self.assertEqual(nameless, [])

    CONTRAST = """
      const channel = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
      const parse = (text) => text.match(/[\\d.]+/g).map(Number);
      const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
      const backgroundOf = (node) => {
        for (; node; node = node.parentElement) {
          const c = parse(getComputedStyle(node).backgroundColor);
          if (c.length === 3 || c[3] === 1) return c;
        }
        return [255, 255, 255];
      };
      const bad = [];
      const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      while (walker.nextNode()) {
        const node = walker.currentNode.parentElement;
        if (!walker.currentNode.textContent.trim() || !node.getClientRects().length) continue;
        const style = getComputedStyle(node);
        const colour = parse(node.namespaceURI.endsWith('svg') ? style.fill : style.color);
        const [a, b] = [luminance(colour), luminance(backgroundOf(node))].sort((x, y) => y - x);
        const ratio = (a + 0.05) / (b + 0.05);
        if (ratio < 4.5) bad.push(`${ratio.toFixed(2)} ${node.className?.baseVal ?? node.className} ${walker.currentNode.textContent.slice(0, 30)}`);
      }
      return bad"""

    def test_text_has_enough_contrast_in_light_and_dark(self):
        self.server.answer = [reasoning("Let me see."), content("**b** `c` [l](https://a.b)\n\n> q\n\n```\nx\n```\n"), *WEATHER_CALL]
        for scheme in ("light", "dark"):
            with self.subTest(scheme=scheme):
                self.open(scheme=scheme)
                self.set("temperature", "9")
                self.id("set-temperature").clear()
                self.ask("Hi")
                self.one(".reasoning summary").click()
                self.assertEqual(self.script(self.CONTRAST), [])
                self.server.error, error = (400, {"error": {"message": "m"}}), self.server.error
                self.ask("No")
                self.server.error = error
                self.assertEqual(self.script(self.CONTRAST), [])
                self.id("tab-engine").click()
                self.until(lambda: self.all(".plot path.line"), "the plots' lines")
                self.assertEqual(self.script(self.CONTRAST), [])

    def test_dark_and_light_follow_the_system_or_the_button(self):
        paper = "return getComputedStyle(document.body).backgroundColor"
        self.open(scheme="light")
        light = self.script(paper)
        self.open(scheme="dark")
        dark = self.script(paper)
        self.assertNotEqual(light, dark)
        self.id("theme").click()  # light, chosen
        self.assertEqual(self.script(paper), light)
        self.id("theme").click()  # dark, chosen
        self.open(scheme="light", keep=True)
        self.assertEqual(self.script(paper), dark)
        self.assertEqual(self.id("theme").get_attribute("aria-label"), "Colours: dark")

    def test_reduced_motion_is_respected(self):
        for motion, expected in (("no-preference", "pulse"), ("reduce", "none")):
            self.open(motion=motion)
            self.assertEqual(self.script(
                "return getComputedStyle(document.querySelector('.pulse[data-state=busy] .dot')).animationName"), expected)

    def test_no_request_leaves_the_origin_and_the_console_is_quiet(self):
        self.requested_urls()  # of earlier tests
        self.open()
        self.server.answer = [content("![x](https://example.org/x.png) https://example.org"), ending("stop"), usage(1, 1)]
        self.ask("Hi")
        self.id("tab-engine").click()
        self.until(lambda: self.all(".plot path.line"), "the plots' lines")
        urls = [url for url in self.requested_urls() if not url.startswith(("about:", "chrome:"))]
        self.assertGreater(len(urls), 10)
        self.assertEqual([url for url in urls if not url.startswith("http://127.0.0.1:")], [])
        self.assertEqual(self.console_errors(), [])


if __name__ == "__main__":
    skipping.main()
