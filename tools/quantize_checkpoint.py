#!/usr/bin/env python3
"""Makes an INT8 or AWQ checkpoint from an FP8, bf16 or float32 one, or one with INT4 experts from an FP8 one, in the published layout.

    tools/quantize_checkpoint.py --form channel-int8 models/demo /tmp/demo-int8

channel-int8: a scale for each output channel, amax / 127 (weight_scale), "quant_method": "w8a8_int8". block-int8: a scale for each
block of 128x128 (weight_scale_inv), "quant_method": "blockwise_int8". What is quantised are the matrices that the published INT8
checkpoints quantise: projections of attention and experts; values are rounded to the nearest integer, half to even. All other
tensors and files are copied.

w4afp8: routed experts in INT4, two to a byte, a scale for each 128 channels of an output, amax / 7; "quant_method": "w4afp8". All else
stays FP8. The scales of activations that published checkpoints have (input_scale) are not made: Fathom does not read them.

awq: the same matrices in 4 bits, transposed and eight outputs to a word as AutoAWQ packs them ("version": "gemm"), with a scale and a zero
point for each 64 channels of an output, from the group's smallest to its largest value; "quant_method": "awq". Activations were not
looked at: AWQ's search for better scales is not made here.

It needs nothing but Python, and takes a quarter of a second for a million weights. Large models are published in these forms.
"""
import argparse
import array
import json
import pathlib
import shutil
import struct
import sys

BLOCK = 128
AWQ_GROUP = 64
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # outputs of a word, from its lowest bits on
MATRICES = tuple(f".{name}.weight" for name in (
    "gate_proj", "up_proj", "down_proj", "q_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj", "indexer.wq_b",
    "indexer.wk"))
