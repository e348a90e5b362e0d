"""A small, honest training loop (chapter 13).

A step is a function of the weights, the optimizer's state and its own number. Nothing else enters: not the global
random state, not how often the run was stopped and, but for rounding and dropout, not how many processes share the
work.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Integer
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, distributed, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from book_utils import _checks
from book_utils._files import replacing
from book_utils.gpt_model import GPTModel

_OPTIMIZER_STATE = ("step", "exp_avg", "exp_avg_sq")  # what AdamW keeps for each parameter


@dataclass(frozen=True)
class TrainingConfig:
    """How a training runs. The defaults learn the couplets of `book_utils.couplets`.

    steps              updates of the weights
    batch_size         texts in each step, over all processes
    learning_rate      the largest
    warmup_steps       the learning rate grows over so many steps, then falls along half a cosine ...
    min_learning_rate  ... to this
    weight_decay       of AdamW, on matrices and tables; biases and the scale and shift of LayerNorm have none
    max_norm           the length of all gradients together is cut to this
    seed               of the order of the texts, and of dropout

    Raises TypeError or ValueError, naming the field, the value and the limit.
    """

    steps: int = 800
    batch_size: int = 64
    learning_rate: float = 8e-3
    warmup_steps: int = 50
    min_learning_rate: float = 8e-5
    weight_decay: float = 0.1
    max_norm: float = 1.0
    seed: int = 26

    def __post_init__(self):
        for name, least in {"steps": 1, "batch_size": 1, "warmup_steps": 0, "seed": 0}.items():
            object.__setattr__(self, name, _checks.integer(name, getattr(self, name), least))
        for name in ("learning_rate", "min_learning_rate", "weight_decay", "max_norm"):
            value = _checks.number(name, getattr(self, name))
            if not 0 <= value < math.inf or (value == 0 and name == "max_norm"):
                more = "more than 0" if name == "max_norm" else "at least 0"
                raise ValueError(f"{name} must be {more} and finite, got {value}")
            object.__setattr__(self, name, float(value))  # plain numbers, which a checkpoint can hold
        if self.min_learning_rate > self.learning_rate:
            raise ValueError(
                f"min_learning_rate = {self.min_learning_rate} is more than learning_rate = {self.learning_rate}"
            )


@torch.no_grad()
def initialize(model: GPTModel, seed: int) -> GPTModel:
    """Give `model`, in place, the initial weights of GPT-2, drawn from `seed`; the global random state stays.

    Matrices and tables from N(0, 0.02²), positions from N(0, 0.01²); the matrices that end a branch are divided by
    √(2L), since 2L branches are summed. Biases and shifts are 0, scales are 1.
    Source: Radford et al. 2019, section 2.3; GPT-2's model.py, `conv1d` (0.02) and `model` (the two tables).
    """
    draw = torch.Generator().manual_seed(seed)  # float64 draws are the same on every processor, float32 ones are not
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2:
            parameter.fill_(1.0 if name.endswith("scale") else 0.0)
            continue
        spread = 0.01 if name == "pos_emb.weight" else 0.02
        if name.endswith(("att.out_proj.weight", "ff.layers.2.weight")):
            spread /= math.sqrt(2 * len(model.trf_blocks))
        parameter.copy_(torch.randn(parameter.shape, generator=draw, dtype=torch.float64) * spread)
    return model


def next_token_loss(model: nn.Module, ids: Integer[Tensor, "B T"]) -> Float[Tensor, ""]:
    """The mean cross-entropy, in nats, of the logits at positions 0 .. T - 2 against the ids at 1 .. T - 1.

    ValueError for T < 2: one id has no next one.
    """
    if ids.shape[1] < 2:
        raise ValueError(f"ids [B, T] = {list(ids.shape)} have no next id; T must be at least 2")
    logits = model(ids[:, :-1])  # [B, T - 1, V]
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten().long())


def learning_rate(step: int, settings: TrainingConfig) -> float:
    """At step 0, 1, …: a straight line up to the largest, then half a cosine down to the smallest at the last step."""
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    done = (step - settings.warmup_steps) / max(1, settings.steps - 1 - settings.warmup_steps)  # 0 .. 1
    span = settings.learning_rate - settings.min_learning_rate
    return settings.min_learning_rate + span * (1 + math.cos(math.pi * min(1.0, done))) / 2


class Trainer:
    """Trains `model`, in place, on the rows of `ids`.

        trainer = Trainer(model, ids, TrainingConfig(steps=100))
        while not trainer.done:
            loss = trainer.step()

    Under torchrun each process takes its share of every batch (see `processes`); the losses are those of one process.

    model     a GPTModel
    ids       [N, T], one text of T ids in each row; at least batch_size of them
    settings  a TrainingConfig

    `losses` has the loss of each step that was made, before its update. TypeError or ValueError for what cannot be
    trained.
    """

    def __init__(self, model: GPTModel, ids: Integer[Tensor, "N T"], settings: TrainingConfig | None = None):
        settings = TrainingConfig() if settings is None else settings
        if not isinstance(model, GPTModel):
            raise TypeError(f"model must be a GPTModel, got {type(model).__name__}")
        self.ids = _checks.ids_within(ids, model.cfg.vocab_size, model.tok_emb.weight.device, "ids")
        _checks.sequence_length(ids.shape[1] - 1, model.cfg.context_length)
        if len(ids) < settings.batch_size:
            raise ValueError(f"batch_size = {settings.batch_size} is more than the {len(ids)} texts")
        self._rank, self._world = _place()
        if settings.batch_size % self._world:
            raise ValueError(f"batch_size = {settings.batch_size} cannot be shared evenly by {self._world} processes")
        frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
        if frozen:
            raise ValueError(f"every parameter is trained, but {frozen[0]} asks for no gradient")
        self.model, self.settings = model, settings
        self.losses: list[float] = []
        self._forward = DistributedDataParallel(model) if self._world > 1 else model
        matrices = [parameter for parameter in model.parameters() if parameter.ndim >= 2]
        others = [parameter for parameter in model.parameters() if parameter.ndim < 2]
        groups = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=settings.weight_decay, fused=True)

    @property
    def done(self) -> bool:
        """Whether all steps were made."""
        return len(self.losses) >= self.settings.steps

    def step(self) -> float:
        """One update; returns the loss before it, over the whole batch, and leaves the model in train mode.

        FloatingPointError, and no update, where the loss or the length of its gradient is not finite.
        """
        number = len(self.losses)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(number, self.settings)
        self.model.train()
        with torch.random.fork_rng([self.ids.device] if self.ids.is_cuda else []):
            torch.manual_seed(self.settings.seed + 1_000_003 * (number * self._world + self._rank))  # for dropout
            loss = next_token_loss(self._forward, self.ids[self._rows(number)])
        mean = self._mean(loss)
        if not math.isfinite(mean):
            raise FloatingPointError(f"the loss of step {number} is {mean}; nothing was changed")
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.max_norm).item()
        if not math.isfinite(norm):
            raise FloatingPointError(f"the gradient of step {number} has the length {norm}; nothing was changed")
        self.optimizer.step()
        self.losses.append(mean)
        return mean

    def _rows(self, number: int) -> Integer[Tensor, "B"]:
        """The rows of this process in a step.

        Each epoch has an order of its own, drawn from the seed and its number, and no text twice; it leaves out those
        that fill no whole batch.
        """
        batch_size = self.settings.batch_size
        epoch, place = divmod(number, len(self.ids) // batch_size)
        draw = torch.Generator().manual_seed(self.settings.seed + epoch)
        order = torch.randperm(len(self.ids), generator=draw)[place * batch_size : (place + 1) * batch_size]
        return order[self._rank :: self._world].to(self.ids.device)

    def _mean(self, loss: Tensor) -> float:
        mean = loss.detach().double()
        if self._world > 1:
            distributed.all_reduce(mean)  # a sum
        return mean.item() / self._world

    def save(self, path: str | Path) -> None:
        """Write all that `load` needs to go on, to one safetensors file, whole or not at all."""
        tensors = {f"model.{name}": value for name, value in self.model.named_parameters()}
        for name, parameter in self.model.named_parameters():
            if self.losses:
                tensors |= {f"{key}.{name}": self.optimizer.state[parameter][key] for key in _OPTIMIZER_STATE}
        tensors["losses"] = torch.tensor(self.losses, dtype=torch.float64)
        with replacing(Path(path)) as new:
            save_file({name: value.detach().contiguous() for name, value in tensors.items()}, new, self._identity())

    def load(self, path: str | Path) -> None:
        """Go on from where a file of `save` left off, with the same model sizes, settings and texts.

        ValueError, before anything is changed, for a file that is damaged or belongs to another training, naming what
        differs; FileNotFoundError where there is none.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"there is no checkpoint {path}")
        try:
            with safe_open(path, framework="pt") as file:
                found, tensors = file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{path} is no whole safetensors file: {error}") from None
        identity = self._identity()
        others = [
            f"{name}: {found.get(name)}, not {value}" for name, value in identity.items() if found.get(name) != value
        ]
        if others:
            raise ValueError(f"{path} belongs to another training. {'; '.join(others)}")
        losses = tensors.get("losses", torch.empty(0))
        if {name: (x.shape, x.dtype) for name, x in tensors.items()} != self._forms(losses.numel()):
            raise ValueError(f"{path} does not hold the tensors of a training after {losses.numel()} steps")
        kept = _OPTIMIZER_STATE if len(losses) else ()
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(tensors[f"model.{name}"])
                self.optimizer.state[parameter] = {
                    key: tensors[f"{key}.{name}"].to(parameter.device, copy=True) for key in kept
                }  # a copy, since what was read is a map of the file
        self.losses = losses.tolist()

    def _forms(self, steps: int) -> dict[str, tuple[torch.Size, torch.dtype]]:
        """Shape and precision of every tensor that `save` writes after so many steps."""
        forms = {"losses": (torch.Size([steps]), torch.float64)}
        for name, parameter in self.model.named_parameters():
            forms[f"model.{name}"] = (parameter.shape, parameter.dtype)
            if steps:
                forms |= dict.fromkeys((f"exp_avg.{name}", f"exp_avg_sq.{name}"), (parameter.shape, parameter.dtype))
                forms[f"step.{name}"] = (torch.Size([]), torch.float32)
        return forms

    def _identity(self) -> dict[str, str]:
        """What two trainings must have in common for one to go on where the other stopped."""
        return {
            "book_utils.training": "1",  # the form of the file
            "model": json.dumps(asdict(self.model.cfg)),
            "precision": str(self.model.tok_emb.weight.dtype),
            "settings": json.dumps(asdict(self.settings)),
            "texts": f"{list(self.ids.shape)} "
            + hashlib.sha256(self.ids.long().cpu().numpy().tobytes()).hexdigest()[:16],
        }


@contextmanager
def processes() -> Iterator[int]:
    """Join the processes that torchrun started, over gloo, and yield this one's number; alone, it is 0."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield 0
        return
    distributed.init_process_group("gloo")
    try:
        yield distributed.get_rank()
    finally:
        distributed.destroy_process_group()


def _place() -> tuple[int, int]:
    """This process's number and how many there are."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1
