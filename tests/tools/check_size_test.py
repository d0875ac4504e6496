"""tools/check_size.py measures C++ functions and keeps the exception list shrinking."""
import sys
import unittest

from tree import ROOT, TreeTest

sys.path.insert(0, str(ROOT / "tools"))
import check_size  # noqa: E402

TOOL = "check_size.py"
SOURCE = '''\
#include <string>
#define MACRO(x) \\
  do { x } while (0)
namespace a::b {
struct Plain { int x = 3; std::vector<int> y{1, 2}; };
class Shape : public Base {
 public:
  Shape() : x_{1}, y_(2), z_{3} {
    draw();
  }
  int area() const noexcept override { return x_; }
  template <class T>
  auto visit(T f) -> decltype(f()) {
    const char* brace = "}{";  // }
    char other = '{';
    return f([&](int i) {
      return i;
    });
  }
 private:
  int x_;
};
const int kTable[] = {1, 2};
enum class E { kA, kB };
const auto lambda = [](int x) { return x; };
/* { */
std::string raw() {
  return R"({
  )";
}
bool operator==(const Shape& a,
                const Shape& b) {
  return true;
}
}  // namespace a::b
'''


def long_function(name, lines):
    return f"void {name}() {{\n" + "  call();\n" * (lines - 2) + "}\n"


class CheckSizeTest(TreeTest):
    def setUp(self):
        super().setUp()
        self.write("src/modules.txt", "a:\n")

    def test_functions_are_found_with_their_lengths(self):
        found = {name: (line, lines) for name, line, lines in check_size.functions(SOURCE)}
        self.assertEqual(found, {"Shape": (8, 3), "area": (11, 1), "visit": (12, 8), "lambda": (25, 1),
                                 "raw": (27, 4), "operator==": (31, 4)})

    def test_our_own_tree_passes(self):
        self.assertEqual(self.run_tool(TOOL, ROOT), (0, ""))

    def test_a_function_may_have_80_lines_and_not_81(self):
        self.write("src/a/a.cc", long_function("f", 80))
        self.assert_passes(TOOL)
        self.write("src/a/a.cc", long_function("f", 81))
        self.assert_refused(TOOL, "src/a/a.cc:f: 81 lines, at most 80")

    def test_files_have_limits_by_folder(self):
        self.write("src/a.h", "\n" * 600)
        self.write("tests/a_test.cc", "\n" * 800)
        self.assert_passes(TOOL)
        self.write("src/a.h", "\n" * 601)
        self.write("tests/a_test.cc", "\n" * 801)
        self.assert_refused(TOOL, "src/a.h: 601 lines, at most 600", "tests/a_test.cc: 801 lines, at most 800")

    def test_a_module_may_have_5000_lines_and_not_5001(self):
        for i, suffix in enumerate(["h", "cc", "cu", "cuh"] * 2 + ["cc"]):
            self.write(f"src/a/deep/{i}.{suffix}", "\n" * 550)
        self.write("src/a/last.cc", "\n" * 50)
        self.write("src/a/page.js", "\n" * 100)
        self.write("tests/a/a_test.cc", "\n" * 100)
        self.assert_passes(TOOL)
        self.write("src/a/last.cc", "\n" * 51)
        self.assert_refused(TOOL, "module a: 5001 lines, at most 5000")

    def test_a_folder_with_a_row_counts_for_itself(self):
        for i in range(9):
            self.write(f"src/a/{i}.cc", "\n" * 550)
            self.write(f"src/a/b/{i}.cc", "\n" * 550)
        self.write("src/modules.txt", "a/b:\na: a/b\n")
        self.assert_passes(TOOL)
        self.write("src/a/b/c/more.cc", "\n" * 100)
        errors = self.assert_refused(TOOL, "module a/b: 5050 lines, at most 5000")
        self.assertNotIn("module a:", errors)

    def test_a_module_of_apps_lies_beside_src(self):
        self.write("src/modules.txt", "a:\napps/b: a\n")
        for i in range(10):
            self.write(f"apps/b/{i}.cc", "\n" * 510)
        self.assert_refused(TOOL, "module apps/b: 5100 lines, at most 5000")

    def test_an_exception_holds_for_what_it_names_only(self):
        self.write("src/a.h", "\n" * 650)
        self.write("tools/size_exceptions.txt", "src/a.h 650  # why\n")
        self.assert_passes(TOOL)
        self.write("src/a.h", "\n" * 651)
        self.assert_refused(TOOL, "src/a.h: 651 lines, at most 650")

    def test_an_exception_may_only_shrink(self):
        self.write("src/a.h", "\n" * 640)
        self.write("tools/size_exceptions.txt", "src/a.h 650\n")
        self.assert_refused(TOOL, "src/a.h has 640 lines now, lower its 650")
        self.write("src/a.h", "\n" * 600)
        self.assert_refused(TOOL, "src/a.h needs no exception any more")

    def test_a_comment_ends_at_column_120(self):
        beside = "int x = 3;  // "
        self.write("src/a.h", "// " + "c" * 117 + "\n" + beside + "c" * (120 - len(beside)) + "\n")
        self.write("tools/a.py", "# " + "ü" * 118 + "\n")
        self.assert_passes(TOOL)
        self.write("src/a.h", "\n// " + "c" * 118 + "\n" + beside + "c" * (121 - len(beside)) + "\n")
        self.write("src/a.cuh", "// " + "c" * 118 + "\n")
        self.write("cmake/a.cmake", "  # " + "c" * 117 + "\n")
        errors = self.assert_refused(TOOL, "src/a.h:2: a comment up to column 121, at most 120", "src/a.h:3: ",
                                     "src/a.cuh:1: ", "cmake/a.cmake:1: ")
        self.assertEqual(len(errors.splitlines()), 4, errors)

    def test_texts_that_cannot_be_broken_are_no_comments(self):
        url = "https://" + "u" * 130
        self.write("src/a.cc", f'const char* kUrl = "{url}";\nconst char* kRaw = R"({url}\n// {url})";\n')
        self.write("tools/a.sh", f"curl '{url}'\n")
        self.assert_passes(TOOL)


if __name__ == "__main__":
    unittest.main()
