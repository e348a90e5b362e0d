"""`python -m book_utils train`: chapter 13's training from the shell, in one process or in several."""

import math
from pathlib import Path

import click

from book_utils.checkpoints import save_model
from book_utils.config import GPTConfig
from book_utils.counting import count_parameters
from book_utils.couplets import TOKENS, VOCABULARY, accepts, least_loss, split_keywords, texts, written
from book_utils.gpt_model import GPTModel
from book_utils.training import Trainer, TrainingConfig, initialize, processes

MODEL = GPTConfig(len(VOCABULARY), context_length=TOKENS, emb_dim=64, n_heads=4, n_layers=2)
NUM_TEXTS = 16_384
PER_KEYWORD, TEMPERATURE = 4, 0.7  # of what is written to be judged


def run(
    *,
    steps: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
    every: int,
    checkpoint: Path | None,
    resume: bool,
    save: Path | None,
) -> None:
    """Train, report, and judge what the model writes for keywords that training has not seen.

    ValueError or OSError, before anything is computed, for files that stand in the way and for what cannot be trained.
    """
    settings = TrainingConfig(
        steps, batch_size, learning_rate, min(50, steps // 2), min_learning_rate=learning_rate / 100, seed=seed
    )
    _check_files(checkpoint, resume, save)
    with processes() as number:

        def report(text: str) -> None:
            if number == 0:
                click.echo(text)

        training, kept_out = split_keywords(seed)
        model = initialize(GPTModel(MODEL), seed)
        before = _share(model, kept_out)
        trainer = Trainer(model, texts(training, NUM_TEXTS, seed), settings)
        if resume:
            trainer.load(checkpoint)
            report(f"going on after {len(trainer.losses)} steps")
        report(f"{count_parameters(model):,} parameters, {NUM_TEXTS:,} texts of {TOKENS} ids")
        report(f"an even guess has the loss {math.log(MODEL.vocab_size):.4f}; the least possible is {least_loss():.4f}")
        while not trainer.done:
            loss, step = trainer.step(), len(trainer.losses)
            if step == 1 or step % every == 0 or trainer.done:
                report(f"step {step}: loss {loss:.4f}")
            if checkpoint and number == 0 and (step % every == 0 or trainer.done):
                trainer.save(checkpoint)
        if number == 0:
            report(
                f"couplets accepted, of keywords kept out of training: {before} before, {_share(model, kept_out)} after"
            )
            for keyword, couplet in written(model, kept_out[:3], temperature=TEMPERATURE, seed=seed):
                report(f"\n{' '.join(keyword)}\n  " + couplet.replace(" , ", ",\n  "))
            if save:
                save_model(model, save)
                report(f"\nthe model is in {save}")


def _check_files(checkpoint: Path | None, resume: bool, save: Path | None) -> None:
    if resume and checkpoint is None:
        raise ValueError("--resume needs the file to go on from: --checkpoint FILE")
    if resume and not checkpoint.is_file():
        raise ValueError(f"there is no checkpoint {checkpoint} to go on from")
    if checkpoint and save and checkpoint.resolve() == save.resolve():
        raise ValueError(f"--checkpoint and --save are both {save}; name two files")
    new = [path for path in (None if resume else checkpoint, save) if path is not None]
    for path in new:
        if path.exists():
            hint = "; go on from it with --resume, or name another file" if path == checkpoint else ""
            raise ValueError(f"{path} exists{hint}")
        if not path.parent.is_dir():
            raise ValueError(f"there is no folder {path.parent} for {path.name}")


def _share(model: GPTModel, keywords) -> str:
    couplets = written(model, keywords, PER_KEYWORD, temperature=TEMPERATURE)
    right = sum(accepts(couplet, keyword) for keyword, couplet in couplets)
    return f"{right} of {len(couplets)}"
