"""Text to ids and back, for the chapters: bytes, which need nothing, or GPT-2's vocabulary, from tiktoken."""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable


@runtime_checkable
class Tokenizer(Protocol):
    """What the chapters ask of a tokenizer; the names are tiktoken's."""

    n_vocab: int

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; a piece that is no whole character becomes the sign �."""


class ByteTokenizer:
    """One id for each byte of a text's UTF-8 form: 0 .. 255."""

    n_vocab = 256

    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8"))

    def decode(self, ids: Iterable[int]) -> str:
        return bytes(ids).decode("utf-8", errors="replace")


def get_tokenizer(name: str) -> Tokenizer:
    """The tokenizer "bytes", or "gpt2": the 50,257 byte pairs of GPT-2, which tiktoken downloads once.

    ValueError for another name, RuntimeError where GPT-2's vocabulary cannot be had.
    """
    if name == "bytes":
        return ByteTokenizer()
    if name != "gpt2":
        raise ValueError(f"tokenizer = {name!r} is neither 'bytes' nor 'gpt2'")
    try:
        import tiktoken

        return tiktoken.get_encoding("gpt2")
    except Exception as error:  # not installed, no network, a broken download: each has errors of its own
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise RuntimeError(f"GPT-2's vocabulary cannot be had here ({reason}); use tokenizer = 'bytes'") from None
