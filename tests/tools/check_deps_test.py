"""tools/check_deps.py finds each kind of violation in a planted tree, and nothing in ours."""
import unittest

from tree import ROOT, TreeTest

TOOL = "check_deps.py"


class CheckDepsTest(TreeTest):
    def setUp(self):
        super().setUp()
        self.write("src/modules.txt", "# table\nbase:\ncore:\ncache: core\ncpu:\napps: cpu\n")
        self.write("src/base/check.h", "#include <string>\n#include <nlohmann/json.hpp>\n")
        self.write("src/core/batch.h", '#include "base/check.h"\n')
        self.write("src/cache/pool.cc", '#include "core/batch.h"\n#include <sys/stat.h>\n')
        self.write("src/cpu/fast.h", "#include <immintrin.h>\n")
        self.write("apps/main.cc", '#include <CLI/CLI.hpp>\n#include "apps/flags.h"\n#include "cpu/fast.h"\n')
        self.write("apps/flags.h", "")
        self.write("tests/core/batch_test.cc", '#include <gtest/gtest.h>\n#include "core/batch.h"\n')

    def test_a_clean_tree_passes(self):
        self.assert_passes(TOOL)

    def test_our_own_tree_passes(self):
        self.assertEqual(self.run_tool(TOOL, ROOT), (0, ""))

    def test_an_include_the_row_does_not_list_is_refused(self):
        self.write("src/core/batch.h", '\n#include "cache/pool.h"\n')
        self.write("src/cache/pool.h", "")
        self.assert_refused(TOOL, "src/core/batch.h:2", 'core may not include "cache/pool.h"')

    def test_a_backend_named_outside_apps_is_refused(self):
        self.write("src/cache/pool.cc", '#include "cpu/fast.h"\n')
        self.assert_refused(TOOL, 'cache may not include "cpu/fast.h"')

    def test_a_row_that_names_a_module_below_it_is_refused(self):
        self.write("src/modules.txt", "base:\ncore: cache\ncache: core\ncpu:\napps: cpu\n")
        self.assert_refused(TOOL, "modules.txt:2: core names cache")

    def test_a_permission_that_no_include_uses_is_refused(self):
        self.write("src/cache/pool.cc", "#include <sys/stat.h>\n")
        self.assert_refused(TOOL, "modules.txt: cache lists core and includes nothing of it")

    def test_a_folder_of_apps_is_a_module_beside_src(self):
        self.write("src/modules.txt", "base:\ncore:\ncache: core\ncpu:\napps/flags: core\napps: cpu apps/flags\n")
        self.write("apps/main.cc", '#include "apps/flags/port.h"\n#include "cpu/fast.h"\n')
        self.write("apps/flags/port.h", '#include <CLI/CLI.hpp>\n#include "core/batch.h"\n')
        self.write("tests/core/batch_test.cc", '#include "apps/flags/port.h"\n')
        self.assert_passes(TOOL)
        self.write("apps/flags/port.h", '#include "apps/flags.h"\n#include "core/batch.h"\n#include "cpu/fast.h"\n')
        self.assert_refused(TOOL, 'apps/flags may not include "apps/flags.h"', 'apps/flags may not include "cpu/fast.h"')

    def test_a_source_of_apps_without_a_row_is_refused(self):
        self.write("src/modules.txt", "base:\ncore:\ncache: core\ncpu:\napps/flags:\n")
        self.write("apps/flags/port.h", "")
        self.assert_refused(TOOL, "apps/main.cc: in no row of src/modules.txt")

    def test_src_may_not_include_apps(self):
        self.write("src/cache/pool.cc", '#include "core/batch.h"\n#include "apps/flags.h"\n')
        self.assert_refused(TOOL, 'cache may not include "apps/flags.h"')
        self.write("src/modules.txt", "base:\ncore:\ncpu:\napps: cpu\ncache: core apps\n")
        self.assert_refused(TOOL, "modules.txt:5: cache names apps, and src/ includes nothing of apps/")

    def test_a_malformed_row_is_refused(self):
        self.write("src/modules.txt", "base:\ncore\ncache:\ncpu:\napps: cpu\n")
        self.assert_refused(TOOL, "modules.txt:2")

    def test_a_module_without_a_row_is_refused(self):
        self.write("src/stray/a.h", "")
        self.assert_refused(TOOL, "src/stray/a.h: in no row of src/modules.txt")

    def test_a_row_without_a_folder_is_refused(self):
        self.write("src/modules.txt", "base:\ncore:\ncache: core\ncpu:\ncpu/fsat: cpu\napps: cpu\n")
        self.assert_refused(TOOL, "modules.txt:5: there is no folder src/cpu/fsat")

    def test_a_folder_with_a_row_is_a_module_of_its_own(self):
        self.write("src/modules.txt", "base:\ncore:\ncache: core\ncpu:\ncpu/fast: cpu\napps: cpu\n")
        self.write("src/cpu/fast/deep/wide.h", '#include "cpu/fast.h"\n#include <immintrin.h>\n')
        self.assert_passes(TOOL)
        self.write("src/cpu/fast/deep/wide.h", '#include "core/batch.h"\n')
        self.assert_refused(TOOL, 'cpu/fast may not include "core/batch.h"')

    def test_an_include_is_judged_by_the_deepest_row_of_the_included_file(self):
        self.write("src/modules.txt", "base:\ncore:\ncache: core\ncpu:\ncpu/fast: cpu\napps: cpu\n")
        self.write("src/cpu/fast/wide.h", "")
        self.write("src/cpu/fast.h", '#include "cpu/fast/wide.h"\n')
        self.assert_refused(TOOL, 'cpu may not include "cpu/fast/wide.h"')

    def test_a_folder_may_come_before_the_module_around_it(self):
        self.write("src/modules.txt", "base:\ncore:\ncache: core\ncpu/fast:\ncpu: cpu/fast\napps: cpu\n")
        self.write("src/cpu/fast/wide.h", "")
        self.write("src/cpu/fast.h", '#include "cpu/fast/wide.h"\n')
        self.assert_passes(TOOL)
        self.write("src/cpu/fast/wide.h", '#include "cpu/memory.h"\n')
        self.write("src/cpu/memory.h", "")
        self.assert_refused(TOOL, 'cpu/fast may not include "cpu/memory.h"')

    def test_a_header_that_a_module_owns_may_be_included_in_its_folders(self):
        self.write("src/modules.txt", "base:\ncore:\ncache: core\ncpu:\nhttp:\nhttp/text:\napps: cpu\n")
        self.write("src/http/text/writer.cc", "#include <boost/asio.hpp>\n")
        self.write("src/http/server.cc", "")
        self.assert_passes(TOOL)
        self.write("src/cpu/fast.h", "#include <boost/asio.hpp>\n")
        self.assert_refused(TOOL, "<boost/asio.hpp> belongs to")

    def test_a_third_party_header_outside_its_module_is_refused(self):
        self.write("src/core/batch.h", "#include <nlohmann/json.hpp>\n")
        self.write("src/cache/pool.cc", "#include <spdlog/spdlog.h>\n")
        self.write("src/cpu/fast.h", "#include <CLI/CLI.hpp>\n")
        self.assert_refused(TOOL, "src/core/batch.h:1", "src/cache/pool.cc:1", "src/cpu/fast.h:1")

    def test_an_unknown_library_is_refused(self):
        self.write("src/core/batch.h", "#include <unheard_of/any.hpp>\n")
        self.assert_refused(TOOL, "<unheard_of/any.hpp> has no owner")

    def test_our_own_header_in_angle_brackets_is_refused(self):
        self.write("src/cache/pool.cc", "#include <core/batch.h>\n")
        self.assert_refused(TOOL, "include it with quotes")

    def test_a_header_that_does_not_exist_is_refused(self):
        self.write("src/cache/pool.cc", '#include "core/gone.h"\n')
        self.assert_refused(TOOL, '"core/gone.h" is no file')

    def test_a_path_relative_to_the_including_file_is_refused(self):
        self.write("src/cache/pool.cc", '#include "pool.h"\n')
        self.write("src/cache/pool.h", "")
        self.assert_refused(TOOL, '"pool.h" is no file below src/')

    def test_a_cycle_between_files_is_refused(self):
        self.write("src/core/a.h", '#include "core/b.h"\n')
        self.write("src/core/b.h", '#include "core/a.h"\n')
        self.assert_refused(TOOL, "include cycle: src/core/a.h -> src/core/b.h -> src/core/a.h")


if __name__ == "__main__":
    unittest.main()
