"""What the tests of `fathom serve` start and ask: engines, a request of the native API, a certificate."""
import os
import subprocess

SIM = ["--engine", "sim", "--cpu-threads", 2, "--max-total-tokens", 16384]
# What runs where a test needs an engine that takes its time: with FATHOM_TEST_DEVICE=cuda in the environment, the demo
# model on the GPU.
DEVICE = os.environ.get("FATHOM_TEST_DEVICE")
SMALL = ["--max-total-tokens", 8192, "--chunked-prefill-size", 256, "--max-running-requests", 16, "--cpu-threads", 2]
# Longer than a block of the cache, so that a second request finds some of it.
LONG = "One fish, two fish, and then a fox. " * 20


def slow_engine(step_us):
    if DEVICE:
        return ["--device", DEVICE, "--max-total-tokens", 65536]
    return [*SIM, "--sim-step-us", step_us]


def native(max_new_tokens, text="How many apples are left?", **fields):
    return {"text": text, "sampling_params": {"temperature": 0, "max_new_tokens": max_new_tokens, "ignore_eos": True},
            **fields}


def make_certificate(cert, key):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                    "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
                    "-keyout", key, "-out", cert], check=True, capture_output=True)
