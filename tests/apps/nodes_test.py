"""Nodes that are processes of this host: the tokens of one rank, started by flags and by launchers, one sentence each where
they cannot meet, and the end of all with the end of one.

With FATHOM_TEST_DEVICE=cuda each of two nodes has a GPU, and says what one process with both says."""
import ctypes.util
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
import skipping  # noqa: E402
from serving_process import DEMO, PATIENCE_SECONDS, PROGRAM, ServingProcess, environment  # noqa: E402

if ctypes.util.find_library("ucp") is None:
    skipping.skip("there is no UCX", "install libucx-dev and build again")

ON_GPUS = os.environ.get("FATHOM_TEST_DEVICE") == "cuda"
FLOAT32 = ("--dequantize", "--dtype", "bfloat16" if ON_GPUS else "float32")
SMALL = (*(("--device", "cuda") if ON_GPUS else ("--device", "cpu", "--cpu-threads", 1)), "--max-total-tokens", 4096,
         "--max-running-requests", 8, "--chunked-prefill-size", 128)
QUESTION = "Mia has 12 apples. Mia gets 7 more apples. How many apples does Mia have now?"
ASK = ("--chat", "--temperature", 0, "--prompt", QUESTION, "--log-level", "error")
MIXED = ("--tp-size", 2 if ON_GPUS else 4, "--enable-ep-moe", "--enable-dp-attention", "--dp-size", 2,
         "--speculative-algorithm", "NEXTN", "--speculative-num-steps", 3)
LAUNCHERS = [path for path in map(shutil.which, ("mpirun", "mpiexec.hydra")) if path]
# Of Open MPI, version 5 too: more processes than cores, and by root.
ALLOWED = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
           "OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}


def free_address():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


def own_gpu(node):
    return {"CUDA_VISIBLE_DEVICES": str(node)} if ON_GPUS else {}


def words(command, args):
    model = () if "--model-path" in args else ("--model-path", DEMO)
    return [PROGRAM, command, *map(str, (*model, *SMALL, *args))]


