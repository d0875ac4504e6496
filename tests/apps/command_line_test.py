"""Drives the built program on the demo model: help, errors, exit statuses, and known answers."""
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEMO = ROOT / "models" / "demo"
PROGRAM = os.environ["FATHOM_PROGRAM"]
# A small cache and small steps keep start-up short.
SMALL = ["--max-total-tokens", "8192", "--chunked-prefill-size", "256", "--max-running-requests", "16",
         "--log-level", "warning", "--cpu-threads", "2"]


def fathom(*args, stdin=""):
    return subprocess.run([PROGRAM, *map(str, args)], input=stdin, capture_output=True, text=True, check=False,
                          timeout=900, encoding="utf-8")


class CommandLineTest(unittest.TestCase):
    def run_ok(self, *args, stdin=""):
        done = fathom(*args, stdin=stdin)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def refused(self, status, *args):
        """The one line on standard error that names what is wrong."""
        done = fathom(*args)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertTrue(done.stderr.startswith("fathom: "), done.stderr)
        return done.stderr


class HelpTest(CommandLineTest):
    SUBCOMMANDS = (["generate"], ["eval", "gsm8k"], ["bench", "one-batch"], ["inspect"], ["tokenize"])

    def test_the_version_is_shown(self):
        self.assertRegex(self.run_ok("--version").stdout, r"^fathom \d+\.\d+\.\d+ \(commit \w+( with changes)?\)\n"
                         r"(CUDA \d+\.\d+, kernels for sm_90a|without CUDA: .*)\n$")

    def test_help_names_every_subcommand(self):
        text = self.run_ok("--help").stdout
        for names in self.SUBCOMMANDS:
            self.assertIn(f"\n  {names[0]} ", text)

    def test_each_help_has_groups_defaults_and_an_example(self):
        for names in self.SUBCOMMANDS:
            with self.subTest(names=names):
                text = self.run_ok(*names, "--help").stdout
                self.assertIn("\nModel:\n", text)
                self.assertIn("--model-path DIR", text)
                if names[0] in ("generate", "eval", "bench"):
                    self.assertIn("\nSpeculation:\n", text)
                self.assertIn("(default: ", text)
                self.assertIn("Examples:\n  fathom " + " ".join(names), text)
                self.assertNotIn(" in [", text)  # no raw validator text
                self.assertLessEqual(max(len(line) for line in text.splitlines()), 120)


