"""The loop that writes: one id after the other, outside of the model (chapter 11).

`generate` has the cache of chapter 12, so this module, alone in the book, imports from the chapter after its own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from book_utils import _checks
from book_utils.gpt_model import GPTModel
from book_utils.kv_cache import KVCache


def generate_text_simple(
    model: nn.Module, idx: Integer[Tensor, "B T"], max_new_tokens: int, context_size: int
) -> Integer[Tensor, "B T_plus_n"]:
    """Append the id with the largest logit, `max_new_tokens` times: [B, T] -> [B, T + max_new_tokens].

    model           any module that maps ids [B, T] to logits [B, T, V]
    idx             the prompt: at least one id in each row
    max_new_tokens  how many ids are appended; 0 gives the prompt
    context_size    how many of the last ids the model sees, at most its context_length

    The model runs in eval mode and without gradients; every module gets back its own mode, also after an error.
    TypeError or ValueError for an argument that is none of these, before anything is computed.
    Source: Raschka, "Build a Large Language Model (From Scratch)", section 4.7.
    """
    idx, max_new_tokens, context_size = _checked(model, idx, max_new_tokens, context_size)
    with evaluating(model):
        for _ in range(max_new_tokens):
            logits = model(idx[:, -context_size:])[:, -1]  # [B, V]
            idx = torch.cat([idx, logits.argmax(dim=-1, keepdim=True)], dim=1)  # one id longer
    return idx


def generate(
    model: nn.Module,
    idx: Integer[Tensor, "B T"],
    max_new_tokens: int,
    *,
    use_cache: bool = True,
    context_size: int | None = None,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    eos_id: int | None = None,
    pad_id: int | None = None,
    generator: torch.Generator | None = None,
    stream: Callable[[Integer[Tensor, "B 1"]], object] | None = None,
) -> Integer[Tensor, "B T_plus_n"]:
    """Append ids, up to `max_new_tokens` of them: [B, T] -> [B, T + n]. As it stands, the most likely one each time.

    model           a GPTModel; without a cache any module that maps ids [B, T] to logits [B, T, V]
    idx             the prompt: at least one id in each row; rows of one length, since there is no padding in it
    max_new_tokens  n; fewer only where every row has ended before
    use_cache       whether keys and values are kept (chapter 12); the ids are the same, but for near ties
    context_size    how many of the last ids the model sees; by default, and at most, its context_length
    temperature     0: the largest logit; otherwise ids are drawn, with the logits divided by it
    top_k, top_p    draw among the k most likely ids; among the fewest most likely that together reach the probability
                    p. At temperature 0 they change nothing
    eos_id          a row that has generated this id has ended, and is filled up with pad_id; one in the prompt does not
                    count
    pad_id          by default eos_id
    generator       what draws, on the model's device; by default torch's own
    stream          is called with the ids [B, 1] of each step, as they come

    The model runs in eval mode and without gradients; every module gets back its own mode, also after an error.
    TypeError or ValueError for an argument that is none of these, before anything is computed; ValueError for logits
    from which no id can be chosen.
    Source: Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration" (top-p); Fan et al. 2018, "Hierarchical
    Neural Story Generation" (top-k).
    """
    if _checks.boolean("use_cache", use_cache) and not isinstance(model, GPTModel):
        raise TypeError(f"the cache needs a GPTModel, got {type(model).__name__}; pass use_cache=False")
    if stream is not None and not callable(stream):
        raise TypeError(f"stream must be callable, got {type(stream).__name__}")
    if context_size is None:
        context_size = getattr(getattr(model, "cfg", None), "context_length", None)
    idx, max_new_tokens, context_size = _checked(model, idx, max_new_tokens, context_size)
    _check_choice(temperature, top_k, top_p, generator, idx.device)
    pad_id = _check_ends(model, eos_id, pad_id)
    cache = _cache_for(model, idx, max_new_tokens, context_size) if use_cache else None
    ended = torch.zeros(len(idx), 1, dtype=torch.bool, device=idx.device)  # [B, 1]
    with evaluating(model):
        for _ in range(max_new_tokens):
            logits = _last_logits(model, idx, context_size, cache)  # [B, V]
            new = choose(logits, temperature, top_k, top_p, generator)  # [B, 1]
            if eos_id is not None:
                new = new.masked_fill(ended, pad_id)
                ended = ended | (new == eos_id)
            idx = torch.cat([idx, new], dim=1)  # one id longer
            if stream is not None:
                stream(new)
            if eos_id is not None and ended.all():
                break
    return idx


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """In the block the model is in eval mode and keeps no gradients; then every module has its own mode again."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def choose(
    logits: Float[Tensor, "B V"],
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Integer[Tensor, "B 1"]:
    """One id for each row of logits; the arguments are those of `generate`.

    At temperature 0 the first of the largest. Errors as in `generate`, and ValueError where the largest logit of a row
    is not finite: where there is NaN or +inf among them, or nothing but -inf.
    """
    _check_choice(temperature, top_k, top_p, generator, logits.device)
    largest = logits.amax(dim=-1, keepdim=True)  # [B, 1]
    if not largest.isfinite().all():
        row = (~largest.isfinite()).nonzero()[0, 0].item()
        raise ValueError(f"no id can be chosen: the largest logit of row {row} is {largest[row].item()}")
    if temperature == 0:
        return logits.argmax(dim=-1, keepdim=True)
    wide = torch.promote_types(logits.dtype, torch.float32)  # half precision would round the differences
    differences = logits.to(wide) - largest.to(wide)  # 0 or less, so that no exponential overflows
    vocab_size = logits.shape[-1]
    differences, ids = differences.topk(vocab_size if top_k is None else min(top_k, vocab_size))  # the likeliest first
    probabilities = (differences / temperature).softmax(dim=-1)
    if top_p is not None and top_p < 1:  # the sum before the last ones may round to 1
        before = probabilities.cumsum(dim=-1) - probabilities  # what the likelier ids reach without this one
        probabilities = probabilities.masked_fill(before >= top_p, 0)
    # Back in the order of the ids, so that two nearly equal logits that change places do not change the draw.
    probabilities = torch.zeros_like(logits, dtype=wide).scatter(-1, ids, probabilities)  # [B, V]
    return torch.multinomial(probabilities, 1, generator=generator)  # [B, 1]