def start(command, *args, env=None):
    return subprocess.Popen(words(command, args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=environment(env))


def started_nodes(num_nodes, *args, own=None):
    """generate on so many nodes; own: flags by node."""
    nodes = ("--nnodes", num_nodes, "--dist-init-addr", free_address())
    return [start("generate", *nodes, "--node-rank", node, *ASK, *args, *((own or {}).get(node, ())), env=own_gpu(node))
            for node in range(num_nodes)]


def ends_of(processes):
    """(exit status, standard output, the program's sentences) of each."""
    ends = []
    for process in processes:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
        ends.append((process.returncode, out, [line for line in err.splitlines() if line.startswith("fathom: ")]))
    return ends


def one_process(*args):
    (status, out, errors), = ends_of([start("generate", *ASK, *FLOAT32, *args)])
    assert status == 0, errors
    return out


class TokensTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.one = one_process()

    def test_nodes_say_what_one_rank_says(self):
        self.assertIn("19", self.one)
        for num_nodes, args in ((2, ("--tp-size", 2)), (2 if ON_GPUS else 4, MIXED)):
            # bf16 rounds a sum of other parts otherwise.
            one = one_process(*args) if ON_GPUS else self.one
            ends = ends_of(started_nodes(num_nodes, *FLOAT32, *args))
            self.assertEqual(ends, [(0, one, [])] + [(0, "", [])] * (num_nodes - 1), args)

    @unittest.skipUnless(ON_GPUS, skipping.because("nodes compute on CPUs", "FATHOM_TEST_DEVICE=cuda and two GPUs"))
    def test_gpus_of_two_nodes_give_the_probabilities_of_one_process(self):
        ask = ("--tp-size", 2, "--json", "--return-logprob")
        one = one_process(*ask)
        head, _ = ends_of(started_nodes(2, *FLOAT32, *ask))
        # Times differ.
        answers = [json.loads(text)["meta_info"]["output_token_logprobs"] for text in (one, head[1])]
        self.assertEqual(answers[1], answers[0])

    @unittest.skipUnless(ON_GPUS, skipping.because("nodes compute on CPUs", "FATHOM_TEST_DEVICE=cuda and two GPUs"))
    def test_two_nodes_with_one_gpu_are_refused(self):
        address = free_address()
        ends = ends_of([start("generate", "--nnodes", 2, "--node-rank", node, "--dist-init-addr", address, "--tp-size", 2,
                              *ASK, env=own_gpu(0)) for node in (0, 1)])
        for status, _, sentences in ends:
            self.assertEqual((status, len(sentences)), (1, 1), ends)
            self.assertIn("rank 0 and rank 1 of tp have the same GPU: give each process one of its own", sentences[0])

    @unittest.skipIf(ON_GPUS, skipping.because("mpirun gives both processes all GPUs", "a run without FATHOM_TEST_DEVICE"))
    @unittest.skipUnless(LAUNCHERS, skipping.because("there is no mpirun", "install openmpi-bin or hydra"))
    def test_nodes_may_be_started_by_open_mpi_and_mpich(self):
        for launcher in LAUNCHERS:
            done = subprocess.run(
                [launcher, "-n", "2", *words("generate", (
                    "--dist-init-addr", free_address(), *ASK, *FLOAT32, "--tp-size", 2))],
                capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False, env=environment(ALLOWED))
            self.assertEqual((done.returncode, done.stdout), (0, self.one), done.stderr)


class RefusalTest(unittest.TestCase):
    def refused(self, part, own, *args, statuses=(1, 1)):
        began = time.monotonic()
        ends = ends_of(started_nodes(2, "--tp-size", 2, *args, own=own))
        self.assertLess(time.monotonic() - began, PATIENCE_SECONDS)
        self.assertEqual([status for status, _, _ in ends], list(statuses), ends)
        for _, _, sentences in ends:
            self.assertEqual(len(sentences), 1, ends)
            self.assertIn(part, sentences[0])

    def test_other_flags(self):
        self.refused('kv_cache_dtype: node 0 has "auto", node 1 has "float32"', {1: ("--kv-cache-dtype", "float32")})

    def test_another_checkpoint(self):
        with tempfile.TemporaryDirectory() as directory:
            for path in DEMO.iterdir():
                if path.is_file():
                    shutil.copy(path, directory)
            for path in pathlib.Path(directory).glob("*.safetensors"):
                data = bytearray(path.read_bytes())
                data[-1] ^= 1
                path.write_bytes(data)
            self.refused("does not agree with node 0: checkpoint: node 0 has ", {1: ("--model-path", directory)})

    def test_another_key(self):
        with tempfile.TemporaryDirectory() as directory:
            keys = [pathlib.Path(directory, name) for name in "ab"]
            for key in keys:
                key.write_text(key.name * 64, encoding="utf-8")
            head, node = started_nodes(2, "--tp-size", 2, own={
                place: ("--cluster-key-file", key) for place, key in enumerate(keys)})
            (status, _, sentences), = ends_of([node])
            self.assertEqual(status, 1)
            self.assertIn("has another --cluster-key-file, or one of both has none", sentences[0])
            # It waits for the node that has its key; anybody could end it otherwise.
            self.assertIsNone(head.poll())
            head.kill()
            head.communicate()

    def test_a_port_in_use(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            (status, _, sentences), = ends_of([start("generate", *ASK, "--tp-size", 2, "--nnodes", 2, "--node-rank", 0,
                                                     "--dist-init-addr", address)])
            self.assertEqual(status, 1)
            self.assertEqual(sentences, [f"fathom: --dist-init-addr {address}: cannot listen on {address}: "
                                         "Address already in use"])

    def test_an_address_that_others_reach_without_a_key(self):
        (status, _, sentences), = ends_of([start("generate", *ASK, "--tp-size", 2, "--nnodes", 2, "--node-rank", 0,
                                                 "--dist-init-addr", "0.0.0.0:29500")])
        self.assertEqual(status, 1)
        self.assertIn("is reached by others than this host, which needs --cluster-key-file", sentences[0])


class ServingNodes:
    """A server on two nodes."""

    def __init__(self, *args):
        nodes = ("--nnodes", 2, "--dist-init-addr", free_address(), "--tp-size", 2, "--dist-timeout", 2, *SMALL, *args)
        self.node = subprocess.Popen([PROGRAM, "serve", "--model-path", str(DEMO), *map(str, nodes), "--node-rank", "1"],
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                     env=environment(own_gpu(1)))
        self.head = ServingProcess(*nodes, "--node-rank", 0, env=own_gpu(0))

    def __enter__(self):
        self.head.__enter__()
        return self

    def __exit__(self, *_):
        self.head.end()
        if self.node.poll() is None:
            self.node.kill()
        self.node.communicate()


class ServingTest(unittest.TestCase):
    def test_a_server_ends_with_its_nodes(self):
        with ServingNodes(*FLOAT32) as nodes:
            status, answer = nodes.head.post("/generate", {"text": "Hello", "sampling_params": {"max_new_tokens": 4}})
            self.assertEqual(status, 200, answer)
            self.assertEqual(nodes.head.get("/server_info")[1]["nnodes"], 2)
            # A supervisor that ends all of them ends the service: node 0 first finishes what it has.
            nodes.node.send_signal(signal.SIGTERM)
            status, answer = nodes.head.post("/generate", {"text": "Hello", "sampling_params": {"max_new_tokens": 4}})
            self.assertEqual(status, 200, answer)
            self.assertEqual(nodes.head.end(), 0, nodes.head.log_text())
            self.assertEqual(nodes.node.wait(PATIENCE_SECONDS), 0)

    def loses_its_node(self, number, why, seconds):
        with ServingNodes() as nodes:
            connection, response = nodes.head.open("POST", "/generate", {
                "text": "Hello", "stream": True, "sampling_params": {"max_new_tokens": 2000, "ignore_eos": True}})
            self.assertEqual(response.status, 200)
            response.readline()
            began = time.monotonic()
            nodes.node.send_signal(number)
            with self.assertRaises(http.client.IncompleteRead) as cut:  # a stream that failed has no end
                response.read()
            self.assertLess(time.monotonic() - began, seconds)
            self.assertIn(b"model_failed", cut.exception.partial)
            connection.close()
            self.assertEqual(nodes.head.process.wait(PATIENCE_SECONDS), 70)
            failed, = nodes.head.log_lines("ranks have failed")
            self.assertIn("node 1 at 127.0.0.1:", json.dumps(failed))
            self.assertIn(why, json.dumps(failed))

    def test_a_killed_node_ends_requests_within_a_second(self):
        self.loses_its_node(signal.SIGKILL, "closed its connection: its process has ended", 1)

    def test_a_node_that_stands_still_ends_requests(self):
        self.loses_its_node(signal.SIGSTOP, "was silent for 2000 ms", 5)


if __name__ == "__main__":
    skipping.main()
