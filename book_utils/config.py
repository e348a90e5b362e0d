"""The sizes that define a GPT, and the constraints between them (chapter 1)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from types import MappingProxyType

from book_utils import _checks


@dataclass(frozen=True)
class GPTConfig:
    """The sizes of a GPT. Immutable, and valid once it exists.

    The keys are those of the configuration dictionary in "Build a Large Language Model (From Scratch)", chapter 4, and
    a configuration can be read like that dictionary: `cfg["emb_dim"]`, `dict(cfg)`.

    vocab_size      V, the number of token ids: 0 .. V - 1
    context_length  C, the longest input, in tokens
    emb_dim         D, features per position; n_heads divides it
    n_heads         H, attention heads
    n_layers        L, transformer blocks
    drop_rate       dropout probability, in [0, 1), where none of the next three says otherwise
    drop_rate_emb, drop_rate_attn, drop_rate_shortcut
                    the same for the embeddings, the attention weights, the two shortcut branches of a block
    qkv_bias        whether the query, key and value projections have a bias
    tie_weights     whether the output head and the token embedding are one Parameter

    Raises TypeError or ValueError, naming the key, the value and the limit.
    """

    vocab_size: int
    context_length: int
    emb_dim: int
    n_heads: int
    n_layers: int
    drop_rate: float = 0.0
    qkv_bias: bool = False
    drop_rate_emb: float | None = None
    drop_rate_attn: float | None = None
    drop_rate_shortcut: float | None = None
    tie_weights: bool = False

    def __post_init__(self):
        for name in ("vocab_size", "context_length", "emb_dim", "n_heads", "n_layers"):
            self._set(name, _checks.positive_int(name, getattr(self, name)))
        self._set("drop_rate", _checks.dropout_rate("drop_rate", self.drop_rate))
        for name in ("drop_rate_emb", "drop_rate_attn", "drop_rate_shortcut"):
            if getattr(self, name) is not None:
                self._set(name, _checks.dropout_rate(name, getattr(self, name)))
        for name in ("qkv_bias", "tie_weights"):
            _checks.boolean(name, getattr(self, name))
        _checks.divisible("emb_dim", self.emb_dim, "n_heads", self.n_heads)

    def _set(self, name, value):
        object.__setattr__(self, name, value)  # the one way to write a field of a frozen dataclass

    @property
    def head_dim(self) -> int:
        """Features per attention head, D / H."""
        return self.emb_dim // self.n_heads

    def rate(self, place: str) -> float:
        """The dropout probability at one place: "emb", "attn" or "shortcut"."""
        own = getattr(self, f"drop_rate_{place}")
        return self.drop_rate if own is None else own

    def __getitem__(self, key: str):
        names = [field.name for field in fields(self)]
        if key not in names:
            raise KeyError(f"GPTConfig has no {key!r}; its keys are {', '.join(names)}")
        return self.rate(key.removeprefix("drop_rate_")) if key.startswith("drop_rate_") else getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> list[str]:
        """The names of all settings that have a value of their own, as for a dictionary: `GPTConfig(**cfg) == cfg`."""
        return [field.name for field in fields(self) if getattr(self, field.name) is not None]

    @classmethod
    def from_dict(cls, settings: "GPTConfig | Mapping") -> "GPTConfig":
        """A configuration from an upstream dictionary (or from a configuration: itself).

        ValueError for an unknown key, with the nearest known one, and for missing sizes, all of them.
        """
        if isinstance(settings, cls):
            return settings
        if not isinstance(settings, Mapping):
            raise TypeError(f"a configuration is a GPTConfig or a dictionary, got {type(settings).__name__}")
        known = {field.name: field for field in fields(cls)}
        for key in settings:
            if key not in known:
                raise ValueError(f"unknown configuration key {key!r}; {_nearest(key, known)}")
        missing = [name for name in REQUIRED if name not in settings]
        if missing:
            raise ValueError(f"the configuration lacks {', '.join(missing)}")
        return cls(**settings)


REQUIRED = ("vocab_size", "context_length", "emb_dim", "n_heads", "n_layers")


def _nearest(key: object, known) -> str:
    close = get_close_matches(str(key), known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(known)}"


# The book's small model, and the four sizes of GPT-2: layers and widths from Radford et al. 2019, table 2, vocabulary
# and context from section 2.3, heads from the released hparams.json. These are names of architectures: a configuration
# holds no weights. The dropout rate and the missing QKV bias are upstream's defaults.
_GPT2_SMALL = GPTConfig(vocab_size=50257, context_length=1024, emb_dim=768, n_heads=12, n_layers=12, drop_rate=0.1)
CONFIGS: Mapping[str, GPTConfig] = MappingProxyType(
    {
        "tiny": GPTConfig(vocab_size=16, context_length=16, emb_dim=16, n_heads=4, n_layers=2),
        "gpt2-small": _GPT2_SMALL,
        "gpt2-medium": replace(_GPT2_SMALL, emb_dim=1024, n_heads=16, n_layers=24),
        "gpt2-large": replace(_GPT2_SMALL, emb_dim=1280, n_heads=20, n_layers=36),
        "gpt2-xl": replace(_GPT2_SMALL, emb_dim=1600, n_heads=25, n_layers=48),
    }
)


def get_config(base_config: GPTConfig | Mapping | str, model_name: str | None = None) -> GPTConfig:
    """A named configuration: "tiny", "gpt2-small", "gpt2-medium", "gpt2-large" or "gpt2-xl".

    `get_config("gpt2-xl")` gives all settings of that name. `get_config(base, "gpt2-xl")`, as upstream calls it, takes
    width, depth and heads from the name (upstream's default: "gpt2-small") and the rest from `base`, which is never
    changed. ValueError for an unknown name, with the list of known ones.
    """
    if model_name is None and isinstance(base_config, str):
        return _named(base_config)
    named = _named("gpt2-small" if model_name is None else model_name)
    base = GPTConfig.from_dict(base_config)
    return replace(base, emb_dim=named.emb_dim, n_heads=named.n_heads, n_layers=named.n_layers)


def _named(name: object) -> GPTConfig:
    if not isinstance(name, str) or name not in CONFIGS:
        raise ValueError(f"unknown model name {name!r}; known names: {', '.join(CONFIGS)}")
    return CONFIGS[name]