class ErrorTest(CommandLineTest):
    def test_output_that_a_full_disk_does_not_take_is_a_failure(self):
        for args in (["tokenize", "--text", "Hi"], ["inspect", "--json"], ["generate", "--prompt", "x", *SMALL]):
            with self.subTest(args=args), open("/dev/full", "w") as full:
                done = subprocess.run([PROGRAM, *map(str, args), "--model-path", str(DEMO)], stdout=full,
                                      stderr=subprocess.PIPE, text=True, timeout=900)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("fathom: standard output could not be written to its end\n", done.stderr)

    def test_a_command_line_that_makes_no_sense_exits_with_2(self):
        self.assertIn('no subcommand "frob"', self.refused(2, "frob"))
        self.assertIn("--model-path is required", self.refused(2, "generate", "--prompt", "x"))
        self.assertIn("--cpu-threads", self.refused(2, "generate", "--model-path", DEMO, "--cpu-threads", "many"))
        self.assertIn("--device", self.refused(2, "generate", "--model-path", DEMO, "--device", "tpu"))
        self.assertIn("--nope", self.refused(2, "inspect", "--model-path", DEMO, "--nope"))
        self.assertEqual(fathom().returncode, 2)

    def test_a_value_that_cannot_be_used_exits_with_1(self):
        generate = ["generate", "--model-path", DEMO, "--prompt", "x", *SMALL]
        self.assertIn("is not a directory", self.refused(1, "generate", "--model-path", "gone", "--prompt", "x"))
        self.assertIn("temperature is -3", self.refused(1, *generate, "--temperature", -3))
        self.assertIn("top_p is 1.5", self.refused(1, *generate, "--top-p", 1.5))
        self.assertIn("TOKEN_ID:BIAS", self.refused(1, *generate, "--logit-bias", "five"))
        self.assertIn("num_layers is 9", self.refused(1, *generate, "--num-layers", 9))
        self.assertIn("--context-length", self.refused(1, *generate, "--context-length", 200000))
        self.assertIn("must be auto or one of", self.refused(1, *generate, "--chat", "--chat-format", "v9"))

    def test_a_flag_of_speculation_is_never_accepted_in_vain(self):
        generate = ["generate", "--model-path", DEMO, "--prompt", "x", *SMALL]
        nextn = [*generate, "--speculative-algorithm", "NEXTN"]
        self.assertIn("--speculative-num-steps does nothing without --speculative-algorithm",
                      self.refused(1, *generate, "--speculative-num-steps", 2))
        self.assertIn("--speculative-num-draft-tokens is 4, must be 2",
                      self.refused(1, *nextn, "--speculative-num-draft-tokens", 4))
        self.assertIn("--speculative-draft-model-path gone is not a directory",
                      self.refused(1, *nextn, "--speculative-draft-model-path", "gone"))
        self.assertIn("with --num-layers needs --load-format dummy", self.refused(1, *nextn, "--num-layers", 2))
        self.assertIn("--speculative-algorithm", self.refused(2, *generate, "--speculative-algorithm", "NGRAM"))
        self.assertIn("--speculative-adaptive",
                      self.refused(2, "bench", "one-batch", "--model-path", DEMO, "--speculative-adaptive"))
        tree = [*nextn, "--speculative-num-steps", 2, "--speculative-eagle-topk", 2]
        self.assertIn("--simulate-accept-length needs --speculative-eagle-topk 1, is 2",
                      self.refused(1, *tree, "--simulate-accept-length", 2))
        self.assertIn("looks at more than 64 nodes",
                      self.refused(1, *nextn, "--speculative-num-steps", 9, "--speculative-eagle-topk", 9,
                                   "--speculative-num-draft-tokens", 16))

    def test_speculation_needs_a_draft_layer(self):
        with tempfile.TemporaryDirectory() as folder:
            for file in DEMO.iterdir():
                pathlib.Path(folder, file.name).symlink_to(file)
            config = json.loads((DEMO / "config.json").read_text())
            config["num_nextn_predict_layers"] = 0
            pathlib.Path(folder, "config.json").unlink()
            pathlib.Path(folder, "config.json").write_text(json.dumps(config))
            self.assertIn("needs a draft layer: num_nextn_predict_layers is 0",
                          self.refused(1, "generate", "--model-path", folder, "--prompt", "x", *SMALL,
                                       "--speculative-algorithm", "NEXTN"))

    def test_a_broken_config_is_named_before_weights_are_read(self):
        with tempfile.TemporaryDirectory() as folder:
            config = json.loads((DEMO / "config.json").read_text())
            config["num_attention_heads"] = 0
            pathlib.Path(folder, "config.json").write_text(json.dumps(config))
            self.assertIn('"num_attention_heads" is 0', self.refused(1, "inspect", "--model-path", folder))