def _last_logits(model, idx, context_size, cache) -> Float[Tensor, "B V"]:
    """The logits at the last position, for the last `context_size` ids."""
    if cache is None:
        return model(idx[:, -context_size:])[:, -1]
    if idx.shape[1] > context_size:
        cache.truncate(0)  # the window has moved: each id has another position than its keys and values were made for
    return model(idx[:, -context_size:][:, cache.length :], cache)[:, -1]


def _cache_for(model, idx, max_new_tokens, context_size) -> KVCache:
    weight = model.tok_emb.weight
    room = min(context_size, idx.shape[1] + max_new_tokens)
    return KVCache(model.cfg, len(idx), room, dtype=weight.dtype, device=weight.device)


def _checked(model, idx, max_new_tokens, context_size) -> tuple[Tensor, int, int]:
    """The prompt as int64, and the two numbers as Python's; errors as `generate` has them."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    cfg = getattr(model, "cfg", None)
    if cfg is None:
        idx = _checks.ids(idx, "idx")
    else:
        idx = _checks.ids_within(idx, cfg.vocab_size, model.tok_emb.weight.device, "idx")
    if idx.shape[1] == 0:
        raise ValueError("idx has no tokens (T = 0); generation starts from at least 1")
    max_new_tokens = _checks.integer("max_new_tokens", max_new_tokens, 0)
    context_size = _checks.positive_int("context_size", context_size)
    if cfg is not None and context_size > cfg.context_length:
        raise ValueError(f"context_size = {context_size} is more than context_length = {cfg.context_length}")
    return idx.long(), max_new_tokens, context_size


def _check_choice(temperature, top_k, top_p, generator, device) -> None:
    limits = torch.finfo(torch.float32)
    if _checks.number("temperature", temperature) and not limits.tiny <= temperature <= limits.max:
        raise ValueError(
            f"temperature must be 0 or a number from {limits.tiny:.2g} to {limits.max:.2g}, got {temperature}"
        )
    if top_k is not None:
        _checks.positive_int("top_k", top_k)
    if top_p is not None and not 0 < _checks.number("top_p", top_p) <= 1:
        raise ValueError(f"top_p must be more than 0 and at most 1, got {top_p}")
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, got {type(generator).__name__}")
    if generator is not None and generator.device.type != device.type:
        raise ValueError(f"the generator is on {generator.device}, the model on {device}")


def _check_ends(model, eos_id, pad_id) -> int | None:
    if eos_id is None and pad_id is not None:
        raise ValueError(f"pad_id = {pad_id} fills rows that have ended, which needs an eos_id")
    for name, value in {"eos_id": eos_id, "pad_id": pad_id}.items():
        if value is None:
            continue
        _checks.integer(name, value, 0)
        cfg = getattr(model, "cfg", None)
        if cfg is not None and value >= cfg.vocab_size:
            raise ValueError(f"{name} = {value} is outside 0 .. {cfg.vocab_size - 1} (vocab_size = {cfg.vocab_size})")
    return eos_id if pad_id is None else pad_id
