"""Checkpoints as people have them: of newer libraries, of caches, half there, in other forms. Each is made here from the
demo model. What changes nothing must give the demo's own answer; what cannot work must say what to do, in one line."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest

from serve_inputs import SIM
from serving_process import DEMO, PATIENCE_SECONDS, PROGRAM, ROOT, ServingProcess, environment

KIMI = ROOT / "tests" / "data" / "tokenizer" / "kimi"
COMMIT, OTHER = "0123456789abcdef0123456789abcdef01234567", "f" * 40
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "a" * 64 + "\nsize 4302350184\n"
FEW = ["--prompt", "How many", "--max-new-tokens", "8", "--temperature", "0", "--device", "cpu"]


def fathom(*args, **env):
    return subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True, encoding="utf-8", check=False,
                          timeout=PATIENCE_SECONDS, env=environment(env))


class CheckpointTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.model = self.folder / "model"
        self.model.mkdir()
        for file in DEMO.iterdir():
            # Weights may not be links that leave the directory.
            (shutil.copy if file.suffix == ".safetensors" else shutil.copyfile)(file, self.model / file.name)

    def edit(self, name, change):
        path = self.model / name
        value = json.loads(path.read_text())
        change(value)
        path.write_text(json.dumps(value))

    def answer(self, model=None):
        done = fathom("generate", "--model-path", model or self.model, *FEW)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def refused(self, part, *args, **env):
        done = fathom(*(args or ("generate", "--model-path", self.model, *FEW)), "--log-level", "error", **env)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        line, = done.stderr.splitlines()
        self.assertIn(part, line)

    def cache_entry(self, *commits):
        """The demo as the Hugging Face cache holds it, once per commit."""
        entry = self.folder / "hub" / "models--acme--demo-v3"
        (entry / "blobs").mkdir(parents=True)
        for file in DEMO.iterdir():
            shutil.copyfile(file, entry / "blobs" / file.name)
        for commit in commits:
            (entry / "snapshots" / commit).mkdir(parents=True)
            for file in DEMO.iterdir():
                (entry / "snapshots" / commit / file.name).symlink_to(f"../../blobs/{file.name}")
        return entry


class NewerLibraries(CheckpointTest):
    def test_what_transformers_saves_gives_the_same_answer(self):
        def as_transformers_5(config):
            yarn = {**config["rope_scaling"], "rope_type": "yarn", "rope_theta": config["rope_theta"]}
            config.update(rope_parameters=yarn, dtype=config.pop("torch_dtype"), head_dim=64, qk_head_dim=192,
                          rope_interleave=True, output_router_logits=False, transformers_version="5.24.0")
            config["quantization_config"].update(modules_to_not_convert=["lm_head", "model.layers.0.mlp.gate"],
                                                 modules_to_convert=None, dequantize=False, scale_fmt="float",
                                                 expert_dtype="fp8", ignored_layers=["lm_head"])

        expected = self.answer(DEMO)
        self.edit("config.json", as_transformers_5)
        self.edit("tokenizer.json", lambda file: file.update(
            truncation={"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
            padding={"strategy": {"Fixed": 64}, "direction": "Left", "pad_to_multiple_of": None, "pad_id": 2,
                     "pad_type_id": 0, "pad_token": "<\uff5c\u2581pad\u2581\uff5c>"}))
        self.assertEqual(self.answer(), expected)
        # rope_theta and rope_scaling are still there, and say the same. A file may also hold only the new section.
        self.edit("config.json", lambda config: [config.pop("rope_scaling"), config.pop("rope_theta")])
        self.assertEqual(self.answer(), expected)
        self.edit("config.json", lambda config: config.update(rope_theta=20000))
        self.refused('"rope_parameters.rope_theta" is 10000.0, another place of the file says 20000.0')

    def test_a_conversion_that_left_the_fp8_section_is_told_so(self):
        index = self.model / "model.safetensors.index.json"
        index.unlink()
        first, second = sorted(self.model.glob("*.safetensors"))
        as_bf16_of_zeros(first)
        done = fathom("generate", "--model-path", self.model, *FEW)
        self.assertIn("some of whose FP8 matrices are not FP8 here (--dequantize reads both)", done.stderr)
        done = fathom("generate", "--model-path", self.model, "--dequantize", *FEW)
        self.assertEqual(done.returncode, 0, done.stderr)
        as_bf16_of_zeros(second)
        self.refused("remove quantization_config from config.json")
        self.edit("config.json", lambda config: config.pop("quantization_config"))
        self.answer()

    def test_what_is_not_read_is_refused_in_one_line(self):
        fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
        for change, part in [
                ({"quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized"}},
                 '"quantization_config.format" is "float-quantized", must be "int-quantized"'),
                ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, '"gptq", must be "fp8"'),
                ({"quantization_config": {**fp8, "activation_scheme": "static"}}, '"static", must be "dynamic"'),
                ({"quantization_config": {**fp8, "activation_scheme": "dynamic", "modules_to_convert": ["x"]}},
                 '"quantization_config.modules_to_convert" is'),
                ({"tie_word_embeddings": True}, '"tie_word_embeddings" is true'),
                ({"index_topk": 2048}, '"index_topk" is 2048'),
                ({"architectures": ["DeepseekV32ForCausalLM"]}, '"model_type" is "deepseek_v3", must be "deepseek_v32"'),
                ({"architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32"}, '"index_n_heads" is missing'),
                ({"architectures": ["KimiK25ForConditionalGeneration"], "text_config": {}}, "which is not supported"),
                ({"text_config": {"hidden_size": 7168}}, '"text_config" is an object')]:
            with self.subTest(part):
                shutil.copyfile(DEMO / "config.json", self.model / "config.json")
                self.edit("config.json", lambda config, change=change: config.update(change))
                self.refused(part)


def as_bf16_of_zeros(path):
    """The file's tensors with the same shapes, FP8 ones as BF16 and without their scales; every value is 0."""
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    header, offset = {}, 0
    for name, tensor in json.loads(data[8:8 + size]).items():
        if name == "__metadata__" or name.endswith("_scale_inv"):
            continue
        begin, end = tensor["data_offsets"]
        is_fp8 = tensor["dtype"] == "F8_E4M3"
        num_bytes = (end - begin) * (2 if is_fp8 else 1)
        header[name] = {"dtype": "BF16" if is_fp8 else tensor["dtype"], "shape": tensor["shape"],
                        "data_offsets": [offset, offset + num_bytes]}
        offset += num_bytes
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(offset))


