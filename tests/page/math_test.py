"""How the page shows formulas in headless Chromium: as MathML, while they stream, and what is none."""
import threading
import unittest

import browser
import skipping
from fake_server import KATEX, content, ending, usage

FRACTION = "\\frac{a}{b}"


@unittest.skipUnless(KATEX.is_file(), "no libjs-katex; to run it: tools/install_packages.sh")
class MathTest(browser.FakeServerTest):
    def show(self, text, **how):
        self.server.answer = [content(text[i:i + 3]) for i in range(0, len(text), 3)] + [ending("stop"), usage(1, 1)]
        self.server.event_seconds = 0
        self.open(**how)
        self.ask("Show")

    def formulas(self):
        """[(block or inline, TeX)] of what is shown."""
        return [tuple(pair) for pair in self.script("""
          return [...document.querySelectorAll('.prose math')].map((math) =>
            [math.getAttribute('display') ?? 'inline', math.querySelector('annotation').textContent.trim()])""")]

    def wait_for_formulas(self, number):
        self.wait_for_script(f"document.querySelectorAll('.prose math').length === {number}", f"{number} formulas")

    def test_all_four_marks_make_formulas_within_lines_and_of_their_own(self):
        self.show(f"Let $x^2$ and \\({FRACTION}\\), **bold $y$**, so\n$$\nx = 1\n$$\nor \\[y\n= 2\\] or $$z$$ within.\n\n\\[\na\n\n= b\n\\]\n\n"
                  "- item $i$\n- $$j$$\n\n| $c$ | d |\n|---|---|\n| \\(e\\) | $n$th |\n\n# $h$")
        self.wait_for_formulas(13)
        self.assertEqual(self.formulas(), [
            ("inline", "x^2"), ("inline", FRACTION), ("inline", "y"), ("block", "x = 1"), ("block", "y\n= 2"), ("block", "z"),
            ("block", "a\n\n= b"), ("inline", "i"), ("block", "j"), ("inline", "c"), ("inline", "e"), ("inline", "n"), ("inline", "h")])
        self.assertEqual(len(self.all(".prose mfrac")), 1)
        self.assertNotIn("$", self.one(".prose").text)
        self.assertEqual(self.console_errors(), [])

    NONE = ["It costs $5 and $6.", "From $5 to 10$ or so", "$5-$10, $7", "US$5 and A$6$", "echo $HOME/$USER", "`$x$` and `\\(y\\)`",
            "```tex\n$x$ $$y$$ \\[z\\]\n```", "an open $x and no more", "an open \\(x", "$$\nx\n", "\\$x\\$ and \\$5", "$ x $", "a $ b"]

    def test_prices_names_code_and_open_marks_are_no_formulas(self):
        self.open()
        for text in self.NONE:
            with self.subTest(text=text):
                shown = self.driver.execute_async_script("""
                  const [text, done] = arguments;
                  import('/page/markdown.js').then(async ({MarkdownView}) => {
                    const node = document.createElement('div');
                    new MarkdownView(node).show(text);
                    const {mathNode} = await import('/page/math.js');
                    mathNode('x', 'x');
                    await import('/page/katex.js');
                    done([node.querySelectorAll('.math').length, node.textContent]);
                  }).catch((error) => done(String(error)))""", text)
                self.assertEqual(shown[0], 0, shown)
                if "`" not in text:
                    self.assertEqual(shown[1].strip(), text.replace("\\$", "$").strip())

    def test_a_formula_that_is_still_coming_is_text_and_the_text_around_it_stays(self):
        go_on, end = threading.Event(), threading.Event()
        self.server.answer = [content("Before.\n\nSo $a$ and $$\n\\frac{1"), go_on, content("}{2}\n$$ is it, $b"), end,
                              content("$."), ending("stop"), usage(1, 1)]
        self.open()
        self.send("Show")
        self.until(lambda: "\\frac{1" in self.one(".prose").text, "the open formula as text")
        self.wait_for_formulas(1)
        self.script("document.querySelector('.prose p').dataset.first = 'yes'")
        go_on.set()
        self.wait_for_formulas(2)
        self.assertTrue(self.one(".prose").text.endswith("is it, $b"))
        end.set()
        self.wait_for_answer()
        self.wait_for_formulas(3)
        self.assertEqual(self.one(".prose p").get_attribute("data-first"), "yes", "what had been drawn was drawn anew")

    def test_what_katex_does_not_know_and_what_reaches_out_stays_text(self):
        self.requested_urls()
        self.show("$\\nosuchthing{x}$ $\\frac{1$ $\\href{https://example.org}{x}$ $\\includegraphics{https://example.org/x.png}$ "
                  "$\\htmlStyle{color:red}{x}$ $<img src=x onerror=hit>$ $ok$")
        self.wait_for_script("document.querySelector('.prose math')", "the last formula")
        self.assertEqual(self.all(".prose a, .prose img, .prose [href], .prose [src]"), [])
        for source in ("$\\nosuchthing{x}$", "$\\frac{1$"):
            self.assertIn(source, self.one(".prose").text)
        self.assertEqual([url for url in self.requested_urls() if "example" in url], [])
        self.assertEqual(self.console_errors(), [])

    def test_without_katex_formulas_stay_text_and_nothing_fails(self):
        self.server.has_katex = False
        self.show("So $x^2$.")
        self.until(lambda: "/page/katex.js" in self.server.paths, "the page to ask for KaTeX")
        self.assertEqual(self.one(".prose").text, "So $x^2$.")
        self.assertEqual(self.console_errors(), [])

    def test_katex_is_not_loaded_before_a_formula_comes_and_a_wide_one_scrolls(self):
        self.show("No formula: $5.", size=browser.PHONE)
        self.assertNotIn("/page/katex.js", self.server.paths)
        self.show("$$" + "+".join(f"x_{{{i}}}" for i in range(80)) + "$$", size=browser.PHONE)
        self.wait_for_formulas(1)
        self.assertEqual(self.script("return document.documentElement.scrollWidth"), browser.PHONE[0])
        self.assertTrue(self.script("const f = document.querySelector('.formula'); return f.scrollWidth > f.clientWidth"))


if __name__ == "__main__":
    skipping.main()
