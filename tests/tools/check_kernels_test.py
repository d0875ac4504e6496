"""tools/check_kernels.py finds kernels that may begin too early, share a name, or were never launched."""
import unittest

from tree import ROOT, TreeTest

TOOL = "check_kernels.py"

PLAIN = """
namespace fathom::cuda {
__global__ void __launch_bounds__(kThreads, kTiles == 1 ? 2 : 1)
    plain(const __grid_constant__ Params p) {
  let_next_start();
  const int row = blockIdx.x;
  for (int i = 0; i < 4; ++i) table[i] = i;
  wait_for_previous();
  if (row >= p.rows) return;
}
}  // namespace fathom::cuda
"""


def kernel(body, before="", name="bad"):
    return (f"namespace fathom::cuda {{\n{before}\n"
            f"template <class W, bool kGateUp>\n__global__ void {name}(const Params p) {{\n{body}\n}}\n}}\n")


class CheckKernelsTest(TreeTest):
    def assert_kernel_passes(self, *args):
        self.write("src/cuda/a.cu", kernel(*args))
        self.assert_passes(TOOL)

    def assert_kernel_refused(self, part, *args):
        self.write("src/cuda/a.cu", kernel(*args))
        self.assertIn("src/cuda/a.cu: bad " + part, self.assert_refused(TOOL))

    def test_the_kernels_of_this_tree_pass(self):
        self.assertEqual(self.run_tool(TOOL, ROOT), (0, ""))

    def test_a_kernel_may_prepare_before_it_waits(self):
        self.write("src/cuda/a.cu", PLAIN)
        self.assert_passes(TOOL)

    def test_both_branches_may_wait(self):
        self.assert_kernel_passes("if (works) { feed(); wait_for_previous(); } else { wait_for_previous(); }")
        self.assert_kernel_passes("if constexpr (kGateUp) { wait_for_previous(); }\n"
                                  "if constexpr (!kGateUp) wait_for_previous();")

    def test_a_function_of_the_kernel_may_wait(self):
        method = ("struct Work {\n  __device__ __forceinline__ Cursor fill() const {\n    wait_for_previous();\n"
                  "    return {};\n  }\n  __device__ __forceinline__ void stream() {\n    Cursor at = fill();\n  }\n};")
        self.assert_kernel_passes("Work<W, kGateUp>(p, shared).stream();", method)

    def test_a_function_of_an_included_header_may_wait(self):
        self.write("src/cuda/row.cuh", "template <class W>\n__device__ __forceinline__ void row(const Params& p) {\n"
                                       "  wait_for_previous();\n}\n")
        body = "row<W>(p);"
        self.write("src/cuda/a.cu", '#include "cuda/row.cuh"\n' + kernel(body))
        self.assert_passes(TOOL)
        self.assert_kernel_refused("has a path without wait_for_previous()", body)

    def test_a_path_without_a_wait_is_found(self):
        for body in ("x[0] = 1;", "// wait_for_previous();", "if (threadIdx.x == 0) wait_for_previous();",
                     "if constexpr (kGateUp) wait_for_previous();", "for (; i < n; ++i) wait_for_previous();",
                     "if (works) { wait_for_previous(); } else { rest(); }"):
            with self.subTest(body=body):
                self.assert_kernel_refused("has a path without wait_for_previous()", body)

    def test_a_return_before_the_wait_is_found(self):
        for body in ("if (row >= p.rows) return;\nwait_for_previous();",
                     "if (row < p.rows) {\n  if (x) return;\n}\nwait_for_previous();",
                     "return;\nwait_for_previous();"):
            with self.subTest(body=body):
                self.assert_kernel_refused("returns before wait_for_previous()", body)

    def test_one_block_may_wait_only_at_the_end_of_a_kernel_that_is_named(self):
        def settled_kernel(body, before=""):
            return kernel(body, before, "query_kernel").replace("fathom::cuda {", "fathom::cuda::decode {")

        end = "if (p.settled)\n  one_block_waits_for_previous();\nelse\n  wait_for_previous();"
        self.write("src/cuda/a.cu", settled_kernel("work();\n" + end))
        self.assert_passes(TOOL)
        self.assert_kernel_refused("lets one block wait, and SETTLED", end)
        for body, part in (("if (p.settled) return;\n" + end, "returns before wait_for_previous()"),
                           ("wait_for_previous();", "but all of its blocks wait"),
                           ("one_block_waits_for_previous();", "elsewhere than at its end"),
                           ("if (!p.settled) wait_for_previous();\none_block_waits_for_previous();", "elsewhere than at"),
                           (end + "\nwork();", "elsewhere than at its end"),
                           ("if (x) one_block_waits_for_previous();\n" + end, "elsewhere than at its end")):
            with self.subTest(body=body):
                self.write("src/cuda/a.cu", settled_kernel(body))
                self.assertIn(part, self.assert_refused(TOOL))
        in_function = "__device__ __forceinline__ void work() {\n  one_block_waits_for_previous();\n}"
        self.write("src/cuda/a.cu", settled_kernel("work();\n" + end, in_function))
        self.assertIn("calls work(), which lets one block wait", self.assert_refused(TOOL))

    def test_two_kernels_of_one_name_are_found_unless_a_namespace_tells_them_apart(self):
        self.write("src/cuda/a.cu", PLAIN)
        self.write("src/cuda/b.cu", PLAIN)
        self.assert_refused(TOOL, "src/cuda/b.cu: plain has the name of a kernel in src/cuda/a.cu")
        self.write("src/cuda/b.cu", PLAIN.replace("namespace fathom::cuda {", "namespace fathom::cuda::other {"))
        self.assert_passes(TOOL)

    def test_a_tree_without_kernels_is_refused(self):
        self.assert_refused(TOOL, "no kernels below src/cuda")

    def test_kernels_and_variants_that_nobody_launched_are_found(self):
        self.write("src/cuda/a.cu", PLAIN + kernel("wait_for_previous();", name="wide_product_kernel"))
        names = self.root / "names"
        integers = [f"wide_product_kernel<{weight}>" for weight in ("I4x2", "I8Blocks", "linear::I8Channels")]
        for lines, missing in ((["plain", "wide_product_kernel<tensor::Bf16>", "wide_product_kernel<f8>", *integers], []),
                               (["plain<float>", "wide_product_kernel<bf16>", *integers], ["no wide_product_kernel<"]),
                               (["wide_product_kernel<bf16>", "wide_product_kernel<tensor::F8E4M3>", *integers],
                                ["src/cuda/a.cu: plain was not launched"])):
            with self.subTest(lines=lines):
                names.write_text("\n".join(lines))
                status, errors = self.run_tool(TOOL, arguments=("--launched", names))
                self.assertEqual(status, 1 if missing else 0, errors)
                self.assertEqual(len(errors.splitlines()), len(missing), errors)
                for part in missing:
                    self.assertIn(part, errors)


if __name__ == "__main__":
    unittest.main()
