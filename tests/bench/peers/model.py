# SPDX-License-Identifier: Apache-2.0
"""The one model that all engines run: a Llama of the 1B shape with random weights, as a Hugging Face checkpoint.

Weights are drawn from a normal distribution with a standard deviation of 0.02 and rounded to BF16. Speed does not
depend on them. The tokenizer is that of the demo model, filled up to the vocabulary with tokens that no text has, so
that every engine chooses among as many tokens.
"""
import dataclasses
import json
import pathlib
import shutil

ROOT = pathlib.Path(__file__).resolve().parents[3]
TOKENIZER = ROOT / "deploy/demo/target"
CHUNK = 1 << 22  # elements drawn at a time


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of the model. Only the number of layers and the vocabulary can be chosen."""
    layers: int = 16
    vocab: int = 128256
    hidden: int = 2048
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 64
    ffn: int = 8192
    context: int = 1024
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0

    @property
    def name(self):
        return f"{self.layers}-layers-{self.vocab}-tokens"

    def matrices(self):
        """Names and shapes of all matrices, as in a checkpoint of Hugging Face. The head is the embedding."""
        shapes = {"model.embed_tokens.weight": (self.vocab, self.hidden)}
        q_size, kv_size = self.heads * self.head_dim, self.kv_heads * self.head_dim
        for layer in range(self.layers):
            shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in {
                "self_attn.q_proj": (q_size, self.hidden), "self_attn.k_proj": (kv_size, self.hidden),
                "self_attn.v_proj": (kv_size, self.hidden), "self_attn.o_proj": (self.hidden, q_size),
                "mlp.gate_proj": (self.ffn, self.hidden), "mlp.up_proj": (self.ffn, self.hidden),
                "mlp.down_proj": (self.hidden, self.ffn)}.items()}
        return shapes

    def norms(self):
        names = [f"model.layers.{layer}.{name}.weight" for layer in range(self.layers)
                 for name in ("input_layernorm", "post_attention_layernorm")]
        return {name: (self.hidden,) for name in [*names, "model.norm.weight"]}

    def config(self):
        return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
                "hidden_size": self.hidden, "intermediate_size": self.ffn, "num_hidden_layers": self.layers,
                "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads, "head_dim": self.head_dim,
                "vocab_size": self.vocab, "rms_norm_eps": self.rms_norm_eps, "rope_theta": self.rope_theta,
                "max_position_embeddings": self.context, "tie_word_embeddings": True, "attention_bias": False,
                "mlp_bias": False, "bos_token_id": None, "eos_token_id": 4092, "torch_dtype": "bfloat16"}


def header_of(shape):
    """The header of the safetensors file."""
    entries, offset = {}, 0
    for name, sizes in {**shape.matrices(), **shape.norms()}.items():
        end = offset + 2 * (sizes[0] * sizes[1] if len(sizes) == 2 else sizes[0])
        entries[name] = {"dtype": "BF16", "shape": list(sizes), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries).encode()
    return text + b" " * (-len(text) % 8)


def padded_tokenizer(vocab):
    """The tokenizer.json of the demo model with `vocab` tokens."""
    tokenizer = json.loads((TOKENIZER / "tokenizer.json").read_text())
    ids = tokenizer["model"]["vocab"]
    used = set(ids.values()) | {token["id"] for token in tokenizer["added_tokens"]}
    ids |= {f"[UNUSED{token_id}]": token_id for token_id in range(vocab) if token_id not in used}
    return tokenizer


def write_checkpoint(shape, folder):
    """Writes the checkpoint unless it is there."""
    import numpy as np
    if (folder / "config.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(1)
    header = header_of(shape)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for sizes in shape.matrices().values():
            left = sizes[0] * sizes[1]
            while left > 0:
                values = 0.02 * generator.standard_normal(min(left, CHUNK), dtype=np.float32)
                file.write((values.view(np.uint32) >> 16).astype(np.uint16).tobytes())
                left -= values.size
        for sizes in shape.norms().values():
            file.write(np.full(sizes, 0x3F80, np.uint16).tobytes())  # ones
    (folder / "tokenizer.json").write_text(json.dumps(padded_tokenizer(shape.vocab)))
    shutil.copy(TOKENIZER / "tokenizer_config.json", folder)
    (folder / "config.json").write_text(json.dumps(shape.config(), indent=2))


def read_tensors(folder):
    """Yields names and values, as uint16 that hold BF16."""
    import numpy as np
    path = folder / "model.safetensors"
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        entries = json.loads(file.read(length))
    data = np.memmap(path, np.uint8, "r", 8 + length)
    for name, entry in entries.items():
        begin, end = entry["data_offsets"]
        yield name, data[begin:end].view(np.uint16).reshape(entry["shape"])
