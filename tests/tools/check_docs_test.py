"""tools/check_docs.py accepts documents that fit the tree and names what does not exist."""
import unittest

from tree import ROOT, TreeTest

TOOL = "check_docs.py"


class CheckDocsTest(TreeTest):
    def setUp(self):
        super().setUp()
        self.write("src/modules.txt", "base:\ncore:\n")
        self.write("src/core/request.h", "")
        self.write("src/core/batch.h", "")
        self.write("docs/reference/modules.md", "# Modules\n| module | |\n|---|---|\n| `base` | |\n| `core` | |\n")

    def test_our_own_tree_passes(self):
        self.assertEqual(self.run_tool(TOOL, ROOT), (0, ""))

    def test_paths_of_the_tree_pass(self):
        self.write("README.md", "`src/core/request.h`, `core/batch.h`, `core/{batch,request}.h`, `src/core/*.h`, `src/core/`\n")
        self.assert_passes(TOOL)

    def test_what_is_no_path_of_the_tree_is_left_alone(self):
        self.write("README.md", "`/v1/models`, `build/release/x.json`, `model/forward`, `models/configs/NAME`, `a/b`\n"
                                "```\n`src/gone.h`\n```\n")
        self.assert_passes(TOOL)

    def test_a_path_that_does_not_exist_is_named_with_its_line(self):
        self.write("docs/page.md", "one\n\n`src/core/gone.h`\n")
        self.assert_refused(TOOL, "docs/page.md:3: 'src/core/gone.h' does not exist")
        self.write("docs/page.md", "run `tools/gone.sh --fast` or read `core/{batch,lost}.h`\n")
        self.assert_refused(TOOL, "'tools/gone.sh' does not exist", "'core/lost.h' does not exist")

    def test_links_lead_to_files_and_headings(self):
        self.write("docs/page.md", "# A `page`, and more\n[up](../README.md) [here](#a-page-and-more) [web](https://a.b/c)\n")
        self.write("README.md", "[page](docs/page.md#a-page-and-more)\n")
        self.assert_passes(TOOL)
        self.write("README.md", "[page](docs/other.md)\n[part](docs/page.md#less)\n")
        self.assert_refused(TOOL, "README.md:1: the link 'docs/other.md' leads to nothing",
                            "README.md:2: the link 'docs/page.md#less' names no heading")

    def test_the_table_of_modules_has_the_rows_of_the_dependency_table(self):
        self.write("src/modules.txt", "base:\nengine:\n")
        self.assert_refused(TOOL, "has no row for engine", "has core, which src/modules.txt has not")
        self.write("src/modules.txt", "base:\ncore:\ncore/text:\n")
        self.assert_refused(TOOL, "has no row for core/text")

    def test_prose_ends_at_column_100(self):
        self.write("docs/words.md", "a " * 49 + "aa\n| " + "a " * 90 + "|\n```\n" + "a " * 90 + "\n```\n- `" + "a " * 90 + "b`\n")
        self.assert_passes(TOOL)
        self.write("docs/words.md", "\n" + "a " * 50 + "a\n")
        self.assert_refused(TOOL, "docs/words.md:2: ends at column 101, the limit is 100: tools/wrap_docs.py wraps it")

    def test_rules_of_contracts_are_numbered_and_short(self):
        self.write("docs/contracts/runner.md", "- no rule\n## 1. A\n- **1.1** one\n  more\n  more\n- **1.2** two\n## 2. B\n- **2.1** x\n"
                                               "## Checklist\n- none\n")
        self.assert_passes(TOOL)
        self.write("docs/contracts/runner.md", "## 1. A\n- **1.1** one\n  b\n  c\n  d\n- **1.3** two\n- three\n")
        self.assert_refused(TOOL, "runner.md:2: rule 1.1 is longer than 3 lines", "runner.md:6: is rule 1.2",
                            "runner.md:7: is rule 1.3")

    def test_code_cites_sections_and_rules_that_are_there(self):
        self.write("docs/contracts/runner.md", "## 8. A\n- **8.1** one\n")
        self.write("src/core/batch.h", "// (docs/contracts/runner.md, section 8), docs/contracts/runner.md,\n// 8.1\n")
        self.assert_passes(TOOL)
        self.write("src/core/batch.h", "// docs/contracts/runner.md, 8.2\n\n// docs/contracts/gone.md,\n// section 8\n")
        self.assert_refused(TOOL, "src/core/batch.h:1: runner.md has no 8.2", "src/core/batch.h:3: gone.md has no 8")


if __name__ == "__main__":
    unittest.main()
