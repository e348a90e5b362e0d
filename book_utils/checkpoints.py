"""Weights in files: GPT-2's own in the Hugging Face layout, upstream's, and one's own, as safetensors (chapter 9)."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from book_utils import _checks
from book_utils._files import replacing
from book_utils.config import REQUIRED, GPTConfig
from book_utils.gpt_model import GPTModel
from book_utils.layouts import HUGGING_FACE, Layout, layout_of, raise_unless_fitting, shapes

WEIGHTS, SHARDS, PICKLE, SETTINGS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "config.json",
)
CONFIG_KEY = "book_utils.config"  # in the metadata of a safetensors file


def save_model(model: GPTModel, path: str | Path, *, overwrite: bool = False) -> None:
    """Write the weights of `model` and its configuration to one safetensors file, whole or not at all.

    A table that is tied is written once. TypeError for another model. ValueError for one that `load_model` could not
    build again: on the meta device, which has no values, or with other parameters than its configuration says (another
    head, blocks that are one). FileExistsError where `path` exists, unless `overwrite` is True.
    """
    path = Path(path)
    _checks.boolean("overwrite", overwrite)
    cfg, state = _as_it_is(model), model.state_dict()
    raise_unless_fitting(state, shapes(cfg))
    shared = _shared_names(model, cfg)
    if shared:
        raise ValueError(f"a file would make two of one Parameter: {'; '.join(shared)}")
    if path.is_dir() or (path.exists() and not overwrite):
        raise FileExistsError(f"{path} exists; save under another name, or replace a file with overwrite=True")
    if cfg.tie_weights:
        del state["out_head.weight"]
    with replacing(path) as new:
        metadata = {CONFIG_KEY: json.dumps(dict(cfg))}  # one entry: several come in any order
        save_file({name: value.contiguous() for name, value in state.items()}, new, metadata)


def _as_it_is(model: object) -> GPTConfig:
    """The configuration of `model`, with `tie_weights` as its Parameters are. Errors as `save_model`."""
    if not isinstance(model, GPTModel):
        raise TypeError(f"model must be a GPTModel, got {type(model).__name__}")
    if any(parameter.is_meta for parameter in model.parameters()):
        raise ValueError("the model is on the meta device, and has no values")
    return replace(model.cfg, tie_weights=getattr(model.out_head, "weight", None) is model.tok_emb.weight)


def _shared_names(model: GPTModel, cfg: GPTConfig) -> list[str]:
    first: dict[nn.Parameter, str] = {}
    pairs = [(first.setdefault(p, name), name) for name, p in model.named_parameters(remove_duplicate=False)]
    return [f"{a} and {b}" for a, b in pairs if a != b and not (cfg.tie_weights and b == "out_head.weight")]


def load_model(path: str | Path, cfg: GPTConfig | Mapping | None = None, *, allow_pickle: bool = False) -> GPTModel:
    """A GPTModel, in eval mode, with the weights of a checkpoint, in the precision of the file.

    path          a safetensors file, or a folder that holds `model.safetensors` (or its shards) and perhaps GPT-2's
                  `config.json`. The names may be those of this book, of upstream, or of Hugging Face, with or without
                  the prefix `transformer.`; masks in the file are passed over
    cfg           the sizes; needed where the file holds none (save_model's does) and no `config.json` is beside it
    allow_pickle  whether a pickle file may be read too, by torch.load with weights_only=True

    ValueError, naming all of them, for missing, unknown and misshapen keys, for sizes in `cfg` other than the file's,
    and for a file that is damaged or of another kind; FileNotFoundError where there is none.
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
    """Give `model`, as it is, the weights of a checkpoint. Errors as `load_model`, before any weight is changed.

    TypeError for another model; ValueError for one on the meta device, or with other parameters than it should have.
    """
    cfg = _as_it_is(model)
    raise_unless_fitting(model.state_dict(), shapes(cfg))
    model.load_state_dict(_read(Path(path), allow_pickle).state_for(cfg))


@dataclass(frozen=True)
class _Checkpoint:
    """What was read. `cfg` is what the file itself says, if it says anything."""

    path: Path
    layout: Layout
    state: Mapping[str, Tensor]
    cfg: GPTConfig | None

    def state_for(self, cfg: GPTConfig) -> dict[str, Tensor]:
        """As the state dict of a GPTModel with `cfg`."""
        try:
            if self.cfg is not None:
                others = [f"{key} = {cfg[key]}, not {self.cfg[key]}" for key in REQUIRED if cfg[key] != self.cfg[key]]
                if others:
                    raise ValueError(f"these weights are for other sizes: {'; '.join(others)}")
            if cfg.n_layers > len(self.state):
                raise ValueError(f"n_layers = {cfg.n_layers}, but the file holds {len(self.state)} tensors")
            return self.layout.to_ours(self.state, cfg)
        except (ValueError, RuntimeError, TypeError, OverflowError) as error:  # torch refuses sizes that are too large
            raise ValueError(f"{self.path}: {error}") from None


def _read(path: Path, allow_pickle: bool) -> _Checkpoint:
    _checks.boolean("allow_pickle", allow_pickle)
    if not path.exists():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    state, cfg = {}, None
    for file, expected in _files_in(path).items() if path.is_dir() else [(path, None)]:
        if _is_pickle(file):
            tensors = _read_pickle(file, allow_pickle)
        else:
            tensors, metadata = _read_safetensors(file)
            cfg = _own_config(file, metadata) or cfg
        if expected is not None and tensors.keys() != expected:
            raise ValueError(f"{file} holds other tensors than {SHARDS} says")
        state |= tensors
    try:
        layout = layout_of(state)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    settings = (path if path.is_dir() else path.parent) / SETTINGS
    if layout is HUGGING_FACE and settings.is_file():
        cfg = gpt2_config(settings)
    return _Checkpoint(path, layout, state, cfg)


def _files_in(folder: Path) -> dict[Path, set[str] | None]:
    """Each file to read, and the names that it should hold, if that is known."""
    if (folder / WEIGHTS).is_file():
        return {folder / WEIGHTS: None}
    if (folder / SHARDS).is_file():
        place = _read_json(folder / SHARDS).get("weight_map")
        if not isinstance(place, dict) or not place or not all(map(_is_shard, place.values())):
            raise ValueError(f"{folder / SHARDS} does not name the shards of a checkpoint")
        return {folder / file: {name for name in place if place[name] == file} for file in sorted(set(place.values()))}
    if (folder / PICKLE).is_file():
        return {folder / PICKLE: None}
    raise FileNotFoundError(f"the folder {folder} holds no file {WEIGHTS}")


def _is_shard(name: object) -> bool:
    return isinstance(name, str) and re.fullmatch(r"[\w-][\w.-]*\.safetensors", name) is not None  # in this folder


def _read_safetensors(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    if not file.is_file():  # a pipe would wait for ever
        raise FileNotFoundError(f"there is no file {file}")
    try:
        with safe_open(file, framework="pt") as tensors:
            return {name: tensors.get_tensor(name) for name in tensors.keys()}, tensors.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file} is no whole safetensors file: {error}") from None


def _is_pickle(file: Path) -> bool:
    """By its first bytes: torch.save makes a zip archive (before 2020 a bare pickle); a safetensors header is JSON."""
    if not file.is_file():
        return False
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
    if CONFIG_KEY not in metadata:
        return None
    try:
        return GPTConfig.from_dict(json.loads(metadata[CONFIG_KEY]))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{file}: its configuration cannot be read: {error}") from None


def _read_json(file: Path) -> dict:
    try:
        settings = json.loads(file.read_text("utf-8"))
    except (ValueError, OSError, RecursionError) as error:
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
    allowed = {  # setting -> the values with which GPT-2 computes what GPTModel does; the first is the default
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
        for key, values in allowed.items()
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
