"""The training loop: against torch's own parts, started and stopped, in one process and in two, and the command."""

import math
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn
from transformers.loss.loss_utils import ForCausalLMLoss

from book_utils import (
    GPTModel,
    Trainer,
    TrainingConfig,
    get_config,
    initialize,
    learning_rate,
    load_model,
    next_token_loss,
)

TINY = replace(get_config("tiny"), vocab_size=11)
SHORT = TrainingConfig(steps=8, batch_size=4, warmup_steps=3, learning_rate=0.01, min_learning_rate=0.001)


def texts(number=12, tokens=9):
    return torch.randint(11, (number, tokens), generator=torch.Generator().manual_seed(0))


def fresh(cfg=TINY, dtype=torch.float64):
    return initialize(GPTModel(cfg).to(dtype), seed=1)


def trained(trainer, steps):
    for _ in range(steps):
        trainer.step()
    return trainer


def same_weights(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


# its parts


def test_the_loss_is_that_of_transformers():
    model, ids = fresh(), texts(3)
    loss = ForCausalLMLoss(model(ids), ids, vocab_size=11)  # it shifts by itself
    torch.testing.assert_close(next_token_loss(model, ids), loss.double(), rtol=0, atol=1e-6)  # theirs is float32
    by_hand = -model(ids)[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None]).mean()
    torch.testing.assert_close(next_token_loss(model, ids), by_hand, rtol=0, atol=1e-12)


def test_the_loss_takes_large_scores_and_refuses_a_text_without_a_next_id():
    scores = nn.Embedding(11, 11).double()
    nn.init.constant_(scores.weight, -1e4)
    scores.weight.data.fill_diagonal_(1e4)
    assert next_token_loss(scores, torch.full((1, 5), 3)).item() == 0
    with pytest.raises(ValueError, match=r"\[1, 1\] have no next id"):
        next_token_loss(scores, torch.zeros(1, 1, dtype=torch.long))


@pytest.mark.parametrize("tied", [False, True])
def test_the_first_loss_is_near_that_of_an_even_guess(tied):
    cfg = replace(get_config("tiny"), emb_dim=64, vocab_size=1000, tie_weights=tied)
    model = fresh(cfg)
    ids = torch.randint(1000, (8, 16))
    assert next_token_loss(model, ids).item() == pytest.approx(math.log(1000), abs=0.1)


def test_the_initial_weights_have_gpt2s_spreads():
    cfg = replace(get_config("tiny"), emb_dim=128, vocab_size=500, context_length=300, n_layers=8)
    before = torch.get_rng_state()
    model = initialize(GPTModel(cfg), 0)
    again = initialize(GPTModel(cfg), 0)
    assert same_weights(model, again) and not same_weights(model, initialize(GPTModel(cfg), 1))
    torch.set_rng_state(before)
    spreads = {
        "tok_emb.weight": 0.02,
        "pos_emb.weight": 0.01,
        "trf_blocks.3.att.qkv.weight": 0.02,
        "trf_blocks.3.att.out_proj.weight": 0.02 / 4,  # √(2 · 8)
        "trf_blocks.3.ff.layers.0.weight": 0.02,
        "trf_blocks.3.ff.layers.2.weight": 0.02 / 4,
        "out_head.weight": 0.02,
    }
    state = model.state_dict()
    for name, spread in spreads.items():  # the smallest has 16,384 numbers: 1 % is two standard deviations
        assert state[name].std().item() == pytest.approx(spread, rel=0.03) and abs(state[name].mean()) < spread / 20
    vectors = {name: value for name, value in state.items() if value.ndim == 1}
    assert all((value == float(name.endswith("scale"))).all() for name, value in vectors.items()) and vectors


@given(steps=st.integers(1, 60), warmup=st.integers(0, 40))
def test_the_learning_rate_is_that_of_torchs_schedulers(steps, warmup):
    settings = TrainingConfig(steps, learning_rate=0.1, min_learning_rate=0.01, warmup_steps=warmup)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    lr = torch.optim.lr_scheduler
    parts, milestones = [], []
    if warmup:
        parts, milestones = [lr.LinearLR(optimizer, 1 / warmup, 1, max(1, warmup - 1))], [warmup]
    parts.append(lr.CosineAnnealingLR(optimizer, max(1, steps - 1 - warmup), eta_min=0.01))
    schedule = lr.SequentialLR(optimizer, parts, milestones) if warmup else parts[0]
    for step in range(steps):
        # torch's form of the cosine multiplies step by step, and adds rounding up
        assert learning_rate(step, settings) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-9)
        optimizer.step()
        schedule.step()