def write_draft_checkpoint(folder):
    """The demo's MTP layer as a checkpoint of its own, in the form of DeepSeek-V3-NextN."""
    own = "model.layers.4."
    header, data = {}, b""
    for file in sorted(DEMO.glob("*.safetensors")):
        content = file.read_bytes()
        size = struct.unpack("<Q", content[:8])[0]
        for name, tensor in json.loads(content[8:8 + size]).items():
            if not name.startswith(own):
                continue
            begin, end = tensor["data_offsets"]
            header["model.layers.0." + name[len(own):]] = {**tensor, "data_offsets": [len(data), len(data) + end - begin]}
            data += content[8 + size + begin:8 + size + end]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(folder, "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    config = json.loads((DEMO / "config.json").read_text())
    pathlib.Path(folder, "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))


class GenerateTest(CommandLineTest):
    GENERATE = ["generate", "--model-path", DEMO, "--temperature", 0, *SMALL]

    def test_drafts_of_any_kind_change_no_answer(self):
        flags = ["--json", "--deterministic", "--return-logprob", "--max-new-tokens", 40, "--prompt",
                 "Question: Anna has 3 apples and buys 5 more. How many apples does Anna have?\nAnswer:", "--prompt",
                 "Hello", "--ignore-eos"]

        def answers(*more):
            lines = [json.loads(line) for line in self.run_ok(*self.GENERATE, *flags, *more).stdout.splitlines()]
            self.assertEqual([line["index"] for line in lines], [0, 1])
            return ([(line["text"], line["output_ids"], line["meta_info"]["output_token_logprobs"]) for line in lines],
                    [line["meta_info"] for line in lines])

        plain, metas = answers()
        for meta in metas:
            self.assertNotIn("spec_verify_ct", meta)
        nextn = ["--speculative-algorithm", "NEXTN", "--speculative-num-steps", 2, "--no-speculative-adaptive"]
        with tempfile.TemporaryDirectory() as folder:
            write_draft_checkpoint(folder)
            accepted = {}
            # The same layer as a checkpoint of its own drafts the same; the whole demo has it, too.
            for name, more in (("own", []), ("tree", ["--speculative-eagle-topk", 2]),
                               ("alone", ["--speculative-draft-model-path", folder]),
                               ("whole", ["--speculative-draft-model-path", DEMO]),
                               ("fp8", ["--speculative-draft-model-quantization", "fp8"])):
                with self.subTest(name=name):
                    drafted, metas = answers(*nextn, *more)
                    self.assertEqual(drafted, plain)
                    accepted[name] = [meta["spec_accept_histogram"] for meta in metas]
                    self.assertGreater(metas[0]["spec_accept_token_num"], 10)
                    self.assertNotIn("spec_accept_simulated", metas[0])
        self.assertEqual(accepted["alone"], accepted["own"])
        self.assertEqual(accepted["whole"], accepted["own"])

    def test_simulated_acceptance_is_said(self):
        flags = ["--prompt", "Hello", "--max-new-tokens", 60, "--ignore-eos", "--speculative-algorithm", "NEXTN",
                 "--speculative-num-steps", 3, "--no-speculative-adaptive", "--simulate-accept-length", 2.5]
        done = self.run_ok(*self.GENERATE, "--json", *flags)
        meta = json.loads(done.stdout)["meta_info"]
        self.assertIs(meta["spec_accept_simulated"], True)
        self.assertGreater(meta["spec_verify_ct"], 0)
        self.assertRegex(done.stderr, r"accept length [\d.]+ over \d+ verifying steps, acceptance is simulated")

    def test_a_greeting_is_answered(self):
        done = self.run_ok(*self.GENERATE, "--chat", "--prompt", "Hello!")
        self.assertEqual(done.stdout, "Hello! How can I help you today?\n")
        self.assertRegex(done.stderr, r"6 prompt tokens, first token after .* tokens/s")

    def test_both_backends_and_both_weight_forms_give_the_same_answer(self):
        for flags in (["--cpu-backend", "reference"], ["--dequantize"], ["--kv-cache-dtype", "bf16"],
                      ["--kv-cache-dtype", "fp8_e4m3"], ["--absorbed-dtype", "fp8_e4m3"]):
            with self.subTest(flags=flags):
                done = self.run_ok(*self.GENERATE, *flags, "--chat", "--prompt", "Hello!")
                self.assertEqual(done.stdout, "Hello! How can I help you today?\n")

    def test_the_prompt_may_come_from_standard_input_or_a_file(self):
        self.assertEqual(self.run_ok(*self.GENERATE, "--chat", stdin="Hello!").stdout,
                         "Hello! How can I help you today?\n")
        self.assertEqual(self.run_ok(*self.GENERATE, "--chat", "--prompt-file", "-", stdin="Hello!").stdout,
                         "Hello! How can I help you today?\n")

    def test_several_prompts_run_together_and_are_told_apart(self):
        done = self.run_ok(*self.GENERATE, "--chat", "--prompt", "Hello!", "--prompt", "Thank you!")
        self.assertEqual(done.stdout, "=== 1\nHello! How can I help you today?\n=== 2\nYou are welcome!\n")

    def test_a_seed_of_more_than_64_bits_is_refused(self):
        for seed in ("18446744073709551616", "-9223372036854775809"):
            for flag in ("--seed", "--random-seed"):
                self.assertIn(f"{flag}: {seed} has more than 64 bits", self.refused(2, *self.GENERATE, f"{flag}={seed}"))
        self.run_ok(*self.GENERATE, "--max-new-tokens", 1, "--prompt", "x", "--seed", "18446744073709551615")

    def test_a_number_that_is_none_is_refused(self):
        for flag in ("--drain-timeout", "--keep-alive-timeout", "--max-queue-seconds", "--mem-fraction-static"):
            for value in ("nan", "-nan", "inf"):
                self.assertIn(f"{flag}: {value} is no finite number",
                              self.refused(2, "serve", "--model-path", DEMO, f"{flag}={value}"))

    def test_a_prompt_in_brackets_is_one_prompt(self):
        done = self.run_ok(*self.GENERATE, "--prompt", "[1, 2]", "--max-new-tokens", 1, "--json")
        self.assertEqual(len(done.stdout.splitlines()), 1, done.stdout)

    def test_json_holds_ids_reason_and_logprobs(self):
        done = self.run_ok(*self.GENERATE, "--chat", "--prompt", "Hello!", "--json", "--return-logprob",
                           "--top-logprobs-num", 2, "--return-prompt-logprob")
        value = json.loads(done.stdout)
        self.assertEqual(value["content"], "Hello! How can I help you today?")
        self.assertEqual(value["meta_info"]["finish_reason"], {"type": "stop", "matched": 1})
        self.assertEqual(value["meta_info"]["prompt_tokens"], 6)
        logprobs = value["meta_info"]["output_token_logprobs"]
        self.assertEqual([entry[1] for entry in logprobs], value["output_ids"])
        self.assertTrue(all(entry[0] <= 0 for entry in logprobs))
        for chosen, top in zip(logprobs, value["meta_info"]["output_top_logprobs"]):
            self.assertEqual(len(top), 2)
            self.assertEqual(top[0][1], chosen[1])  # greedy takes the best
        self.assertEqual(len(value["meta_info"]["input_token_logprobs"]), 5)

    def test_reasoning_is_kept_apart_from_the_answer(self):
        done = self.run_ok(*self.GENERATE, "--chat", "--thinking", "--json", "--prompt",
                           "Ada has 4 pens. Ben gives Ada 3 more pens at school. How many pens does Ada have now?")
        value = json.loads(done.stdout)
        self.assertIn("4+3", value["reasoning_content"])
        self.assertIn("7", value["content"])
        self.assertNotIn("think>", value["content"])

    def test_the_same_seed_gives_the_same_text(self):
        sampled = ["generate", "--model-path", DEMO, *SMALL, "--chat", "--temperature", 1.5, "--seed", 7,
                   "--max-new-tokens", 24, "--prompt", "Tell me a short story about a fox."]
        self.assertEqual(self.run_ok(*sampled).stdout, self.run_ok(*sampled).stdout)

    def test_deterministic_answers_do_not_depend_on_the_chunk_size(self):
        prompt = "Ada has 4 pens. Ben gives Ada 3 more pens at school. How many pens does Ada have now? " * 6

        def answers(*flags):
            """Of two chunk sizes: ids, and every log-probability with all its digits."""
            generate = ["generate", "--model-path", DEMO, "--max-total-tokens", 8192, "--cpu-threads", 2, "--log-level",
                        "warning", "--max-running-requests", 8, "--temperature", 1, "--seed", 3, "--max-new-tokens", 12,
                        "--prompt", prompt, "--json", "--return-logprob", "--return-prompt-logprob", *flags]
            metas = [json.loads(self.run_ok(*generate, "--chunked-prefill-size", chunk).stdout)["meta_info"]
                     for chunk in (8, 512)]
            return [(meta["input_token_logprobs"], meta["output_token_logprobs"]) for meta in metas]

        small, large = answers("--deterministic")
        self.assertEqual(small, large)
        small, large = answers()
        self.assertNotEqual(small, large)  # what the flag is for

    def test_length_ends_the_output(self):
        done = self.run_ok(*self.GENERATE, "--json", "--max-new-tokens", 5, "--ignore-eos", "--prompt", "Question:")
        value = json.loads(done.stdout)
        self.assertEqual(value["meta_info"]["finish_reason"], {"type": "length", "length": 5})
        self.assertEqual(len(value["output_ids"]), 5)

    def test_every_setting_is_logged_at_the_start(self):
        flags = [flag for flag in SMALL if flag not in ("--log-level", "warning")]
        done = self.run_ok("generate", "--model-path", DEMO, *flags, "--chat", "--prompt", "Hello!")
        for part in ("cpu_threads=2", "load_format=auto", "dequantize=false", "deterministic=false",
                     "kv_cache_dtype=f32", "absorbed_dtype=bf16", "chunked_prefill_size=256", "max_running_requests=16", "event=ready",
                     "percent=100"):
            self.assertIn(part, done.stderr)


class EvalAndBenchTest(CommandLineTest):
    def test_gsm8k_prints_accuracy_and_throughput(self):
        with tempfile.TemporaryDirectory() as folder:
            result = pathlib.Path(folder, "result.json")
            done = self.run_ok("eval", "gsm8k", "--model-path", DEMO, "--data", DEMO / "eval.json", "--shots",
                               DEMO / "shots.json", "--num-questions", 20, "--parallel", 8, "--max-total-tokens",
                               16384, "--chunked-prefill-size", 256, "--log-level", "warning", "--json", result)
            self.assertRegex(done.stdout, r"^Accuracy: 1\.000\nInvalid: 0\.000\nLatency: [\d.]+ s\n"
                                          r"Output throughput: [\d.]+ token/s\n$")
            value = json.loads(result.read_text())
        self.assertEqual((value["accuracy"], value["num_requests"]), (1.0, 20))
        self.assertFalse(value["settings"]["disable_overlap_schedule"])

    def test_gsm8k_fails_below_the_accuracy_that_is_asked_for(self):
        with tempfile.TemporaryDirectory() as folder:
            result = pathlib.Path(folder, "result.json")
            # Answers of one token are none.
            done = fathom("eval", "gsm8k", "--model-path", DEMO, "--data", DEMO / "eval.json", "--num-questions", 2,
                          "--max-new-tokens", 1, "--max-total-tokens", 1024, "--log-level", "warning", "--json", result,
                          "--min-accuracy", 0.5, "--disable-overlap-schedule")
            value = json.loads(result.read_text())
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("accuracy 0.0000 is below --min-accuracy 0.5", done.stderr)
        self.assertEqual(value["accuracy"], 0.0)
        self.assertTrue(value["settings"]["disable_overlap_schedule"])

    def test_gsm8k_is_answered_as_well_with_drafts_most_of_which_hold(self):
        with tempfile.TemporaryDirectory() as folder:
            result = pathlib.Path(folder, "result.json")
            done = self.run_ok("eval", "gsm8k", "--model-path", DEMO, "--data", DEMO / "eval.json", "--shots",
                               DEMO / "shots.json", "--num-questions", 20, "--parallel", 8, "--max-total-tokens",
                               16384, "--chunked-prefill-size", 256, "--log-level", "warning", "--json", result,
                               "--speculative-algorithm", "NEXTN", "--no-speculative-adaptive")
            value = json.loads(result.read_text())
        self.assertRegex(done.stdout, r"Accept length: [\d.]+\n$")
        print(done.stdout)
        self.assertEqual(value["accuracy"], 1.0)
        self.assertGreaterEqual(value["accept_length"], 1.85)
        self.assertIs(value["accept_simulated"], False)

    def test_gsm8k_says_when_acceptance_is_simulated(self):
        with tempfile.TemporaryDirectory() as folder:
            result = pathlib.Path(folder, "result.json")
            done = self.run_ok("eval", "gsm8k", "--model-path", DEMO, "--data", DEMO / "eval.json", "--num-questions", 2,
                               "--parallel", 2, "--max-new-tokens", 20, "--max-total-tokens", 4096,
                               "--chunked-prefill-size", 256, "--log-level", "warning", "--json", result,
                               "--speculative-algorithm", "NEXTN", "--no-speculative-adaptive",
                               "--simulate-accept-length", 1.5)
            value = json.loads(result.read_text())
        self.assertRegex(done.stdout, r"Accept length: [\d.]+, acceptance is simulated\n$")
        self.assertIs(value["accept_simulated"], True)

    def test_one_batch_verifies_drafts_and_says_when_that_is_simulated(self):
        with tempfile.TemporaryDirectory() as folder:
            result = pathlib.Path(folder, "result.jsonl")
            done = self.run_ok("bench", "one-batch", "--model-path", DEMO, "--load-format", "dummy", "--batch-size", 2,
                               "--input-len", 32, "--output-len", 60, "--result-filename", result, "--log-level",
                               "warning", "--cpu-threads", 2, "--speculative-algorithm", "EAGLE",
                               "--speculative-num-steps", 3, "--simulate-accept-length", 2.5)
            line = json.loads(result.read_text().splitlines()[-1])
        self.assertIn("acceptance is simulated", done.stdout)
        self.assertTrue(line["accept_simulated"])
        self.assertAlmostEqual(line["accept_length"], 2.5, delta=0.6)

    def test_one_batch_prints_sglang_lines_and_appends_json(self):
        with tempfile.TemporaryDirectory() as folder:
            result = pathlib.Path(folder, "result.jsonl")
            done = self.run_ok("bench", "one-batch", "--model-path", DEMO, "--batch-size", 1, 3, "--input-len", 70,
                               "--output-len", 4, "--chunked-prefill-size", 64, "--result-filename", result,
                               "--log-level", "warning", "--cpu-threads", 2)
            lines = [json.loads(line) for line in result.read_text().splitlines()]
        self.assertEqual(done.stdout.count("Prefill. latency: "), 3)  # the warm-up's, too
        self.assertRegex(done.stdout, r"Decode 0\. Batch size: 3, latency: [\d.]+ s, throughput: +[\d.]+ token/s")
        self.assertRegex(done.stdout, r"Decode\.  median latency: [\d.]+ s, median throughput: +[\d.]+ token/s, mean: ")
        self.assertEqual([line["batch_size"] for line in lines], [1, 3])
        for key in ("prefill_latency", "median_decode_throughput", "overall_throughput"):
            self.assertGreater(lines[1][key], 0)
        # Three sequences, and each has its first token from the prompt.
        seconds = lines[1]["total_latency"] - lines[1]["prefill_latency"]
        self.assertAlmostEqual(lines[1]["mean_decode_throughput"] * seconds, 3 * 3, delta=0.01)

    def test_dummy_weights_need_only_a_config(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "config.json").write_text((DEMO / "config.json").read_text())
            done = self.run_ok("bench", "one-batch", "--model-path", folder, "--load-format", "dummy",
                               "--num-layers", 2, "--input-len", 8, "--output-len", 2, "--log-level", "warning")
        self.assertIn("Total. latency: ", done.stdout)


class InspectTest(CommandLineTest):
    def test_the_demo_model_is_described_and_would_load(self):
        done = self.run_ok("inspect", "--model-path", DEMO)
        self.assertIn("DeepseekV3ForCausalLM", done.stdout)
        self.assertIn("ok, this program can load it", done.stdout)

    def test_counts_agree_with_the_index(self):
        value = json.loads(self.run_ok("inspect", "--model-path", DEMO, "--json", "--tensors").stdout)
        index = json.loads((DEMO / "model.safetensors.index.json").read_text())
        self.assertEqual(value["checkpoint_bytes"], index["metadata"]["total_size"])
        self.assertEqual({t["name"] for t in value["tensors"]}, set(index["weight_map"]))
        elements = 0
        for tensor in value["tensors"]:
            count = 1
            for dim in tensor["shape"]:
                count *= dim
            own = not tensor["name"].endswith("_scale_inv") and not tensor["name"].startswith("model.layers.4.")
            elements += count if own else 0
        self.assertEqual(value["num_parameters"], elements)
        self.assertLess(value["num_active_parameters"], value["num_parameters"])
        self.assertEqual(value["kv_bytes_per_token"], 4 * 576 * 4)
        self.assertEqual((value["chat_format"], value["problems"]), ("v3.1", []))

    def operators(self, *flags, model=DEMO):
        """{backend: {step: {where: {op: (dtype, count)}}}} and {backend: names of what runs fused}."""
        value = json.loads(self.run_ok("inspect", "--model-path", model, "--json", "--operators", *flags).stdout)
        # Every backend of the program, or why it is not here.
        unlisted = {entry["backend"]: entry["why"] for entry in value.get("operators_unlisted", [])}
        self.assertEqual(sorted([listing["backend"] for listing in value["operators"]] + list(unlisted)),
                         ["cpu", "cpu-reference", "cuda"])
        for backend, why in unlisted.items():
            self.assertEqual(backend, "cuda")
            self.assertRegex(why, r"\w+ \w+")
        for listing in value["operators"]:
            self.assertEqual(listing["runner"], ["step_inputs", "gather_rows", "sample", "commit_tokens"])
        steps = {listing["backend"]: {step["step"].split()[0]: {
            group["where"]: {op["op"]: (op["dtype"], op["count"]) for op in group["operators"]}
            for group in step["groups"]} for step in listing["steps"]} for listing in value["operators"]}
        fused = {listing["backend"]: {text.split()[0] for text in listing["fused"]} for listing in value["operators"]}
        return steps, fused

    def test_the_operators_of_every_backend_are_listed_by_layer(self):
        steps, fused = self.operators("--kv-cache-dtype", "fp8_e4m3")
        self.assertEqual(fused["cpu"], {"linear_pair", "mla_plan"})
        self.assertEqual(fused["cpu-reference"], {"linear_pair", "rms_norm_quantize", "silu_mul_quantize",
                                                  "moe_experts_shared"})
        for name, backend in steps.items():
            act = "bf16" if name == "cuda" else "f32"
            self.assertEqual(set(backend), {"decode", "prefill", "verification", "draft"})
            decode, prefill = backend["decode"], backend["prefill"]
            self.assertEqual(list(decode), ["before the layers", "layer 0", "layers 1-3", "behind the layers"])
            self.assertEqual(backend["verification"]["layer 0"]["mla_absorbed"], ("f8_e4m3", 1))
            self.assertEqual(list(backend["draft"]), ["draft layer", "behind the layer"])
            self.assertEqual(backend["draft"]["draft layer"]["mla_absorbed"], ("f8_e4m3", 1))
            self.assertIn("linear", backend["draft"]["behind the layer"])
            self.assertEqual(decode["layer 0"]["mla_absorbed"], ("f8_e4m3", 1))
            self.assertNotIn("mla_expanded", decode["layer 0"])
            self.assertNotIn("mla_absorbed", prefill["layers 1-3"])
            # Two prompts, one call.
            self.assertEqual(prefill["layers 1-3"]["mla_expanded"], (act, 1))
            self.assertEqual(prefill["layers 1-3"]["kv_gather"], ("f8_e4m3", 1))
        self.assertIn("moe_experts_shared", steps["cpu-reference"]["decode"]["layers 1-3"])
        self.assertIn("moe_experts", steps["cpu"]["decode"]["layers 1-3"])
        self.assertIn("mla_plan", steps["cpu"]["decode"]["before the layers"])

    def test_a_model_without_a_draft_layer_lists_no_draft(self):
        with tempfile.TemporaryDirectory() as folder:
            for file in DEMO.iterdir():
                pathlib.Path(folder, file.name).symlink_to(file)
            config = json.loads((DEMO / "config.json").read_text())
            pathlib.Path(folder, "config.json").unlink()
            pathlib.Path(folder, "config.json").write_text(json.dumps({**config, "num_nextn_predict_layers": 0}))
            text = fathom("inspect", "--model-path", folder, "--operators").stdout
        self.assertIn("decode of 4 sequences", text)
        self.assertNotIn("draft", text[text.index("operators of cpu"):])
        with_layer = self.run_ok("inspect", "--model-path", DEMO, "--operators").stdout
        self.assertRegex(with_layer, r"with drafts +draft_inputs; draft_rows; accept_drafts; move_rows; top_k; grow_drafts; select_rows")

    def test_the_listing_follows_the_flags(self):
        steps, fused = self.operators("--dequantize", "--deterministic")
        self.assertIn("mla_absorbed", steps["cpu"]["prefill"]["layer 0"])
        self.assertNotIn("rms_norm_quantize", fused["cpu-reference"])
        self.assertEqual(steps["cpu"]["decode"]["layer 0"]["linear"][0], "bf16")
        self.assertEqual(steps["cpu"]["decode"]["layer 0"]["head_linear"], ("bf16", 2))
        steps, _ = self.operators("--absorbed-dtype", "fp8_e4m3")
        for backend in steps.values():
            self.assertEqual(backend["decode"]["layer 0"]["head_linear"], ("f8_e4m3", 2))
            self.assertNotIn("head_linear", backend["prefill"]["layer 0"])
        text = self.run_ok("inspect", "--model-path", DEMO, "--operators").stdout
        self.assertIn("linear_pair f8_e4m3 (fused)", text)
        self.assertRegex(text, r"in parts +.*moe_experts_shared \(linear, silu_mul, linear, moe_experts\)")

    def test_what_would_fail_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            for file in DEMO.iterdir():
                pathlib.Path(folder, file.name).symlink_to(file)
            config = json.loads((DEMO / "config.json").read_text())
            config["moe_intermediate_size"] = 64
            pathlib.Path(folder, "config.json").unlink()
            pathlib.Path(folder, "config.json").write_text(json.dumps(config))
            done = fathom("inspect", "--model-path", folder)
        self.assertEqual(done.returncode, 1)
        self.assertIn("PROBLEM", done.stdout)


class TokenizeTest(CommandLineTest):
    def test_text_comes_back_from_its_ids(self):
        for text in ("Hello world", "小明有12个苹果", "  spaces\tand\nlines ", "😀 é"):
            with self.subTest(text=text):
                ids = self.run_ok("tokenize", "--model-path", DEMO, "--no-bos", stdin=text).stdout.split()
                done = self.run_ok("tokenize", "--model-path", DEMO, "--json", "--decode", *ids)
                self.assertEqual(json.loads(done.stdout)["text"], text)

    def test_a_chat_has_special_tokens_and_text_from_users_has_none(self):
        ids = json.loads(self.run_ok("tokenize", "--model-path", DEMO, "--chat", "--json", "--text",
                                     "Hello!").stdout)["tokens"]
        self.assertEqual(len(ids), 6)
        self.assertEqual(ids[0], 0)
        plain = json.loads(self.run_ok("tokenize", "--model-path", DEMO, "--no-bos", "--json", "--text",
                                       "<｜User｜>").stdout)["tokens"]
        parsed = json.loads(self.run_ok("tokenize", "--model-path", DEMO, "--no-bos", "--json", "--parse-special",
                                        "--text", "<｜User｜>").stdout)["tokens"]
        self.assertGreater(len(plain), 1)
        self.assertEqual(len(parsed), 1)

    def test_an_empty_text_leaves_standard_input_alone(self):
        self.assertEqual(self.run_ok("tokenize", "--model-path", DEMO, "--text", "", stdin="Hi").stdout, "0\n")

    def test_an_id_out_of_range_is_refused(self):
        self.assertIn("token id 99999", self.refused(1, "tokenize", "--model-path", DEMO, "--decode", 99999))


if __name__ == "__main__":
    unittest.main()
