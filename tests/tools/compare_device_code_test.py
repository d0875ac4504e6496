"""tools/compare_device_code.py on trees of one kernel, compiled by the machine's nvcc."""
import json
import shutil
import subprocess
import sys

from tree import ROOT, TreeTest

NVCC = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
HEADER = "__device__ inline float twice(float x) { return x + x; }\n"
KERNEL = """#include "cuda/twice.cuh"
namespace {
__global__ void scale_kernel(float* values) { values[threadIdx.x] = twice(values[threadIdx.x]); }
}  // namespace
void run(float* values) { scale_kernel<<<1, 32>>>(values); }
"""


class CompareDeviceCode(TreeTest):
    def setUp(self):
        super().setUp()
        self.write("src/cuda/twice.cuh", HEADER)
        self.write("src/cuda/scale.cu", KERNEL)
        self.write("src/cuda/other.cu", "__global__ void other_kernel() {}\n")
        for arguments in (["init", "-q"], ["add", "src"],
                          ["-c", "user.name=a", "-c", "user.email=a@b.example", "commit", "-q", "-m", "first"]):
            subprocess.run(["git", "-C", self.root, *arguments], check=True)
        file = f"{self.root}/src/cuda/scale.cu"
        command = f"{NVCC} -I{self.root}/src --generate-code=arch=compute_90a,code=[sm_90a] -x cu -c {file} -o scale.o"
        self.write("build/compile_commands.json", json.dumps([{"file": file, "command": command}]))

    def compare(self):
        done = subprocess.run(
            [sys.executable, "-B", ROOT / "tools" / "compare_device_code.py", "HEAD", "--root", self.root,
             "--build", self.root / "build"], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_other_names_comments_lines_and_files_are_the_same_code(self):
        self.write("src/cuda/twice.cuh", "// Doubles.\n\n" + HEADER.replace("x", "value"))
        (self.root / "src/cuda/scale.cu").unlink()
        self.write("src/cuda/scaled/all.cu", KERNEL)
        status, text = self.compare()
        self.assertEqual(status, 0, text)
        self.assertIn("3 sources differ, 2 CUDA files read them", text)
        self.assertIn("1 kernels, 0 sections differ", text)

    def test_a_changed_header_is_other_code_of_the_kernel_that_reads_it(self):
        self.write("src/cuda/twice.cuh", HEADER.replace("x + x", "x * x"))
        status, text = self.compare()
        self.assertEqual(status, 1, text)
        self.assertRegex(text, r"other: \.text\.\S*scale_kernel")
        self.assertNotIn("other_kernel", text)

    def test_a_kernel_more_is_new_and_one_less_is_gone(self):
        self.write("src/cuda/scale.cu", KERNEL.replace("scale_kernel", "scale_all_kernel"))
        status, text = self.compare()
        self.assertEqual(status, 1, text)
        self.assertRegex(text, r"new: \.text\.\S*scale_all_kernel")
        self.assertRegex(text, r"gone: \.text\.\S*scale_kernel")

    def test_what_does_not_compile_and_a_missing_build_are_said(self):
        self.write("src/cuda/twice.cuh", "")
        status, text = self.compare()
        self.assertEqual(status, 1, text)
        self.assertIn("src/cuda/scale.cu does not compile", text)
        (self.root / "build/compile_commands.json").unlink()
        self.assertIn("compile_commands.json is missing", self.compare()[1])


if __name__ == "__main__":
    if NVCC is None:
        print("SKIPPED: there is no nvcc; to run it: install the CUDA toolkit", flush=True)
        sys.exit(77)
    import unittest
    unittest.main()
