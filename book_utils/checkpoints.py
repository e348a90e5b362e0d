"""Weights in files: GPT-2's own in the Hugging Face layout, upstream's, and one's own, as safetensors (chapter 9)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from book_utils._files import replacing
from book_utils.config import GPTConfig
from book_utils.gpt_model import GPTModel
from book_utils.layouts import HUGGING_FACE, layout_of

WEIGHTS, SHARDS, PICKLE, SETTINGS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "config.json",
)


def save_model(model: GPTModel, path: str | Path, *, overwrite: bool = False) -> None:
    """Write the weights of `model` and its configuration to one safetensors file, whole or not at all.

    A table that is tied is written once. TypeError for another model, ValueError for one on the meta device, which has
    no values, FileExistsError where `path` exists, unless `overwrite` is True.
    """
    path = Path(path)
    if not isinstance(model, GPTModel):
        raise TypeError(f"save_model takes a GPTModel, got {type(model).__name__}")
    state = model.state_dict()
    if model.out_head.weight is model.tok_emb.weight:
        del state["out_head.weight"]
    if any(value.is_meta for value in state.values()):
        raise ValueError("the model is on the meta device, and has no values to save")
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists; save under another name, or with overwrite=True")
    with replacing(path) as new:
        metadata = {"config": json.dumps(dict(model.cfg))}  # one entry: several come in any order
        save_file({name: value.contiguous() for name, value in state.items()}, new, metadata)


def load_model(path: str | Path, cfg: GPTConfig | Mapping | None = None, *, allow_pickle: bool = False) -> GPTModel:
    """A GPTModel, in eval mode, with the weights of a checkpoint, in the precision of the file.

    path          a safetensors file, or a folder that holds `model.safetensors` (or its shards) and perhaps GPT-2's
                  `config.json`. The names may be those of this book, of upstream, or of Hugging Face, with or without
                  the prefix `transformer.`; masks in the file are passed over
    cfg           the sizes; needed where the file holds none (save_model's does) and no `config.json` is beside it
    allow_pickle  whether a pickle file may be read too, by torch.load with weights_only=True

    ValueError, naming all of them, for missing, unknown and misshapen keys, and for a file that is damaged or of
    another kind; FileNotFoundError where there is none.
    """
    checkpoint = _read(Path(path), allow_pickle)
    cfg = GPTConfig.from_dict(cfg) if cfg is not None else checkpoint.cfg
    if cfg is None:
        raise ValueError(f"{path} does not say its sizes, and no {SETTINGS} is beside it; pass cfg=")
    state = checkpoint.state_for(cfg)
    with torch.device("meta"):
        model = GPTModel(cfg)
    model.load_state_dict(state, assign=True)
    return model.eval()


def load_weights(model: GPTModel, path: str | Path, *, allow_pickle: bool = False) -> None:
    """Give `model`, as it is, the weights of a checkpoint. Errors as `load_model`, before any weight is changed."""
    model.load_state_dict(_read(Path(path), allow_pickle).state_for(model.cfg))


@dataclass(frozen=True)
class _Checkpoint:
    path: Path
    state: Mapping[str, Tensor]
    cfg: GPTConfig | None

    def state_for(self, cfg: GPTConfig) -> dict[str, Tensor]:
        """As the state dict of a GPTModel with `cfg`."""
        try:
            return layout_of(self.state).to_ours(self.state, cfg)
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from None


def _read(path: Path, allow_pickle: bool) -> _Checkpoint:
    if not path.exists():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    state, cfg = {}, None
    for file in _files_in(path) if path.is_dir() else [path]:
        if _is_pickle(file):
            state |= _read_pickle(file, allow_pickle)
        else:
            tensors, metadata = _read_safetensors(file)
            state |= tensors
            cfg = _own_config(file, metadata) or cfg
    settings = (path if path.is_dir() else path.parent) / SETTINGS
    if cfg is None and settings.is_file() and layout_of(state) is HUGGING_FACE:
        cfg = gpt2_config(settings)
    return _Checkpoint(path, state, cfg)


def _files_in(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).exists():
        return [folder / WEIGHTS]
    if (folder / SHARDS).exists():
        shards = _read_json(folder / SHARDS).get("weight_map")
        if not isinstance(shards, dict) or not all(
            isinstance(name, str) and Path(name).name == name for name in shards.values()
        ):
            raise ValueError(f"{folder / SHARDS} does not name the shards of a checkpoint")
        return [folder / name for name in sorted(set(shards.values()))]
    if (folder / PICKLE).exists():
        return [folder / PICKLE]
    raise FileNotFoundError(f"the folder {folder} holds no {WEIGHTS}")


def _read_safetensors(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(file, framework="pt") as tensors:
            return {name: tensors.get_tensor(name) for name in tensors.keys()}, tensors.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file} is no whole safetensors file: {error}") from None


def _is_pickle(file: Path) -> bool:
    """By its first bytes: torch.save makes a zip archive (before 2020 a bare pickle); a safetensors header is JSON."""
    with open(file, "rb") as opened:
        start = opened.read(9)
    return start[:4] == b"PK\x03\x04" or (start[:1] == b"\x80" and start[8:] != b"{")


def _read_pickle(file: Path, allowed: bool) -> dict[str, Tensor]:
    if not allowed:
        raise ValueError(
            f"{file} is a pickle file, which can run code when it is read. Convert it to safetensors, or pass "
            "allow_pickle=True to read it with torch.load(weights_only=True)"
        )
    try:
        with open(file, "rb") as opened:  # torch.load goes by the ending of a name
            state = torch.load(opened, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or hostile pickle can fail in any way
        raise ValueError(f"{file} cannot be read with weights_only: {str(error).splitlines()[0]}") from None
    if not isinstance(state, Mapping) or not all(isinstance(key, str) for key in state):
        raise ValueError(f"{file} holds no state dict, but {type(state).__name__}")
    return dict(state)


def _own_config(file: Path, metadata: Mapping[str, str]) -> GPTConfig | None:
    if "config" not in metadata:
        return None
    try:
        return GPTConfig.from_dict(json.loads(metadata["config"]))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file}: its configuration cannot be read: {error}") from None


def _read_json(file: Path) -> dict:
    try:
        settings = json.loads(file.read_text("utf-8"))
    except (ValueError, OSError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from None
    if not isinstance(settings, dict):
        raise ValueError(f"{file} holds no JSON object")
    return settings


def gpt2_config(path: str | Path) -> GPTConfig:
    """The configuration in GPT-2's `config.json`, as Hugging Face writes it (GPT2Config).

    ValueError, naming all of them, for settings that change the computation to one that GPTModel does not make.
    """
    settings = _read_json(Path(path))
    width = settings.get("n_embd")
    only = {  # setting -> the values with which GPT-2 computes what GPTModel does; the first is the default
        "model_type": ["gpt2"],
        "activation_function": ["gelu_new", "gelu_pytorch_tanh"],
        "layer_norm_epsilon": [1e-5],
        "n_inner": [None, 4 * width if isinstance(width, int) else None],
        "scale_attn_weights": [True],
        "scale_attn_by_inverse_layer_idx": [False],
        "add_cross_attention": [False],
    }
    faults = [
        f"{key} = {settings[key]!r}, not {values[0]!r}"
        for key, values in only.items()
        if settings.get(key, values[0]) not in values
    ]
    if faults:
        raise ValueError(f"{path} describes another computation: {'; '.join(faults)}")
    rates = {"embd_pdrop": "drop_rate_emb", "attn_pdrop": "drop_rate_attn", "resid_pdrop": "drop_rate_shortcut"}
    names = {
        "vocab_size": "vocab_size",
        "n_positions" if "n_positions" in settings else "n_ctx": "context_length",
        "n_embd": "emb_dim",
        "n_head": "n_heads",
        "n_layer": "n_layers",
        "tie_word_embeddings": "tie_weights",
        **rates,
    }
    settings = {**dict.fromkeys(rates, 0.1), "tie_word_embeddings": True, **settings}  # GPT2Config's defaults
    given = {ours: settings[theirs] for theirs, ours in names.items() if theirs in settings}
    try:
        return GPTConfig.from_dict({**given, "qkv_bias": True})
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None
