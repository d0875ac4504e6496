"""How the page shows Markdown in headless Chromium: blocks, tables, coloured code; markup stays text."""
import browser
import skipping
from fake_server import content, ending, reasoning, tool_call, usage


class MarkdownTest(browser.FakeServerTest):
    def show(self, text):
        self.server.answer = [content(text[i:i + 3]) for i in range(0, len(text), 3)] + [ending("stop"), usage(1, 1)]
        self.server.event_seconds = 0
        self.open()
        self.ask("Show")

    def texts(self, selector):
        return [node.text for node in self.all(".prose " + selector)]

    def test_blocks_and_spans_become_elements(self):
        self.show("# Title\n\nSome **bold** and *slanted* `code`.\n\n- one\n- two\n  1. inner\n\n> said\n\n"
                  "| a | b |\n|---|---|\n| 1 | 2 |\n\n```py\nx = '**no**'\n```\n\n[site](https://example.org/a)")
        self.assertEqual(self.texts("h3"), ["Title"])
        self.assertEqual(self.texts("strong"), ["bold"])
        self.assertEqual(self.texts("em"), ["slanted"])
        self.assertEqual(self.texts("p > code"), ["code"])
        self.assertEqual(self.texts("ul > li ol > li"), ["inner"])
        self.assertEqual(self.texts("blockquote"), ["said"])
        self.assertEqual(self.texts("td"), ["1", "2"])
        self.assertEqual(self.texts("figure.code pre"), ["x = '**no**'"])
        self.assertEqual(self.one(".prose a").get_attribute("href"), "https://example.org/a")
        self.assertIn("noopener", self.one(".prose a").get_attribute("rel"))

    def test_markup_in_an_answer_stays_text(self):
        hostile = ("<img src=x onerror=\"window.hit=1\"> <script>window.hit=1</script> [x](javascript:window.hit=1) "
                   "**<b onclick=1>**\n\n```html\n</code></pre><iframe srcdoc=x>\n```")
        self.show(hostile)
        self.assertEqual(self.all(".prose img, .prose script, .prose iframe, .prose b, .prose a"), [])
        self.assertIsNone(self.script("return window.hit ?? null"))
        self.assertIn("<img src=x onerror=", self.one(".prose").text)

    def test_markup_in_tool_calls_and_reasoning_stays_text(self):
        self.server.answer = [reasoning("<img src=x>"), tool_call(0, "<img src=y>", '{"a": "<img src=z>"}'),
                              ending("tool_calls")]
        self.open()
        self.ask("Show")
        self.assertEqual(self.all("#messages img"), [])
        self.assertIn("<img src=z>", self.one(".tool-call").text)

    def test_a_long_answer_with_many_stars_is_shown_in_time(self):
        self.show("**a " * 3000)
        self.assertIn("**a", self.one(".prose").text)

    def test_a_table_has_titles_sides_and_bars_within_its_cells(self):
        self.show("Before:\n| name | `a\\|b` | n |\n|:--|:-:|--:|\n| **x** | one \\| two | 1 |\n| y |\n- after | it")
        self.assertEqual(self.texts("p"), ["Before:"])
        self.assertEqual(self.texts("th"), ["name", "a|b", "n"])
        self.assertEqual([node.get_attribute("scope") for node in self.all(".prose th")], ["col"] * 3)
        self.assertEqual(self.texts("td"), ["x", "one | two", "1", "y", "", ""])
        self.assertEqual(self.texts("td strong"), ["x"])
        self.assertEqual([self.script("return getComputedStyle(arguments[0]).textAlign", node)
                          for node in self.all(".prose tbody tr:first-child td")], ["left", "center", "right"])
        self.assertEqual(self.texts("ul > li"), ["after | it"])

    def test_lines_with_bars_are_no_table_without_a_rule_of_as_many_columns(self):
        self.show("a | b\n--- | --- | ---\nc | d\n\n|x|\n|-\\-|\n\n**a** | b")
        self.assertEqual(self.all(".prose table"), [])
        self.assertIn("a | b", self.texts("p")[0])

    def test_code_is_coloured_by_kind_of_token(self):
        code = "def f(x):  # \"why\"\n    return 'a#b' + 0x1F"
        self.show(f"```python\n{code}\n```\n\n```\nreturn 1\n```\n\n```made-up\nreturn 1\n```")
        blocks = self.all(".prose figure.code code")
        spans = blocks[0].find_elements("tag name", "span")
        self.assertEqual([(node.get_attribute("class"), node.text) for node in spans],
                         [("code-keyword", "def"), ("code-comment", '# "why"'), ("code-keyword", "return"),
                          ("code-string", "'a#b'"), ("code-number", "0x1F")])
        self.assertEqual(blocks[0].text, code)
        self.assertEqual([block.find_elements("tag name", "span") for block in blocks[1:]], [[], []])
        colours = {self.script("return getComputedStyle(arguments[0]).color", node) for node in [blocks[0], *spans]}
        self.assertEqual(len(colours), 5)

    def kinds(self, code, language):
        """[[kind, text], ...] of what the page colours in a piece of code."""
        return self.driver.execute_async_script("""
          const [code, language, done] = arguments;
          import('/page/highlight.js').then(({codeNodes}) => {
            const nodes = codeNodes(code, language);
            const text = nodes.map((node) => node.textContent ?? node).join('');
            done(text !== code ? `changed to ${text}` : nodes.filter((node) => node.className)
              .map((node) => [node.className.replace('code-', ''), node.textContent]));
          }).catch((error) => done(String(error)))""", code, language)

    LANGUAGES = [
        ("js", "const a = `x ${1}\n`; // it's", "keyword const|string `x ${1}\n`|comment // it's"),
        ("C++", "#include <a>\nint n = 1'000u; /* \" */", "keyword #include|keyword int|number 1'000u|comment /* \" */"),
        ("rust", "fn f<'a>(c: &'a str) { 'x' }", "keyword fn|keyword str|string 'x'"),
        ("sh", 'echo "$#" # two\nif x#y; fi', 'keyword echo|string "$#"|comment # two|keyword if|keyword fi'),
        ("sql", "Select 'it''s' FROM t -- x", "keyword Select|string 'it''s'|keyword FROM|comment -- x"),
        ("json", '{"a": [1.5e3, true]}', 'string "a"|number 1.5e3|keyword true'),
        ("yaml", "a: don't # c", "comment # c"),
        ("html", "<a href=\"x\">it's</a><!-- c -->", 'keyword a|string "x"|keyword a|comment <!-- c -->'),
        ("python", '"""a\n"b\nreturn', 'string """a\n"b\nreturn'),
        ("python", "s = 'open\nreturn", "string 'open|keyword return"),
        ("python", "'" + "\\", "string '\\"),
    ]

    def test_languages_have_their_own_comments_strings_and_words(self):
        self.open()
        for language, code, expected in self.LANGUAGES:
            with self.subTest(language=language, code=code):
                self.assertEqual(self.kinds(code, language), [part.split(" ", 1) for part in expected.split("|")])

    def test_code_that_never_closes_what_it_opens_is_coloured_in_time(self):
        self.open()
        pieces = ['"', "'", "\\", '"\\', "/*", "<!--", "'''", '"""', "0x", "1.", "1e+", "# ", "${", "--", "<", "='", "# \t", "@-", "r'"]
        num_shown = self.driver.execute_async_script("""
          const [pieces, done] = arguments;
          import('/page/highlight.js').then(({codeNodes}) => {
            let shown = 0;
            for (const piece of pieces) {
              for (const language of ['python', 'js', 'c', 'java', 'go', 'rust', 'sh', 'sql', 'json', 'yaml', 'css', 'html']) {
                shown += codeNodes(piece.repeat(49000 / piece.length), language).length > 0;
              }
            }
            done(shown);
          }).catch((error) => done(String(error)))""", pieces)
        self.assertEqual(num_shown, 12 * len(pieces))


if __name__ == "__main__":
    skipping.main()