EXPERTS = ".mlp.experts."
FORMS = {
    "channel-int8": {"quant_method": "w8a8_int8", "activation_scheme": "dynamic"},
    "block-int8": {"quant_method": "blockwise_int8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"},
    "w4afp8": {"quant_method": "w4afp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [BLOCK, BLOCK]},
}


def f8_value(bits):
    exponent, mantissa = bits >> 3 & 15, bits & 7
    value = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0**(exponent - 10)
    if bits & 0x7f == 0x7f:
        value = float("nan")
    return -value if bits & 0x80 else value


F8 = [f8_value(bits) for bits in range(256)]


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


class Checkpoint:
    """The tensors of all files, read when they are asked for."""

    def __init__(self, folder):
        self.tensors = {}  # name: (path, dtype, shape, offset, bytes)
        self.files = sorted(folder.glob("*.safetensors"))
        if not self.files:
            sys.exit(f"{folder}: has no *.safetensors")
        for path in self.files:
            with path.open("rb") as file:
                length = struct.unpack("<Q", file.read(8))[0]
                header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            for name, entry in header.items():
                begin, end = entry["data_offsets"]
                self.tensors[name] = (path, entry["dtype"], entry["shape"], 8 + length + begin, end - begin)

    def data(self, name):
        path, _, _, offset, count = self.tensors[name]
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(count)

    def rows(self, name):
        """Rows of a matrix as lists of floats, with its FP8 scales applied."""
        _, dtype, (num_rows, columns), _, _ = self.tensors[name]
        data = self.data(name)
        if dtype == "F8_E4M3":
            scales = array.array("f", self.data(name + "_scale_inv"))
            across = -(-columns // BLOCK)
            for row in range(num_rows):
                if row % BLOCK == 0:
                    first = row // BLOCK * across
                    tables = [[value * scale for value in F8] for scale in scales[first:first + across]]
                values = []
                for block, table in enumerate(tables):
                    begin = row * columns + block * BLOCK
                    end = min(begin + BLOCK, (row + 1) * columns)
                    values += [table[bits] for bits in data[begin:end]]
                yield values
            return
        if dtype == "F32":
            floats = array.array("f", data)
        elif dtype == "BF16":
            floats = array.array("f", array.array("I", [bits << 16 for bits in array.array("H", data)]).tobytes())
        else:
            sys.exit(f"{name}: is {dtype}, must be F8_E4M3, BF16 or F32")
        for row in range(num_rows):
            yield list(floats[row * columns:(row + 1) * columns])


def scale_of(values, largest=127):
    amax = max(max(values), -min(values))
    if amax != amax or amax == float("inf"):
        sys.exit("a matrix holds NaN or infinity")
    return float32(max(amax, 1e-10) / largest)


def integers(values, scale):
    return bytes([round(value / scale) & 0xff for value in values])


def channel_int8(rows):
    data, scales = bytearray(), array.array("f")
    for values in rows:
        scales.append(scale_of(values))
        data += integers(values, scales[-1])
    return data, scales, [len(scales), 1]


def block_int8(rows):
    rows = list(rows)
    columns = len(rows[0])
    data, scales = bytearray(), array.array("f")
    starts = range(0, columns, BLOCK)
    for top in range(0, len(rows), BLOCK):
        band = rows[top:top + BLOCK]
        across = [scale_of([value for values in band for value in values[begin:begin + BLOCK]]) for begin in starts]
        scales.extend(across)
        for values in band:
            for begin, scale in zip(starts, across):
                data += integers(values[begin:begin + BLOCK], scale)
    return data, scales, [len(scales) // len(starts), len(starts)]


def pairs_int4(rows):
    data, scales = bytearray(), array.array("f")
    for values in rows:
        for begin in range(0, len(values), BLOCK):
            group = values[begin:begin + BLOCK]
            scales.append(scale_of(group, largest=7))
            nibbles = [round(value / scales[-1]) & 15 for value in group]
            data += bytes(low | high << 4 for low, high in zip(nibbles[::2], nibbles[1::2]))
    return data, scales


def awq_group(values):
    """Scale, zero point and integers of 0 to 15."""
    low, high = min(values), max(values)
    if not high - low < float("inf"):
        sys.exit("a matrix holds NaN or infinity")
    scale, = struct.unpack("<e", struct.pack("<e", max(high - low, 1e-5) / 15))
    zero = min(max(round(-low / scale), 0), 15)
    return scale, zero, [min(max(round(value / scale) + zero, 0), 15) for value in values]


def awq_words(outputs):
    """Rows of outputs as words of eight, transposed: [out][n] -> i32[n, out / 8]."""
    words = array.array("I")
    for column in zip(*outputs):
        for begin in range(0, len(column), 8):
            words.append(sum(column[begin + output] << 4 * place for place, output in enumerate(AWQ_ORDER)))
    return words.tobytes()


def awq(name, rows, out, channels):
    if out % 8 or channels % AWQ_GROUP:
        sys.exit(f"{name}: is [{out}, {channels}], must be multiples of 8 and {AWQ_GROUP}")
    quantised, zeros, scales = [], [], []
    for values in rows:
        groups = [awq_group(values[begin:begin + AWQ_GROUP]) for begin in range(0, channels, AWQ_GROUP)]
        scales.append([scale for scale, _, _ in groups])
        zeros.append([zero for _, zero, _ in groups])
        quantised.append([value for _, _, group in groups for value in group])
    base, groups = name.removesuffix("weight"), channels // AWQ_GROUP
    transposed = [scale for group in zip(*scales) for scale in group]
    return [(base + "qweight", "I32", [channels, out // 8], awq_words(quantised)),
            (base + "qzeros", "I32", [groups, out // 8], awq_words(zeros)),
            (base + "scales", "F16", [groups, out], struct.pack(f"<{len(transposed)}e", *transposed))]


def converted(checkpoint, name, form):
    """The tensors that stand for one: (name, dtype, shape, bytes)."""
    _, dtype, shape, _, _ = checkpoint.tensors[name]
    if form == "w4afp8" and EXPERTS in name:
        data, scales = pairs_int4(checkpoint.rows(name))
        return [(name, "I8", [shape[0], shape[1] // 2], bytes(data)),
                (name + "_scale_inv", "F32", [shape[0], len(scales) // shape[0]], scales.tobytes())]
    if form == "w4afp8" and name.endswith(MATRICES) and dtype != "F8_E4M3":
        sys.exit(f"{name}: is {dtype}, must be F8_E4M3: w4afp8 keeps in FP8 what is no routed expert's")
    if form == "w4afp8" or not (name.endswith(MATRICES) and len(shape) == 2):
        return [(name, dtype, shape, checkpoint.data(name))]
    if form == "awq":
        return awq(name, checkpoint.rows(name), *shape)
    quantize, suffix = (channel_int8, "_scale") if form == "channel-int8" else (block_int8, "_scale_inv")
    data, scales, scale_shape = quantize(checkpoint.rows(name))
    return [(name, "I8", shape, bytes(data)), (name + suffix, "F32", scale_shape, scales.tobytes())]


def write_file(path, tensors):
    header, at = {}, 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, _, data in tensors:
            file.write(data)


def layer_of(name):
    parts = name.split(".")
    return int(parts[2]) if name.startswith("model.layers.") else -1


def quantize(source, target, form, num_layers):
    checkpoint = Checkpoint(source)
    target.mkdir(parents=True, exist_ok=True)
    weight_map, total = {}, 0
    for path in checkpoint.files:
        tensors = []
        for name in sorted(checkpoint.tensors):
            is_kept = num_layers is None or layer_of(name) < num_layers
            is_replaced = name.endswith("_scale_inv") and (form != "w4afp8" or EXPERTS in name)
            if checkpoint.tensors[name][0] == path and is_kept and not is_replaced:
                tensors += converted(checkpoint, name, form)
        write_file(target / path.name, tensors)
        weight_map.update((name, path.name) for name, _, _, _ in tensors)
        total += sum(len(data) for _, _, _, data in tensors)
        print(f"{target / path.name}: {len(tensors)} tensors")
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (target / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
    for path in source.iterdir():
        if path.is_file() and path.suffix != ".safetensors" and path.name != "model.safetensors.index.json":
            shutil.copyfile(path, target / path.name)
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = FORMS[form]
    if num_layers is not None:
        config.update(num_hidden_layers=num_layers, num_nextn_predict_layers=0)
    (target / "config.json").write_text(json.dumps(config, indent=2))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path, help="folder of the checkpoint to read")
    parser.add_argument("target", type=pathlib.Path, help="folder to write, made where it is missing")
    parser.add_argument("--form", choices=FORMS, required=True)
    parser.add_argument("--num-layers", type=int, help="keep only the first N decoder layers, for trials")
    flags = parser.parse_args()
    if flags.target.resolve() == flags.source.resolve():
        sys.exit("source and target must be two folders")
    quantize(flags.source, flags.target, flags.form, flags.num_layers)


if __name__ == "__main__":
    main()