def test_a_step_is_adamw_with_clipping_on_the_mean_loss_of_the_batch():
    settings = replace(SHORT, max_norm=0.05)  # so that clipping acts
    trainer, other, ids = Trainer(fresh(), texts(), settings), fresh(), texts()
    decay = [parameter for parameter in other.parameters() if parameter.ndim == 2]
    rest = [parameter for parameter in other.parameters() if parameter.ndim == 1]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), foreach=False, fused=False)
    order = torch.cat([torch.randperm(12, generator=torch.Generator().manual_seed(26 + epoch)) for epoch in range(3)])
    for step in range(8):
        loss = next_token_loss(other, ids[order[4 * step : 4 * step + 4]])
        optimizer.zero_grad()
        loss.backward()
        norm = torch.sqrt(sum(parameter.grad.square().sum() for parameter in other.parameters()))
        for parameter in other.parameters():
            parameter.grad *= min(1.0, 0.05 / (norm.item() + 1e-6))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, settings)
        optimizer.step()
        assert trainer.step() == pytest.approx(loss.item(), abs=1e-10)
    for ours, theirs in zip(trainer.model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)
    assert trainer.done and trainer.model.training


def test_every_text_comes_once_in_an_epoch():
    trainer = Trainer(fresh(), texts(), SHORT)
    epochs = [torch.cat([trainer._rows(3 * epoch + step) for step in range(3)]).tolist() for epoch in range(2)]
    assert all(sorted(epoch) == list(range(12)) for epoch in epochs) and epochs[0] != epochs[1]


def test_neither_the_global_random_state_nor_a_look_at_the_model_changes_a_training():
    cfg = replace(TINY, drop_rate=0.2)
    first = trained(Trainer(fresh(cfg), texts(), SHORT), 6)
    second = Trainer(fresh(cfg), texts(), SHORT)
    for number in range(6):
        torch.manual_seed(number)
        second.model.eval()
        torch.rand(7)
        before = torch.get_rng_state()
        second.step()
        assert torch.equal(torch.get_rng_state(), before)
    assert first.losses == second.losses and same_weights(first.model, second.model)
    third = trained(Trainer(fresh(cfg), texts(), replace(SHORT, seed=27)), 6)
    assert not same_weights(first.model, third.model)


def test_one_batch_can_be_learned_by_heart():
    ids = texts(4)
    ids[:, 0] = torch.arange(4)  # no model can know what follows where texts begin alike
    trainer = Trainer(fresh(replace(TINY, emb_dim=32)), ids, replace(SHORT, steps=150))
    trained(trainer, 150)
    assert trainer.losses[0] > 2 and trainer.losses[-1] < 0.05


# stopped and started


def test_an_epoch_leaves_out_what_fills_no_batch():
    trainer = Trainer(fresh(), texts(10), SHORT)
    rows = [trainer._rows(step).tolist() for step in range(4)]
    assert [len(part) for part in rows] == [4] * 4
    assert len({*rows[0], *rows[1]}) == len({*rows[2], *rows[3]}) == 8


def test_each_step_and_each_seed_has_a_dropout_of_its_own():
    def seeds(seed):
        seen = []
        trainer = Trainer(fresh(), texts(), replace(SHORT, seed=seed))
        trainer.model.register_forward_pre_hook(lambda *_: seen.append(torch.initial_seed()))
        trained(trainer, 4)
        return seen

    assert len({*seeds(1), *seeds(2)}) == 8


def test_the_settings_reach_the_optimizer():
    groups = Trainer(fresh(), texts(), replace(SHORT, weight_decay=0.3)).optimizer.param_groups
    assert [group["weight_decay"] for group in groups] == [0.3, 0.0]


