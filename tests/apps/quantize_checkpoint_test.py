"""tools/quantize_checkpoint.py, and what it makes: checkpoints in both published forms of INT8, with INT4 experts and of AWQ load, serve and answer
as the demo model does, the same in any company and in any chunks."""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

from serving_process import DEMO, PATIENCE_SECONDS, PROGRAM, ROOT, environment

TOOL = ROOT / "tools" / "quantize_checkpoint.py"
FORMS = {"channel-int8": "w8a8_int8", "block-int8": "blockwise_int8", "w4afp8": "w4afp8", "awq": "awq"}
PROMPTS = ["How many apples", "Tom has 3 pens and buys 4 more. How many pens does Tom have now, if he gives 2 of them to Ann?", "Hello"]


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, encoding="utf-8", check=False,
                          timeout=PATIENCE_SECONDS, env=environment({}))


def tensors_of(folder):
    tensors = {}
    for path in folder.glob("*.safetensors"):
        data = path.read_bytes()
        length, = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + length])
        header.pop("__metadata__", None)
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            tensors[name] = (entry["dtype"], entry["shape"], data[8 + length + begin:8 + length + end])
    return tensors


class QuantizeCheckpointTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        for form in FORMS:
            done = run(sys.executable, TOOL, "--form", form, "--num-layers", 2, DEMO, cls.model(form))
            assert done.returncode == 0, done.stderr

    @classmethod
    def model(cls, form):
        return pathlib.Path(cls.folder.name) / form

    def generate(self, form, prompts, *args):
        words = [word for prompt in prompts for word in ("--prompt", prompt)]
        done = run(PROGRAM, "generate", "--model-path", self.model(form), "--device", "cpu", "--max-new-tokens", 12, "--temperature", 0,
                   "--json", "--return-logprob", *words, *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [(answer["text"], answer["meta_info"]["output_token_logprobs"]) for answer in map(json.loads, done.stdout.splitlines())]

    def test_rows_of_the_ablation_take_them(self):
        with tempfile.TemporaryDirectory() as folder:
            figures = pathlib.Path(folder, "a.json")
            done = run(PROGRAM, "bench", "ablation", "--model-path", DEMO, "--num-layers", 2, "--dequantize", "--device", "cpu", "--rows",
                       "X7", "X13", "--int8-model-path", self.model("channel-int8"), "--int4-model-path", self.model("awq"), "--clients", 2,
                       "--input-len", 8, "--output-len", 4, "--query-tokens", 8, "--num-questions", 2, "--max-new-tokens", 8, "--json", figures)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            rows = json.loads(figures.read_text(encoding="utf-8"))["rows"]
        self.assertEqual([(row["row"], row["runs"], row["measured"]["settings"]["dequantize"]) for row in rows],
                         [("1", True, True), ("X7", True, False), ("X13", True, False)])

    def test_values_times_scales_are_the_weights(self):
        original = tensors_of(DEMO)
        name = "model.layers.1.mlp.experts.3.down_proj.weight"
        f8 = [(-1 if b & 128 else 1) * ((8 + (b & 7)) * 2.0**((b >> 3 & 15) - 10) if b & 120 else (b & 7) * 2.0**-9) for b in range(256)]
        block_scale, = struct.unpack("<f", original[name + "_scale_inv"][2])
        weights = [f8[b] * block_scale for b in original[name][2]]
        for form, suffix in (("channel-int8", "_scale"), ("block-int8", "_scale_inv")):
            made = tensors_of(self.model(form))
            dtype, shape, data = made[name]
            self.assertEqual((dtype, shape, made[name + suffix][1]), ("I8", [128, 128], [128, 1] if suffix == "_scale" else [1, 1]))
            scales = struct.unpack(f"<{len(made[name + suffix][2]) // 4}f", made[name + suffix][2])
            for i, (value, weight) in enumerate(zip(struct.unpack(f"<{len(data)}b", data), weights)):
                scale = scales[i // 128] if len(scales) > 1 else scales[0]
                self.assertLessEqual(abs(value * scale - weight), scale * 0.5001)
            self.assertEqual(made["model.layers.1.mlp.gate.weight"], original["model.layers.1.mlp.gate.weight"])
            config = json.loads((self.model(form) / "config.json").read_text())
            self.assertEqual(config["quantization_config"]["quant_method"], FORMS[form])

    def test_pairs_of_four_bits_times_scales_are_the_experts(self):
        original, made = tensors_of(DEMO), tensors_of(self.model("w4afp8"))
        name = "model.layers.1.mlp.experts.3.down_proj.weight"
        f8 = [(-1 if b & 128 else 1) * ((8 + (b & 7)) * 2.0**((b >> 3 & 15) - 10) if b & 120 else (b & 7) * 2.0**-9) for b in range(256)]
        block_scale, = struct.unpack("<f", original[name + "_scale_inv"][2])
        weights = [f8[b] * block_scale for b in original[name][2]]
        dtype, shape, data = made[name]
        self.assertEqual((dtype, shape, made[name + "_scale_inv"][1]), ("I8", [128, 64], [128, 1]))
        scales = struct.unpack("<128f", made[name + "_scale_inv"][2])
        for i, weight in enumerate(weights):
            nibble = data[i // 2] >> (i % 2 * 4) & 15
            value = nibble - 16 if nibble > 7 else nibble
            self.assertLessEqual(abs(value * scales[i // 128] - weight), scales[i // 128] * 0.5001)
        for kept in ("model.layers.1.self_attn.o_proj.weight", "model.layers.1.self_attn.o_proj.weight_scale_inv"):
            self.assertEqual(made[kept], original[kept])

    def test_words_of_awq_hold_the_matrix_transposed(self):
        original, made = tensors_of(DEMO), tensors_of(self.model("awq"))
        name = "model.layers.1.mlp.experts.3.down_proj."
        f8 = [(-1 if b & 128 else 1) * ((8 + (b & 7)) * 2.0**((b >> 3 & 15) - 10) if b & 120 else (b & 7) * 2.0**-9) for b in range(256)]
        block_scale, = struct.unpack("<f", original[name + "weight_scale_inv"][2])
        weights = [f8[b] * block_scale for b in original[name + "weight"][2]]
        self.assertEqual([made[name + part][:2] for part in ("qweight", "qzeros", "scales")],
                         [("I32", [128, 16]), ("I32", [2, 16]), ("F16", [2, 128])])
        self.assertNotIn(name + "weight", made)
        words, zeros = (struct.unpack(f"<{rows * 16}I", made[name + part][2]) for part, rows in (("qweight", 128), ("qzeros", 2)))
        scales = struct.unpack("<256e", made[name + "scales"][2])
        for output in range(128):
            shift = 4 * (0, 4, 1, 5, 2, 6, 3, 7)[output % 8]
            for channel in range(128):
                group, word = channel // 64, output // 8
                scale = scales[group * 128 + output]
                steps = (words[channel * 16 + word] >> shift & 15) - (zeros[group * 16 + word] >> shift & 15)
                self.assertLessEqual(abs(steps * scale - weights[output * 128 + channel]), scale * 1.01)

    def test_inspect_names_the_form(self):
        for form, words in (("channel-int8", "scales of channels, activations per token"), ("block-int8", "scales of 128x128 blocks")):
            done = run(PROGRAM, "inspect", "--model-path", self.model(form), "--device", "cpu")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("INT8, " + words, done.stdout)
            self.assertIn("i8 ", done.stdout)
            done = run(PROGRAM, "inspect", "--model-path", self.model(form), "--gpu-memory", 80)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        done = run(PROGRAM, "inspect", "--model-path", self.model("awq"), "--device", "cpu")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("INT4 (AWQ)", done.stdout)
        for flags in ((), ("--dequantize",)):
            done = run(PROGRAM, "inspect", "--model-path", self.model("awq"), "--gpu-memory", 80, *flags)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        done = run(PROGRAM, "inspect", "--model-path", self.model("w4afp8"), "--device", "cpu")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("routed experts in INT4", done.stdout)
        done = run(PROGRAM, "inspect", "--model-path", self.model("w4afp8"), "--gpu-memory", 80)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_tokens_and_log_probabilities_are_the_same_in_any_company_chunks_and_threads(self):
        for form in FORMS:
            alone = [self.generate(form, [prompt], "--deterministic")[0] for prompt in PROMPTS]
            for args in ([], ["--chunked-prefill-size", 7], ["--cpu-threads", 3]):
                self.assertEqual(self.generate(form, PROMPTS, "--deterministic", *args), alone, (form, args))

    def test_two_ranks_and_dequantised_weights_compute_it_too(self):
        for form in FORMS:
            for args in (["--tp-size", 2], ["--dequantize"]):
                self.assertEqual(len(self.generate(form, PROMPTS, *args)), len(PROMPTS))

    def test_modules_that_the_config_leaves_as_they_are_stay_so(self):
        model = self.model("channel-int8")
        text = (model / "config.json").read_text()
        config = json.loads(text)
        config["quantization_config"]["ignore"] = ["lm_head", "model.layers.0.mlp", "shared_experts", "kv_a_proj_with_mqa"]
        try:
            (model / "config.json").write_text(json.dumps(config))
            # The reference has the shared experts in one call with the routed ones, where they are of one type.
            for backend in ("fast", "reference"):
                self.assertEqual(len(self.generate("channel-int8", PROMPTS, "--cpu-backend", backend)), len(PROMPTS))
            config["quantization_config"]["ignore"] = ["gate_proj"]
            (model / "config.json").write_text(json.dumps(config))
            done = run(PROGRAM, "generate", "--model-path", model, "--device", "cpu", "--prompt", "Hi")
            self.assertEqual(done.returncode, 1)
            self.assertIn("one is quantised and the other is not", done.stderr)
        finally:
            (model / "config.json").write_text(text)


if __name__ == "__main__":
    unittest.main()
