"""tools/check_headers.py accepts a header that stands alone and names one that does not."""
import unittest

from tree import TreeTest

TOOL = "check_headers.py"


class CheckHeadersTest(TreeTest):
    def test_self_contained_headers_pass(self):
        self.write("src/a/a.h", '#pragma once\n#include <string>\n#include "a/b.h"\nstd::string f(B b);\n')
        self.write("src/a/b.h", "#pragma once\nstruct B {};\n")
        self.assert_passes(TOOL)

    def test_a_header_that_leans_on_its_includer_is_named(self):
        self.write("src/a/a.h", "#pragma once\nstd::string f();\n")
        self.assert_refused(TOOL, "src/a/a.h does not compile alone")

    def test_a_header_that_its_source_includes_first_is_left_to_the_build(self):
        self.write("src/a/a.h", "#pragma once\nstd::string f();\n")
        self.write("src/a/a.cc", '#include "a/a.h"\n')
        self.assert_passes(TOOL)
        self.write("src/a/a.cc", '#include <string>\n#include "a/a.h"\n')
        self.assert_refused(TOOL, "src/a/a.h does not compile alone")

    def test_a_source_of_apps_says_nothing_of_its_header(self):
        self.write("apps/a.h", "#pragma once\nstd::string f();\n")
        self.write("apps/a.cc", '#include "apps/a.h"\n')
        self.assert_refused(TOOL, "apps/a.h does not compile alone")

    def test_warnings_count(self):
        self.write("apps/a.h", "#pragma once\ninline int f(long x) { return x; }\n")
        self.assert_refused(TOOL, "apps/a.h does not compile alone")


if __name__ == "__main__":
    unittest.main()