@pytest.mark.parametrize("stop", [0, 1, 5])
@pytest.mark.parametrize("changes", [{}, {"tie_weights": True, "drop_rate": 0.2}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_to_stop_and_go_on_gives_the_weights_of_not_stopping(tmp_path, stop, changes, dtype):
    cfg, file = replace(TINY, **changes), tmp_path / "a.safetensors"
    whole = trained(Trainer(fresh(cfg, dtype), texts(), SHORT), 8)
    trained(Trainer(fresh(cfg, dtype), texts(), SHORT), stop).save(file)
    later = Trainer(GPTModel(cfg).to(dtype), texts(), SHORT)
    later.load(file)
    assert len(later.losses) == stop
    trained(later, 8 - stop)
    assert later.done and later.losses == whole.losses and same_weights(later.model, whole.model)
    assert (later.model.out_head.weight is later.model.tok_emb.weight) == cfg.tie_weights
    later.save(file)  # over the earlier one
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


def test_a_checkpoint_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "a.safetensors"
    trainer = trained(Trainer(fresh(), texts(), SHORT), 1)
    trainer.save(file)
    before = file.read_bytes()

    def half(tensors, path, *_):
        path.write_bytes(before[:100])
        raise OSError("the disk is full")

    monkeypatch.setattr("book_utils.training.save_file", half)
    with pytest.raises(OSError, match="full"):
        trained(trainer, 1).save(file)
    assert file.read_bytes() == before and [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


@pytest.mark.usefixtures("as_readers_see")
def test_a_checkpoint_of_another_training_is_refused_and_nothing_changed(tmp_path):
    file = tmp_path / "a.safetensors"
    trained(Trainer(fresh(), texts(), SHORT), 3).save(file)
    others = {
        '"batch_size": 4': Trainer(fresh(), texts(), replace(SHORT, batch_size=2)),
        '"n_layers": 2': Trainer(fresh(replace(TINY, n_layers=1)), texts(), SHORT),
        "texts: ": Trainer(fresh(), texts().flip(0), SHORT),
        "precision: torch.float64, not torch.float32": Trainer(fresh(dtype=torch.float32), texts(), SHORT),
    }
    for words, trainer in others.items():
        before = [parameter.clone() for parameter in trainer.model.parameters()]
        with pytest.raises(ValueError, match="belongs to another training") as error:
            trainer.load(file)
        assert words in str(error.value) and trainer.losses == []
        assert all(map(torch.equal, before, trainer.model.parameters()))
    trainer = Trainer(fresh(), texts(), SHORT)
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(ValueError, match="no whole safetensors file"):
        trainer.load(file)
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        trainer.load(tmp_path)
    trainer.save(file)


@pytest.mark.usefixtures("as_readers_see")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model.out_head.weight", torch.zeros(1, 1).double()),
        ("model.out_head.weight", torch.zeros(11, 16)),  # float32
        ("exp_avg.out_head.weight", torch.zeros(3, 3).double()),
        ("exp_avg_sq.out_head.weight", torch.zeros(11, 16)),
        ("step.out_head.weight", torch.zeros(2)),
        ("losses", torch.zeros(3, 1).double()),
        ("losses", torch.tensor(1.0).double()),
        ("losses", None),
        ("model.tok_emb.weight", None),
        ("another", torch.zeros(1)),
    ],
)
def test_a_checkpoint_with_other_tensors_is_refused_and_nothing_changed(tmp_path, name, value):
    file, trainer = tmp_path / "a.safetensors", Trainer(fresh(), texts(), SHORT)
    trained(Trainer(fresh(), texts(), SHORT), 3).save(file)
    tensors = load_file(file)
    tensors.pop(name, None)
    if value is not None:
        tensors[name] = value
    save_file(tensors, file, trainer._identity())
    with pytest.raises(ValueError, match="does not hold the tensors of a training after"):
        trainer.load(file)
    assert same_weights(trainer.model, fresh()) and trainer.losses == [] and not trainer.optimizer.state


def test_a_resumed_training_does_not_hang_on_its_file(tmp_path):
    file = tmp_path / "a.safetensors"
    trained(Trainer(fresh(), texts(), SHORT), 3).save(file)
    later = Trainer(fresh(), texts(), SHORT)
    later.load(file)
    with open(file, "r+b") as opened:  # in place
        opened.write(bytes(file.stat().st_size))
    assert same_weights(trained(later, 5).model, trained(Trainer(fresh(), texts(), SHORT), 8).model)


@pytest.mark.usefixtures("as_readers_see")
def test_numbers_of_numpy_can_be_saved(tmp_path):
    settings = replace(SHORT, steps=np.int64(8), learning_rate=np.float32(0.01), min_learning_rate=0)
    trainer = trained(Trainer(fresh(), texts(), settings), 1)
    trainer.save(tmp_path / "a.safetensors")
    Trainer(fresh(), texts(), settings).load(tmp_path / "a.safetensors")


def test_a_gradient_that_is_no_number_ends_it_before_the_weights_change():
    trainer = Trainer(fresh(), texts(), SHORT)
    trainer.model.out_head.weight.register_hook(lambda gradient: gradient * torch.inf)
    with pytest.raises(FloatingPointError, match=r"gradient of step 0 has the length .*; nothing was changed"):
        trainer.step()
    assert same_weights(trainer.model, fresh()) and trainer.losses == []


def test_a_loss_that_is_no_number_ends_it_before_the_weights_change():
    trainer = trained(Trainer(fresh(), texts(), SHORT), 1)
    with torch.no_grad():
        trainer.model.out_head.weight[0, 0] = torch.nan
    before = [parameter.clone() for parameter in trainer.model.parameters()]
    with pytest.raises(FloatingPointError, match="the loss of step 1 is nan; nothing was changed"):
        trainer.step()
    assert len(trainer.losses) == 1
    for old, new in zip(before, trainer.model.parameters(), strict=True):
        torch.testing.assert_close(old, new, rtol=0, atol=0, equal_nan=True)


# what it refuses


@pytest.mark.usefixtures("as_readers_see")
@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"steps": 0}, ValueError, "steps must be at least 1, got 0"),
        ({"steps": 1.5}, TypeError, "steps must be an integer, got 1.5"),
        ({"batch_size": True}, TypeError, "batch_size must be an integer"),
        ({"learning_rate": -1.0}, ValueError, "learning_rate must be at least 0 and finite, got -1.0"),
        ({"learning_rate": math.nan}, ValueError, "learning_rate must be at least 0 and finite, got nan"),
        ({"learning_rate": "1"}, TypeError, "learning_rate must be a number, got '1'"),
        ({"min_learning_rate": 1.0}, ValueError, "min_learning_rate = 1.0 is more than learning_rate = 0.008"),
        ({"max_norm": 0}, ValueError, "max_norm must be more than 0 and finite, got 0"),
        ({"weight_decay": math.inf}, ValueError, "weight_decay must be at least 0 and finite, got inf"),
        ({"warmup_steps": -1}, ValueError, "warmup_steps must be at least 0, got -1"),
        ({"seed": None}, TypeError, "seed must be an integer, got None"),
    ],
)
def test_settings_that_are_none_are_refused(changes, error, words):
    with pytest.raises(error, match=words):
        TrainingConfig(**changes)


