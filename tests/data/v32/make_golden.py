"""Writes config.json and golden.json here: a tiny DeepSeek-V3.2 in float32, computed by Hugging Face transformers.

    pip install torch transformers==5.24.0 safetensors
    python3 tests/data/v32/make_golden.py

No weights are kept: each is a function of its name and its index (`weights_of`), which tests/model/v32_checkpoint.cc has
too. golden.json names all tensors with their shapes as transformers saves them, and those of an MTP layer, which
transformers leaves out: it is a copy of the last layer with other names, and has no outside reference.

    tensors     {name: shape}
    prompts     [{num_tokens, greedy: ids, argmax: ids of every position or null, logits: of the last position,
                  selected: per layer [bit mask of the rows, row 0 the lowest bit, as a number in hexadecimal] for the
                  positions from first_selected on, close: per layer [positions whose choice hangs on a difference below
                  1e-5 of the largest score]}]
"""

import json
import pathlib
import tempfile
import zlib

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from transformers import DeepseekV32Config, DeepseekV32ForCausalLM

HERE = pathlib.Path(__file__).parent
TOPK = 64
LENGTHS = {1: 8, 7: 8, 64: 8, 65: 8, 333: 8, 3000: 3}  # prompt tokens: greedy tokens
STD = 0.2

CONFIG = DeepseekV32Config(
    vocab_size=256,
    hidden_size=128,
    intermediate_size=96,
    moe_intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=4,
    n_shared_experts=1,
    n_routed_experts=8,
    kv_lora_rank=64,
    q_lora_rank=64,
    qk_rope_head_dim=16,
    v_head_dim=32,
    qk_nope_head_dim=32,
    n_group=4,
    topk_group=2,
    num_experts_per_tok=2,
    routed_scaling_factor=2.5,
    max_position_embeddings=4096,
    first_k_dense_replace=1,
    index_topk=TOPK,
    index_head_dim=64,
    index_n_heads=32,
    bos_token_id=0,
    eos_token_id=1,
    rope_parameters={
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 1024,
    },
)


def uniform(name, count):
    """float32 in [-1, 1), each from 24 bits of a hash of the name's crc32 and the index."""
    x = (np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B9)) ^ np.uint32(zlib.crc32(name.encode()))
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x7FEB352D)
    x ^= x >> np.uint32(15)
    x *= np.uint32(0x846CA68B)
    x ^= x >> np.uint32(16)
    return (x >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)


def weights_of(name, shape):
    values = uniform(name, int(np.prod(shape)))
    if name.endswith(".bias") or name.endswith("correction_bias"):
        values = values * np.float32(0.25)
    elif name.endswith("norm.weight"):
        values = values * np.float32(0.125) + np.float32(1)
    elif name.endswith("indexer.wk.weight"):
        values = values * np.float32(2.0**-5)  # small keys: then the eps of their norm counts
    else:
        values = values * np.float32(STD * 3**0.5)
    return values.reshape(shape)


def prompt_of(length):
    return [int(v) for v in np.floor((uniform(f"prompt.{length}", length) + 1) * 0.5 * 254)  + 2]


def tensor_shapes(directory):
    torch.manual_seed(0)
    DeepseekV32ForCausalLM(CONFIG).save_pretrained(directory)
    return {name: list(values.shape) for name, values in sorted(load_file(directory / "model.safetensors").items())}


def with_mtp_layer(shapes):
    last = f"model.layers.{CONFIG.num_hidden_layers - 1}."
    mtp = f"model.layers.{CONFIG.num_hidden_layers}."
    hidden = CONFIG.hidden_size
    added = {mtp + name[len(last) :]: shape for name, shape in shapes.items() if name.startswith(last)}
    added |= {mtp + f"{name}.weight": [hidden] for name in ("enorm", "hnorm", "shared_head.norm")}
    added[mtp + "eh_proj.weight"] = [hidden, 2 * hidden]
    return shapes | added


class Selections:
    """The scores that the indexers choose from, and what they choose."""

    def __enter__(self):
        self.layers, self.original = [], torch.Tensor.topk

        def topk(scores, k, dim):
            self.layers.append((scores[0].clone(), k))
            return self.original(scores, k, dim=dim)

        torch.Tensor.topk = topk
        return self

    def __exit__(self, *_):
        torch.Tensor.topk = self.original

    def of_layer(self, layer, first):
        """Masks of the rows of the positions from `first` on, and which positions hang on a small difference."""
        scores, k = self.layers[layer]
        masks, close = [], []
        for position in range(first, len(scores)):
            row = scores[position, : position + 1].double().numpy()
            order = np.argsort(-row, kind="stable")
            masks.append("%x" % sum(1 << int(i) for i in order[:k]))
            gap = row[order[k - 1]] - row[order[k]] if len(row) > k else np.inf
            if gap < 1e-5 * np.abs(row).max():
                close.append(position)
        return masks, close


@torch.no_grad()
def golden_of(model, length, num_greedy):
    ids = prompt_of(length)
    with Selections() as selections:
        out = model(torch.tensor([ids]), use_cache=True)
    logits, cache = out.logits[0], out.past_key_values
    first = TOPK if length <= 333 else length - 8
    selected, close = [], []
    for layer in range(CONFIG.num_hidden_layers):
        masks, near = selections.of_layer(layer, first)
        selected.append(masks)
        close.append(near)
    greedy = [int(logits[-1].argmax())]
    while len(greedy) < num_greedy:
        out = model(torch.tensor([[greedy[-1]]]), past_key_values=cache, use_cache=True)
        greedy.append(int(out.logits[0, -1].argmax()))
    return {
        "num_tokens": length,
        "greedy": greedy,
        "argmax": [int(i) for i in logits.argmax(-1)] if length <= 333 else None,
        "logits": [float(f"{v:.8g}") for v in logits[-1]],
        "first_selected": first,
        "selected": selected,
        "close": close,
    }


def main():
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        shapes = tensor_shapes(directory)
        save_file(
            {name: weights_of(name, shape) for name, shape in shapes.items()},
            directory / "model.safetensors",
            metadata={"format": "pt"},
        )
        config = json.loads((directory / "config.json").read_text())
        model = DeepseekV32ForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    config["num_nextn_predict_layers"] = 1
    (HERE / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    golden = {
        "tensors": with_mtp_layer(shapes),
        "prompts": [golden_of(model, length, num_greedy) for length, num_greedy in LENGTHS.items()],
    }
    (HERE / "golden.json").write_text(json.dumps(golden, indent=None, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