class Downloads(CheckpointTest):
    def test_an_entry_of_the_hugging_face_cache_has_its_name(self):
        entry = self.cache_entry(COMMIT)
        for path in (entry, entry / "snapshots" / COMMIT):
            with ServingProcess(*SIM, model=path) as server:
                status, models = server.get("/v1/models")
                self.assertEqual((status, models["data"][0]["id"]), (200, "acme/demo-v3"))
                status, answer = server.post("/v1/chat/completions", {
                    "model": "acme/demo-v3", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3})
                self.assertEqual((status, answer["model"]), (200, "acme/demo-v3"))
        self.assertEqual(self.answer(entry), self.answer(DEMO))

    def test_of_several_snapshots_the_one_that_main_names_is_taken(self):
        entry = self.cache_entry(COMMIT, OTHER)
        args = ("tokenize", "--model-path", entry, "--text", "Hi")
        done = fathom(*args)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"with 2 snapshots, give one of them: {entry}/snapshots/{COMMIT}, ", done.stderr)
        (entry / "refs").mkdir()
        (entry / "refs" / "main").write_text(OTHER)
        (entry / "snapshots" / COMMIT / "tokenizer.json").unlink()
        self.assertEqual(fathom(*args).stdout, fathom("tokenize", "--model-path", DEMO, "--text", "Hi").stdout)

    def test_what_is_no_checkpoint_says_what_to_give(self):
        entry = self.cache_entry()
        generate = lambda path: ("generate", "--model-path", path, *FEW)  # noqa: E731
        shutil.rmtree(entry / "blobs")
        self.refused(f"is the Hugging Face cache, give one of its models: {entry}", *generate(entry.parent))
        (entry / "snapshots").mkdir()
        self.refused("without a snapshot: the download has not finished", *generate(entry))
        self.refused("acme/other is not a directory; download it first: hf download acme/other --local-dir DIR",
                     *generate("acme/other"), HF_HUB_CACHE=str(entry.parent))
        self.refused(f"is not a directory; the Hugging Face cache has it: give {entry}", *generate("acme/demo-v3"),
                     HF_HUB_CACHE=str(entry.parent))
        gguf = self.folder / "gguf" / "demo-q4_k_m.gguf"
        gguf.parent.mkdir()
        gguf.write_bytes(b"GGUF")
        self.refused("is not a directory: it is a GGUF file, which is not read", *generate(gguf))
        self.refused("holds GGUF files, which are not read", *generate(gguf.parent))
        self.refused("is not a directory: give the directory that holds", *generate(DEMO / "config.json"))
        loop = self.folder / "loop"
        loop.symlink_to("loop")
        self.refused(f"--model-path {loop} cannot be read: Too many levels of symbolic links", *generate(loop))
        self.refused("--speculative-draft-model-path gone is not a directory", *generate(DEMO),
                     "--speculative-draft-model-path", "gone", "--speculative-algorithm", "NEXTN")

    def test_pointers_of_git_lfs_are_named(self):
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model-00002-of-000002.safetensors",
                     "model.safetensors.index.json"):
            with self.subTest(name):
                (self.model / name).write_text(POINTER)
                self.refused(f"{name}: is a Git LFS pointer, the file itself is not here yet: run `git lfs pull`")
            shutil.copyfile(DEMO / name, self.model / name)
        (self.model / "chat_template.jinja").write_text(POINTER)
        self.refused("chat_template.jinja: is a Git LFS pointer")

    def test_shards_are_read_without_their_index(self):
        (self.model / "model.safetensors.index.json").unlink()
        self.assertEqual(self.answer(), self.answer(DEMO))
        (self.model / "model-00002-of-000002.safetensors").unlink()
        self.refused("has no model-00002-of-000002.safetensors")

    def test_half_a_download_is_one_line(self):
        (self.model / "model-00001-of-000002.safetensors").rename(self.model / "model-00001.incomplete")
        self.refused("model-00001-of-000002.safetensors: is missing, the first of 1 of the 2 files")