@pytest.mark.usefixtures("as_readers_see")
@pytest.mark.parametrize(
    ("model", "ids", "error", "words"),
    [
        (nn.Identity(), texts(), TypeError, "model must be a GPTModel, got Identity"),
        (None, texts(3), ValueError, "batch_size = 4 is more than the 3 texts"),
        (None, texts(12, 18), ValueError, "the input has 17 tokens, more than context_length = 16"),
        (None, texts(12, 1), ValueError, "no tokens"),
        (None, texts() + 1, ValueError, "token id 11 is outside 0 .. 10"),
        (None, texts().double(), TypeError, "ids must hold integer token ids, got torch.float64"),
        (None, [[1, 2]], TypeError, "ids must be a tensor of token ids, got list"),
        (fresh().requires_grad_(False), texts(), ValueError, "tok_emb.weight asks for no gradient"),
    ],
)
def test_what_cannot_be_trained_is_refused(model, ids, error, words):
    with pytest.raises(error, match=words):
        Trainer(fresh() if model is None else model, ids, SHORT)


# from the shell


def shell(*command, cwd, **environment):
    import os

    environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run([sys.executable, *command], cwd=cwd, env=environment, capture_output=True, text=True)


def losses(run):
    assert run.returncode == 0, run.stderr
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+): loss ([\d.]+)", run.stdout)}


TRAIN = ("-m", "book_utils", "train", "--steps", "12", "--every", "5", "--batch-size", "8")


def test_two_processes_have_the_losses_of_one_on_the_same_batches(tmp_path):
    alone = losses(shell(*TRAIN, cwd=tmp_path))
    two = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    shared = shell(*two, *TRAIN, cwd=tmp_path)
    assert shared.stdout.count("step 12:") == 1  # one process speaks
    assert list(alone) == [1, 5, 10, 12] and alone.keys() == losses(shared).keys()
    for step, loss in losses(shared).items():
        assert loss == pytest.approx(alone[step], abs=2e-4)  # float32 rounds sums in another order; 4 places are shown
    odd = shell(*two, *TRAIN[:-1], "9", cwd=tmp_path)
    assert odd.returncode != 0 and "batch_size = 9 cannot be shared evenly by 2 processes" in odd.stderr