class Templates(CheckpointTest):
    def name_templates(self, *templates):
        self.edit("tokenizer_config.json", lambda config: config.update(
            chat_template=[{"name": name, "template": text} for name, text in templates]))

    def chat_format(self):
        done = fathom("inspect", "--model-path", self.model, "--json")
        return json.loads(done.stdout)["chat_format"]

    def test_named_templates_count_as_in_transformers(self):
        default = json.loads((DEMO / "tokenizer_config.json").read_text())["chat_template"]
        self.name_templates(("rag", "{{ documents }}"), ("default", default), ("tool_use", default))
        self.assertEqual(self.chat_format(), "v3.1")
        self.name_templates(("default", default), ("tool_use", "{{ messages }}"))
        self.assertIn('"tool_use" chat template: not one of', self.chat_format())
        self.name_templates(("default", default), ("tool_use", "'User: ' 'Assistant:'"))
        self.assertIn('"default" is that of v3.1, "tool_use" that of v2', self.chat_format())
        self.name_templates(("rag", default))
        self.assertIn('of the named templates "rag" none is "default"', self.chat_format())

    def test_an_edited_template_is_warned_of_unless_its_format_is_named(self):
        def warnings(*args):
            with ServingProcess(*SIM, *args, model=self.model) as server:
                return [line for line in server.log_lines() if line["level"] == "warning" and "template" in str(line)]

        self.assertEqual(warnings(), [])
        self.edit("tokenizer_config.json", lambda config: config.update(
            chat_template=config["chat_template"].replace("namespace(system=''", "namespace(system='You are Acme.'")))
        line, = warnings()
        self.assertIn("You are Acme.", str(line))
        self.assertEqual(warnings("--chat-format", "v3.1"), [])

    def test_templates_in_files_of_their_own(self):
        default = json.loads((DEMO / "tokenizer_config.json").read_text())["chat_template"]
        self.edit("tokenizer_config.json", lambda config: config.pop("chat_template"))
        self.assertIn("none", self.chat_format())
        (self.model / "chat_template.json").write_text(json.dumps({"chat_template": default}))
        self.assertEqual(self.chat_format(), "v3.1")
        (self.model / "chat_template.jinja").write_text("{{ messages }}")
        self.assertIn("none: chat template: not one of", self.chat_format())
        (self.model / "chat_template.jinja").write_text(default)
        more = self.model / "additional_chat_templates"
        more.mkdir()
        (more / "tool_use.jinja").write_text("{{ messages }}")
        self.assertIn('"tool_use" chat template: not one of', self.chat_format())


class Tiktoken(CheckpointTest):
    def test_a_checkpoint_of_kimi_as_published_is_served(self):
        (self.model / "tokenizer.json").unlink()
        for file in KIMI.iterdir():
            shutil.copyfile(file, self.model / file.name)
        self.edit("config.json", lambda config: config.update(
            model_type="kimi_k2", vocab_size=2260, bos_token_id=2004, eos_token_id=2006))
        (self.model / "generation_config.json").unlink()
        with ServingProcess(*SIM, model=self.model) as server:
            message = "\u4f60\u597d, HTTPServer's 12345"
            status, answer = server.post("/v1/chat/completions", {
                "messages": [{"role": "user", "content": message}], "max_tokens": 5})
            self.assertEqual(status, 200, answer)
            status, tokens = server.post("/tokenize", {"prompt": message, "add_special_tokens": False})
            self.assertEqual(status, 200, tokens)
            status, text = server.post("/detokenize", {"tokens": tokens["tokens"]})
            self.assertEqual(status, 200, text)
            self.assertIn(message, text.values())
        done = fathom("tokenize", "--model-path", self.model, "--chat", "--text", message, "--json")
        self.assertEqual(answer["usage"]["prompt_tokens"], json.loads(done.stdout)["count"])
        self.edit("tokenizer_config.json", lambda config: config.update(tokenizer_class="QWenTokenizer"))
        self.refused("of tiktoken.model only that of Kimi and Moonlight is known",
                     "serve", "--model-path", self.model, "--port", 0, *SIM)
        os.remove(self.model / "tiktoken.model")
        self.refused("holds no tokenizer.json and no tiktoken.model",
                     "serve", "--model-path", self.model, "--port", 0, *SIM)


if __name__ == "__main__":
    unittest.main()