def test_the_command_stops_goes_on_and_saves(tmp_path):
    whole = shell(*TRAIN, "--save", "model.safetensors", cwd=tmp_path)
    expected = losses(whole)
    assert "96" in re.search(r"accepted.* before, (.*) after", whole.stdout)[1]
    model = load_model(tmp_path / "model.safetensors")
    assert model.cfg.n_layers == 2
    again = shell(*TRAIN, "--save", "model.safetensors", cwd=tmp_path)
    assert again.returncode == 2 and "Error: model.safetensors exists" in again.stderr and again.stdout == ""
    kept = shell(*TRAIN, "--checkpoint", "kept.safetensors", cwd=tmp_path)
    assert losses(kept) == expected
    refused = shell(*TRAIN, "--checkpoint", "kept.safetensors", cwd=tmp_path)
    assert refused.returncode == 2 and "kept.safetensors exists; go on from it with --resume" in refused.stderr
    resumed = shell(*TRAIN, "--checkpoint", "kept.safetensors", "--resume", cwd=tmp_path)
    assert "going on after 12 steps" in resumed.stdout
    assert resumed.stdout.splitlines()[-8:] == kept.stdout.splitlines()[-8:]
    other = shell(*TRAIN, "--seed", "3", "--checkpoint", "kept.safetensors", "--resume", cwd=tmp_path)
    assert other.returncode == 2 and "belongs to another training" in other.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--resume",), "--resume needs the file to go on from"),
        (("--resume", "--checkpoint", "none"), "there is no checkpoint none to go on from"),
        (("--save", "one", "--checkpoint", "./one"), "--checkpoint and --save are both one; name two files"),
        (("--save", "none/model"), "there is no folder none for model"),
        (("--steps", "0"), "Invalid value for '--steps'"),
        (("--batch-size", "99999"), "batch_size = 99999 is more than the 16384 texts"),
    ],
)
def test_the_command_refuses_with_one_line(tmp_path, options, words):
    run = shell(*TRAIN, *options, cwd=tmp_path)
    assert run.returncode == 2 and words in run.stderr and "Traceback" not in run.stderr
    assert run.stdout == "" and list(tmp_path.iterdir()) == []


def test_a_killed_training_goes_on_from_its_last_checkpoint(tmp_path):
    import os
    import signal
    import time

    long = ("-m", "book_utils", "train", "--steps", "120", "--every", "2", "--batch-size", "2", "--checkpoint", "c")
    process = subprocess.Popen([sys.executable, *long], cwd=tmp_path, stdout=subprocess.DEVNULL)
    while not (tmp_path / "c").exists():
        time.sleep(0.05)
        assert process.poll() is None
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    resumed = shell(*long, "--resume", cwd=tmp_path)
    whole = shell(*long[:-2], cwd=tmp_path)
    done = int(re.search(r"going on after (\d+) steps", resumed.stdout)[1])
    assert 0 < done < 120 and done % 2 == 0
    expected = losses(whole)
    assert {step: loss for step, loss in losses(resumed).items() if step > done + 1}.items() <= expected.items()


def test_a_rate_that_ends_in_no_number_ends_the_command_with_one_line(tmp_path):
    run = shell(*TRAIN, "--learning-rate", "1e30", cwd=tmp_path)
    assert run.returncode == 2 and "nothing was changed" in run.stderr and "Traceback" not in run.stderr


def test_the_command_trains_on_no_keyword_that_it_keeps_out_and_judges_those(monkeypatch, capsys):
    from book_utils.couplets import encode, split_keywords
    from book_utils.workbench import train as command

    texts_read, judged = [], []
    monkeypatch.setattr(command, "NUM_TEXTS", 240)
    monkeypatch.setattr(
        command, "Trainer", lambda model, ids, settings: texts_read.append(ids) or Trainer(model, ids, settings)
    )

    def written(model, keywords, *_, temperature, **__):
        judged.append(([*keywords], temperature))
        return [(keyword, "the .") for keyword in keywords]

    monkeypatch.setattr(command, "written", written)
    options = {"checkpoint": None, "resume": False, "save": None}
    command.run(steps=2, batch_size=4, learning_rate=1e-3, seed=5, every=9, **options)
    training, kept_out = split_keywords(5)
    assert {tuple(row[:2]) for row in texts_read[0].tolist()} == {tuple(encode(" ".join(pair))) for pair in training}
    assert judged == [(kept_out, 0.7), (kept_out, 0.7), (kept_out[:3], 0.7)]
    assert "0 of 24 before, 0 of 24 after" in capsys.readouterr().out
