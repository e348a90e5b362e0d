"""A reader's copy of upstream's file: what is taken from it, what is refused, and that nothing of it runs."""

import gc
import importlib.util
import os
import re
import sys
import warnings
from pathlib import Path

import pytest
import torch

from book_utils import get_config
from book_utils.parity.upstream_file import CLASSES, MAX_BYTES, UpstreamFileError, upstream_classes

PACKAGE = Path(importlib.util.find_spec("llms_from_scratch").origin).parent  # found, not imported
CH03, CH04 = (PACKAGE.joinpath(name).read_text() for name in ("ch03.py", "ch04.py"))
# A whole file in the form of upstream's gpt.py: all six classes, and around them what must never run.
GPT = f"""
import urllib.request
import tiktoken
from torch.utils.data import DataLoader, Dataset
{CH03}
class Texts(Dataset):
    tokenizer = open("CANARY", "w")
    def __len__(self):
        return 0

def load(url="https://example.org", file=open("CANARY", "w")):
    urllib.request.urlretrieve(url, file)

{CH04.replace("from .ch03 import MultiHeadAttention, PyTorchMultiHeadAttention", "")}
if __name__ == "__main__" or True:
    load()
    open("CANARY", "w").write("ran")
"""
GELU = re.search(r"class GELU.*?\n\n\n", GPT, re.S)[0]


def class_of(name):
    return re.search(rf"class {name}\(.*?\n\n\n", GPT, re.S)[0]


@pytest.fixture
def canary(tmp_path):
    return tmp_path / "canary"


@pytest.fixture
def written(tmp_path, canary):
    """Writes a file whose CANARY is the path of a file that hostile code would create."""

    def write(text, name="gpt.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.replace("CANARY", str(canary)).encode())
        return path

    return write


def runs(classes, **more):
    assert sorted(classes) == sorted(CLASSES)
    cfg = {**get_config("tiny"), **more}
    model = classes["GPTModel"](cfg)
    assert model(torch.arange(12).view(2, 6)).shape == (2, 6, cfg["vocab_size"])
    return model


def refused(path, *words):
    with pytest.raises(UpstreamFileError) as error:
        upstream_classes(path)
    message = str(error.value)
    for word in words:
        assert word in message, message
    assert "\n" not in message
    return message


# --- honest files


def test_the_installed_package_as_a_folder():
    from llms_from_scratch import ch04

    theirs, ours = ch04.GPTModel(get_config("tiny")), runs(upstream_classes(PACKAGE))
    theirs.load_state_dict(ours.state_dict())
    ids = torch.arange(12).view(2, 6)
    torch.testing.assert_close(ours(ids), theirs(ids), rtol=0, atol=0)  # the same operations
    assert type(ours.trf_blocks[0].att).forward.__code__.co_filename == str(PACKAGE / "ch03.py")


def test_one_file_with_everything_around_the_classes(written, canary):
    path = written(GPT)
    runs(upstream_classes(path))
    runs(upstream_classes(str(path)))
    runs(upstream_classes(path.parent))
    assert not canary.exists()


HONEST = {
    "asserts and messages": """
class GELU(nn.Module):
    "Hendrycks and Gimpel 2016.\tA docstring with a tab."
    def forward(self, x):
        '''100% of x.'''
        assert x.ndim > 1 and x.shape[-1] % 2 == 0, f"{x.shape} % 2 != 0, {x.ndim!r} {x.ndim:3d}"
        if x.ndim not in (2, 3):
            raise ValueError(f"the shape {tuple(x.shape)}")
        return 0.5 * x * (1 + torch.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x**3)))
""",
    "eps as an argument": """
class LayerNorm(nn.Module):
    def __init__(self, emb_dim: int, eps: float = 1e-5, *, shift=-0.0) -> None:
        super(LayerNorm, self).__init__()
        self.eps = eps
        self.scale, self.shift = nn.Parameter(torch.ones(emb_dim)), nn.Parameter(torch.zeros(emb_dim) + shift)
    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        mean: torch.Tensor = x.mean(-1, keepdim=True)
        var = x.var(dim=-1, keepdim=True, unbiased=False)
        x = (x - mean) * (var + self.eps) ** -0.5
        x *= self.scale
        return x + self.shift
""",
    "constants of the class": """
class LayerNorm(torch.nn.Module):
    pass
    def __init__(self, emb_dim):
        super().__init__()
        self.scale = nn.Parameter(torch.ones((emb_dim,)))
        self.shift = nn.Parameter(torch.zeros((emb_dim,)))
    def forward(self, x):
        return nn.functional.layer_norm(x, x.shape[-1:], self.scale, self.shift, self.eps + self.more)
    eps: float = 1e-5
    more = -0.0
""",
    "torch's attention": """
class MultiHeadAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        self.num_heads, self.rate = num_heads, dropout
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.drop = nn.Dropout(dropout)
    def _split(self, x):
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
    def forward(self, x):
        q, k, v = self._split(self.W_query(x)), self._split(self.W_key(x)), self._split(self.W_value(x))
        rate = 0.0 if not self.training else self.drop.p
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=rate, is_causal=True)
        return self.out_proj(out.transpose(1, 2).contiguous().flatten(-2))
""",
    "a buffer of booleans": """
class MultiHeadAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        if d_out % num_heads != 0:
            raise AssertionError("d_out % num_heads must be 0")
        self.h = num_heads
        self.qkv = nn.Linear(d_in, 3 * d_out, qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.register_buffer("mask", torch.tril(torch.ones(context_length, context_length)).bool(), persistent=False)
    def forward(self, x):
        b, t, d = x.size()
        q, k, v = self.qkv(x).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(d // self.h)
        scores = scores.masked_fill(~self.mask[:t, :t], float("-inf"))
        return self.out_proj((scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(b, t, d))
""",
    "torch's own GELU": """
class FeedForward(nn.Module):
    def __init__(self, cfg: dict[str, int]):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(cfg["emb_dim"], 4 * cfg["emb_dim"]),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * cfg["emb_dim"], cfg["emb_dim"]),
            nn.Dropout(cfg.get("drop_rate_ff", 0.0)),
        )
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
""",
    "three dropout rates": """
class TransformerBlock(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.att = MultiHeadAttention(
            cfg["emb_dim"], cfg["emb_dim"], cfg["context_length"], cfg["drop_rate_attn"], cfg["n_heads"])
        self.ff, self.norm1, self.norm2 = FeedForward(cfg), LayerNorm(cfg["emb_dim"]), LayerNorm(cfg["emb_dim"])
        self.drop_shortcut = nn.Dropout(cfg["drop_rate_shortcut"])
    def forward(self, x):
        x = x + self.drop_shortcut(self.att(self.norm1(x)))
        return x + self.drop_shortcut(self.ff(self.norm2(x)))
""",
    "a ModuleList and a loop": """
class GPTModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tok_emb = nn.Embedding(cfg["vocab_size"], cfg["emb_dim"])
        self.pos_emb = nn.Embedding(cfg["context_length"], cfg["emb_dim"])
        self.trf_blocks = nn.ModuleList()
        for _ in range(cfg["n_layers"]):
            self.trf_blocks.append(TransformerBlock(cfg))
        self.blocks = nn.ModuleList(TransformerBlock(cfg) for _ in range(0))
        self.final_norm = LayerNorm(cfg["emb_dim"])
        self.out_head = nn.Linear(cfg["emb_dim"], cfg["vocab_size"], bias=False)
    def forward(self, in_idx):
        x = self.tok_emb(in_idx) + self.pos_emb.weight[: in_idx.shape[1]]
        for i, block in enumerate(self.trf_blocks):
            x = block(x)
        return self.out_head(self.final_norm(x))
""",
}


@pytest.mark.parametrize("kind", HONEST)
def test_an_honest_variant_builds_a_model_that_runs(written, canary, kind):
    name = re.search(r"class (\w+)", HONEST[kind])[1]
    path = written(GPT.replace(class_of(name), HONEST[kind]))
    runs(upstream_classes(path), drop_rate_attn=0.0, drop_rate_shortcut=0.0)
    assert not canary.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + GPT.encode(),
        GPT.replace("\n", "\r\n").encode(),
        GPT.replace("    ", "\t").encode(),
        b"# -*- coding: utf-8 -*-\n" + GPT.encode(),
        b"# coding: UTF8\n" + GPT.encode(),
        GPT.replace("class Texts", '"\\d, a stray escape; \xe9"\nclass Texts').encode(),
        GPT.replace("import torch.nn as nn", "from torch import nn\nimport torch.nn.functional as F, math").encode(),
    ],
    ids=["BOM", "CRLF", "tabs", "cookie", "another cookie", "escape", "imports"],
)
def test_the_bytes_of_an_honest_file(written, data):
    runs(upstream_classes(written(data)))


# --- hostile classes: the marked line is refused

WRITES = 'open("CANARY", "w")'
AT_DEFINITION = {
    "a call in a default argument": f" def forward(self, x, y={WRITES}): #<\n  return x",
    "a call in a keyword's default": f" def forward(self, x, *, y={WRITES}): #<\n  return x",
    "a decorator of the class": f"@(lambda c: ({WRITES}, c)[1]) #<\nclass GELU(nn.Module):\n pass",
    "a decorator of a method": f" @(lambda f: ({WRITES}, f)[1]) #<\n def forward(self, x):\n  return x",
    "a metaclass": f"class GELU(nn.Module, metaclass=lambda *a: {WRITES}): #<\n pass",
    "keywords of the base": "class GELU(nn.Module, **{'x': 1}): #<\n pass",
    "a base that is called": f"class GELU(({WRITES}, nn.Module)[1]): #<\n pass",
    "another base": "class GELU(nn.Sequential): #<\n pass",
    "two bases": "class GELU(nn.Module, Texts): #<\n pass",
    "no base": "class GELU: #<\n pass",
    "a body that imports": " import os #<\n os.mknod('CANARY')",
    "a body that imports from": " from os import system #<\n system('touch CANARY')",
    "a call in the body": f" {WRITES} #<",
    "a call in a constant": f" x = {WRITES} #<",
    "a call in a constant's annotation": f" x: {WRITES} = 1 #<",
    "a call in a bare annotation": f" x: {WRITES} #<",
    "a call in a parameter's annotation": f" def forward(self, x: {WRITES}): #<\n  return x",
    "a call in the annotation of what returns": f" def forward(self, x) -> {WRITES}: #<\n  return x",
    "an annotated self": f" def forward(self: {WRITES}, x): #<\n  return x",
    "a loop in the body": f" for x in [{WRITES}]: #<\n  pass",
    "an if in the body": f" if {WRITES}: #<\n  pass",
    "a comprehension in the body": f" x = [{WRITES} for y in 'a'] #<",
    "a walrus in a default": f" def forward(self, x=(torch := {WRITES})): #<\n  return x",
    "a f-string as a default": f" def forward(self, x=f'{{{WRITES}}}'): #<\n  return x",
}
OTHER_CLASSES = {
    "a nested class": " class Inner: #<\n  pass",
    "a permitted call in a default": " def forward(self, x, y=torch.ones(1)): #<\n  return x",
    "a permitted call in a constant": " x = torch.ones(1) #<",
    "a static method": " @staticmethod #<\n def forward(x):\n  return x",
    "a property": " @property #<\n def f(self):\n  return 1",
    "an asynchronous method": " async def forward(self, x): #<\n  return x",
    "__getattr__": " def __getattr__(self, x): #<\n  return x",
    "__init_subclass__": " def __init_subclass__(self): #<\n  pass",
    "__del__": " def __del__(self): #<\n  pass",
    "__slots__": " __slots__ = 'x' #<",
    "__class__ in the body": " __class__ = 1 #<",
    "_apply in its own hands": " def _apply(self, fn): #<\n  return fn",
    "state_dict in its own hands": " def state_dict(self): #<\n  return 1",
    "a constant in the place of a method": " forward = 1 #<",
    "a name bound by a constant": " call_super_init = True #<",
    "a method without self": " def forward(): #<\n  return 1",
    "another first parameter": " def forward(this, x): #<\n  return this",
    "self as a keyword": " def forward(*, self): #<\n  return 1",
    "self among the others": " def forward(self, x, self): #<\n  return x",
    "one parameter twice": " def forward(self, x, x): #<\n  return x",
    "open parameters": " def forward(self, *x): #<\n  return x",
    "open keywords": " def forward(self, **x): #<\n  return x",
    "a parameter named torch": " def forward(self, torch): #<\n  return torch.load",
    "a parameter named super": " def __init__(self, super): #<\n  super().__init__()",
    "two targets": " a = b = 1 #<",
    "a method as a value": " def f(self):\n  pass\n def forward(self, x):\n  self.g = self.f #<",
    "super in another method": " def forward(self, x):\n  super().__init__() #<",
    "super of another class": " def __init__(self):\n  super(GPTModel, self).__init__() #<",
    "super of another object": " def __init__(self, x):\n  super(GELU, x).__init__() #<",
    "a loop over what it adds to": " def forward(self, x):\n  self.l = [1]\n  for a in self.l: #<\n   self.l.append(a)",
    "a list that is replaced": " def f(self, x):\n  self.l = nn.Sequential()\n  self.l = x\n  [0 for a in self.l] #<",
    "a buffer as list": " def f(self):\n  self.l = nn.Sequential(self.register_buffer('l'))\n  [0 for x in self.l] #<",
    "a buffer in the place of a method": " def __init__(self):\n  self.register_buffer('forward', 1) #<",
    "a buffer named by a value": " def __init__(self, x):\n  self.register_buffer(x, 1) #<",
    "a name of self on another value": " def forward(self, x):\n  self.numpy = 1\n  return x.numpy() #<",
    "a method of a class": "class FeedForward(nn.Module):\n def forward(self, x):\n  return GELU.forward(x, x) #<",
    "a class as a value": "class FeedForward(nn.Module):\n def forward(self, x):\n  y = GELU #<",
    "deep nesting in a class": f" def forward(self, x): #<\n  return {'-' * 900}x",
}
IN_FORWARD = {  # a statement of forward(self, x) -> what the message says
    "__import__('os').system('touch CANARY')": "calls .system",
    "__import__('os')": "calls __import__",
    "x = torch.zeros(2, device='meta')": "chooses a device",
    "x = torch.zeros(2, device='me' + 'ta')": "chooses a device",
    "d = 'meta'; x = torch.zeros(2, device=d)": "chooses a device",
    "x = x.to('meta')": "chooses a device",
    "x = x.to(device='meta')": "chooses a device",
    "x = x.to(x)": "chooses a device",
    "self.device = 'meta'": "in the place of device",
    "self.dtype = 'meta'": "in the place of dtype",
    "x = nn.Linear(2, 2, True, 'meta')(x)": "gives torch.nn.Linear more arguments than it needs",
    "x = nn.Embedding(2, 2, None, None, 2.0, False, False, None, False, 'meta')(x)": "gives torch.nn.Embedding more",
    "x = nn.LayerNorm(2, 1e-5, True, True, 'meta')(x)": "gives torch.nn.LayerNorm more arguments than it needs",
    "eval('1')": "calls eval",
    "exec('1')": "calls exec",
    "compile('1', '', 'exec')": "calls compile",
    "open('CANARY', 'w')": "calls open",
    "print(x)": "calls print",
    "getattr(x, 'numpy')": "calls getattr",
    "setattr(self, 'x', 1)": "calls setattr",
    "vars(x)": "calls vars",
    "type(x)": "calls type",
    "globals()": "calls globals",
    "str(x)": "calls str",
    "pow(9, 9)": "calls pow",
    "helper(x)": "calls helper",
    "nosuch": "uses the name nosuch",
    "__builtins__": "__builtins__",
    "__class__.forward": "reads .forward",
    "f = open": "uses the name open",
    "f = range": "uses the name range",
    "f = torch.ones": "reads torch.ones",
    "torch.load('CANARY')": "calls torch.load",
    "torch.save(x, 'CANARY')": "calls torch.save",
    "torch.hub.load('a', 'b')": "calls torch.hub.load",
    "torch.os.system('touch CANARY')": "calls torch.os.system",
    "torch.from_file('CANARY', True, 9)": "calls torch.from_file",
    "torch.nn.modules.module.torch.load(x)": "calls torch.nn.modules",
    "torch.set_default_dtype(torch.float64)": "calls torch.set_default_dtype",
    "nn.Module.__subclasses__()": "torch.nn.Module.__subclasses__",
    "nn.functional.torch.load(x)": "torch.nn.functional.torch.load",
    "math.__loader__": "reads math.__loader__",
    "math.factorial(100000)": "calls math.factorial",
    "m = torch": "uses the name torch",
    "m = [nn][0]": "uses the name nn",
    "torch = x": "binds the name torch",
    "[0 for torch in range(2)]": "binds the name torch",
    "for nn in range(2): pass": "binds the name nn",
    "torch.ones = x": "assigns to .ones",
    "torch += x": "binds the name torch",
    "GELU = x": "binds the name GELU",
    "range = x": "binds the name range",
    "self = x": "binds the name self",
    "(self, y) = (x, x)": "binds the name self",
    "y = self": "uses the name self",
    "x.append(self)": "uses the name self",
    "__x = 1": "binds the name __x",
    "x.numpy().tofile('CANARY')": "calls .tofile",
    "y = x.numpy": "reads .numpy",
    "x.storage()": "calls .storage",
    "x.untyped_storage().copy_(x)": "calls .copy_",
    "x.set_(x)": "calls .set_",
    "x.data_ptr()": "calls .data_ptr",
    "x.apply_(x)": "calls .apply_",
    "x.register_hook(x)": "calls .register_hook",
    "x.__class__": "reads .__class__",
    "x.__dict__['a']": "reads .__dict__",
    "x.grad_fn": "reads .grad_fn",
    "x.shape.__class__.__base__": "reads .__base__",
    "y = x.view": "reads .view",
    "self.__class__": "reads self.__class__",
    "self.__class__ = x": "__class__",
    "self.__dict__": "reads self.__dict__",
    "self._buffers = x": "_buffers",
    "self._forward_hooks": "_forward_hooks",
    "self.apply(x)": "calls self.apply",
    "self.state_dict = x": "state_dict",
    "self.training = x": "training",
    "self.nosuch(x)": "calls self.nosuch",
    "self.add_module('a', x)": "calls self.add_module",
    "x.training = 1": "assigns to .training",
    "x[0] = 1": "assigns to an element",
    "super().__getattribute__('x')": "calls .__getattribute__",
    "super().to(x)": "calls super",
    "super()": "calls super",
    "'{0.__class__}'.format(x)": "calls .format",
    "'%s' % x": "repeats or formats",
    "f'{x.__class__}'": "reads .__class__",
    "f'{open(1)}'": "calls open",
    "f'{x:{x}}'": "short literal",
    "f'{x:>99999999}'": "short literal",
    "y = lambda: x": "Lambda",
    "(y := x)": "NamedExpr",
    "def f(): pass": "FunctionDef",
    "class Inner: pass": "ClassDef",
    "import os": "Import",
    "from os import system": "ImportFrom",
    "global x1": "Global",
    "del x": "Delete",
    "while True: pass": "While",
    "with x: pass": "With",
    "yield x": "Yield",
    "x = {'a': x}": "Dict",
    "y = [a async for a in x]": "loops over",
    "y = [a async for a in range(2)]": "not Python",
    "y = {a for a in range(2)}": "SetComp",
    "x = f'{x!r:{x}}'": "short literal",
    "x = x.ｎumpy()": "calls .numpy",
    "try: x\n  except: pass": "Try",
    "match x:\n   case _: pass": "Match",
    "for a in range(2): break": "Break",
    "raise SystemExit": "uses the name SystemExit",
    "raise KeyboardInterrupt(1)": "calls KeyboardInterrupt",
    "for a in x: pass": "loops over",
    "for a in [1]: pass": "loops over",
    "y = [a for a in x]": "loops over",
    "y = list(a for a in zip(range(2), x))": "loops over",
    "for a in enumerate(x): pass": "loops over",
    "for a in range(10**9): pass": "power",
    "for a in range(1000000000): pass": "integer above",
    "y = 10**10**10": "power",
    "y = 2**x": "power",
    "x **= 9": "power",
    "y = 1 << 9": "LShift",
    "y = 'a' * 9": "repeats",
    "y = 9 * [0]": "repeats",
    "y = (1, 2) * 9": "repeats",
    f"y = 0x{'f' * 9999}": "integer above",
    "y = -1000000": "integer above",
    "y = b'a'": "bytes",
    "y = 1j": "complex",
    "assert x, '\\033[2J'": "control characters",
    "assert x, '\u202e'": "control characters",
    "nn.Linear(**x)": "**",
    "return nn.Sequential(x).forward(x)": "calls .forward",
}


def whole(text):
    """A class; a text that is indented stands in GELU."""
    return f"class GELU(nn.Module):\n{text}" if text.startswith(" ") else text


def in_its_place(text):
    name = re.search(r"class (\w+)", whole(text))[1]
    return name, GPT.replace(class_of(name), whole(text) + "\n\n")


def marked(path):
    lines = path.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith("#<"))


@pytest.mark.parametrize("kind", AT_DEFINITION)
def test_what_would_run_at_definition_is_refused_and_does_not(written, canary, kind):
    name, text = in_its_place(AT_DEFINITION[kind])
    path = written(text)
    refused(path, f"gpt.py, line {marked(path)}: class {name} ")
    assert not canary.exists()


def test_the_canary_sings_where_such_a_class_is_run(written, canary):
    sings = [kind for kind, text in AT_DEFINITION.items() if "CANARY" in text]
    for kind in sings:
        source = whole(AT_DEFINITION[kind]).replace("CANARY", str(canary))
        with warnings.catch_warnings(action="ignore"):  # files that nobody closes
            try:
                exec(source, {"nn": torch.nn})
            except Exception as error:  # what such a class does next is of no interest
                assert not isinstance(error, NameError | SyntaxError), kind
            gc.collect()  # closes them here, and not under a later test
        assert canary.exists(), kind
        canary.unlink()
    assert len(sings) > 18


@pytest.mark.parametrize("kind", OTHER_CLASSES)
def test_a_class_that_does_more_than_define_a_module(written, kind):
    name, text = in_its_place(OTHER_CLASSES[kind])
    path = written(text)
    if kind == "deep nesting in a class":
        refused(path, "gpt.py: a class is nested too deeply")
    else:
        refused(path, f"gpt.py, line {marked(path)}: class {name} ")


@pytest.mark.parametrize("statement", IN_FORWARD, ids=lambda statement: statement[:40])
def test_a_statement_that_may_not_stand_in_a_method(written, canary, statement):
    first, *rest = statement.split("\n")
    path = written(in_its_place("\n".join([" def forward(self, x):", f"  {first} #<", *rest]))[1])
    line = marked(path)
    assert IN_FORWARD[statement] in refused(path, f"gpt.py, line {line}: class GELU ")
    assert not canary.exists()


def test_type_parameters(written):
    words = "class GELU has type parameters" if sys.version_info >= (3, 12) else "not Python"
    refused(written(GPT.replace("class GELU(", "class GELU[T: print()](")), words)
    refused(written(in_its_place(" def forward[T](self, x):\n  return x")[1]), words)


def test_the_classes_see_no_more_than_they_were_checked_for(written):
    spaces = {
        id(made.forward.__globals__): made.forward.__globals__ for made in upstream_classes(written(GPT)).values()
    }
    (space,) = spaces.values()
    assert {name for name in space if not name.startswith("__")} == {"torch", "nn", "F", "math", *CLASSES}
    assert not {"open", "eval", "exec", "getattr", "print", "type", "object"} & set(space["__builtins__"])
    with pytest.raises(ImportError, match="not os"):
        space["__builtins__"]["__import__"]("os")


# --- files and folders

SIX = {
    "no class": (GPT.replace("class GELU(", "class Gelu("), "there is no class GELU"),
    "twice": (GPT + GELU, "class GELU is ambiguous: line"),
    "assigned after": (GPT + "\nGELU = 1", "ambiguous"),
    "assigned in a tuple": (GPT + "\n(a, *GELU) = 1, 2", "ambiguous"),
    "a method replaced": (GPT + "\nGELU.forward = print", "ambiguous"),
    "deleted": (GPT + "\ndel GELU", "ambiguous"),
    "imported after": (GPT + "\nfrom x import GELU", "ambiguous"),
    "a function of the name": (GPT + "\ndef GELU(): pass", "ambiguous"),
    "bound by an exception": (GPT + "\ntry:\n pass\nexcept ValueError as GELU:\n pass", "ambiguous"),
    "bound in a walrus": (GPT + "\nprint((GELU := 1))", "ambiguous"),
    "a star import": ("from x import *\n" + GPT, "ambiguous"),
    "only a star import": ("from x import *\n", "neither a class at the top level nor a plain"),
    "in an if": (
        GPT.replace(GELU, "if True:\n class GELU(nn.Module):\n  pass\n\n"),
        "neither a class at the top level",
    ),
    "in a function": (GPT.replace(GELU, "def f():\n class GELU(nn.Module):\n  pass\n\n"), "there is no class GELU"),
    "an assignment": (GPT.replace(GELU, "GELU = nn.GELU\n\n"), "neither a class at the top level"),
    "imported as": (GPT.replace(GELU, "from x import Gelu as GELU\n\n"), "nor a plain `from ... import GELU`"),
    "import": (GPT.replace(GELU, "import GELU\n\n"), "nor a plain `from ... import GELU`"),
    "torch that is another": ("import numpy as torch\n" + GPT, "line 1: torch is bound to something else"),
    "F that is another": ("from torch import nn as F\n" + GPT, "line 1: F is bound"),
    "nn that is assigned": (GPT + "\nnn = 1", "nn is bound"),
    "range that is another": (GPT + "\ndef range(n): pass", "range is bound"),
}


@pytest.mark.parametrize("kind", SIX)
def test_where_a_class_is_not_defined_exactly_once(written, canary, kind):
    text, words = SIX[kind]
    refused(written(text), "gpt.py", words)
    assert not canary.exists()


def test_an_ambiguous_name_is_given_with_both_lines(written):
    path = written(GPT + "\nGELU = 1")
    lines = path.read_text().splitlines()
    first = next(number for number, line in enumerate(lines, 1) if line.startswith("class GELU"))
    refused(path, f"line {first}: class GELU is ambiguous: line {len(lines)} binds")


UNREADABLE = {
    "latin-1": ("# \xe9\n".encode("latin-1"), "encoding"),
    "latin-1, further down": ("\n\n\n# \xe9\n".encode("latin-1"), "not a text in UTF-8"),
    "another coding": (b"# coding: utf-7\n+AGEAYg-", "not a text in UTF-8"),
    "an unknown coding": (b"# coding: nosuch\n", "unknown encoding"),
    "UTF-16": (GPT.encode("utf-16"), "not"),
    "null bytes": (GPT.encode() + b"\0", "not a text in UTF-8"),
    "no Python": (b"import torch\nclass GELU(\n", "line 2: not Python"),
    "a notebook": (b'{"cells": [}', "line 1: not Python"),
    "an integer of many digits": (b"x = " + b"9" * 9999, "not Python"),
    "an empty file": (b"", "there is no class GELU"),
    "a large file": (b"#" * (MAX_BYTES + 1), "larger than"),
    "deep brackets": (b"x = " + b"(" * 10**5 + b")" * 10**5, "not Python"),
    "deep signs": (b"x = " + b"-" * 10**6 + b"1", "nested too deeply"),
    "a deep chain": (b"x = " + b".".join([b"a"] * 10**5), "nested too deeply"),
    "a deep sum": (b"x = " + b"+".join([b"1"] * 10**5), "nested too deeply"),
    "deep calls": (b"x = f" + b"()" * 10**5, "nested too deeply"),
    "deep branches": (b"if a: pass\n" + b"elif a: pass\n" * 10**4, "nested too deeply"),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_file_that_cannot_be_read_as_python(written, kind):
    data, words = UNREADABLE[kind]
    refused(written(data), "gpt.py", words)


def test_paths_that_are_no_files(tmp_path, written):
    refused(tmp_path / "nosuch.py", "nosuch.py: cannot be read (No such file")
    refused("a\0b", "cannot be read")
    refused("a" * 5000, "cannot be read")
    refused(tmp_path, "holds neither gpt.py nor ch04.py")
    refused("/dev/zero", "not a regular file")
    if os.path.exists("/proc/self/mem"):
        refused("/proc/self/mem", "cannot be read")
    (tmp_path / "gpt.py").mkdir()
    refused(tmp_path, "not a regular file")
    (tmp_path / "gpt.py").rmdir()
    os.mkfifo(tmp_path / "gpt.py")
    refused(tmp_path, "not a regular file")
    refused(tmp_path / "gpt.py", "not a regular file")
    (tmp_path / "gpt.py").unlink()
    (tmp_path / "gpt.py").symlink_to("gpt.py")
    refused(tmp_path, "cannot be read")
    (tmp_path / "gpt.py").unlink()
    if os.getuid():  # root reads everything
        written(GPT).chmod(0)
        refused(tmp_path, "cannot be read")


MHA = class_of("MultiHeadAttention")
PARTS = "import torch\nimport torch.nn as nn\n" + MHA
TAKES = "from .parts import MultiHeadAttention\n"


def with_import(statement):
    return GPT.replace(MHA, statement)


def test_a_class_from_a_neighbour(written, tmp_path):
    for statement in [
        TAKES,
        "from parts import (a,\n MultiHeadAttention)\n",
        "from package.parts import MultiHeadAttention\n",
    ]:
        written(with_import(statement))
        written(PARTS, "parts.py")
        runs(upstream_classes(tmp_path))
        refused(tmp_path / "gpt.py", "MultiHeadAttention is imported from", "give the folder that holds both files")
        written("from .deeper import MultiHeadAttention", "parts.py")
        written("raise SystemExit\n" + PARTS, "deeper.py")
        runs(upstream_classes(tmp_path))
    written(PARTS.replace("super().__init__()", "super().__init__(); open(1)"), "deeper.py")
    refused(tmp_path, "deeper.py, line", "class MultiHeadAttention calls open")


def test_a_folder_with_one_model_under_another_name(written, tmp_path):
    written(with_import(TAKES), "my_model.py")
    written(PARTS, "parts.py")
    written("nothing here that parses (", "broken.py")
    runs(upstream_classes(tmp_path))
    written(GPT, "other.py")
    refused(tmp_path, "several files with a GPTModel: my_model.py, other.py; name the file itself")


NEIGHBOURS = {
    "no such neighbour": ({"gpt.py": with_import(TAKES)}, "parts.py is no file"),
    "a package": ({"gpt.py": with_import(TAKES), "parts/__init__.py": PARTS}, "parts.py is no file"),
    "not in the neighbour": ({"gpt.py": with_import(TAKES), "parts.py": "x = 1"}, "parts.py: there is no class"),
    "a circle": ({"gpt.py": with_import(TAKES), "parts.py": "from gpt import MultiHeadAttention"}, "a circle: gpt.py"),
    "itself": ({"gpt.py": with_import("from .gpt import MultiHeadAttention\n")}, "a circle: gpt.py"),
    "up": ({"gpt.py": with_import("from ..parts import MultiHeadAttention\n"), "parts.py": PARTS}, "leads out"),
    "the package": ({"gpt.py": with_import("from . import MultiHeadAttention\n")}, "leads out"),
    "a long name": ({"gpt.py": with_import(f"from {'a' * 999} import MultiHeadAttention\n")}, "is no file"),
    "in an if": ({"gpt.py": with_import(f"if True:\n {TAKES}"), "parts.py": PARTS}, "nor a plain"),
}


@pytest.mark.parametrize("kind", NEIGHBOURS)
def test_an_import_that_is_not_followed(written, tmp_path, kind):
    files, words = NEIGHBOURS[kind]
    for name, text in files.items():
        written(text, name)
    refused(tmp_path, "class MultiHeadAttention", words)


def test_a_symlink_that_leads_out_of_the_folder(written, tmp_path):
    (tmp_path / "folder").mkdir()
    written(PARTS, "parts.py")
    written(with_import(TAKES), "folder/gpt.py")
    (tmp_path / "folder/parts.py").symlink_to(tmp_path / "parts.py")
    refused(tmp_path / "folder", "imported from .parts, which leads out of the folder")
    (tmp_path / "folder/parts.py").unlink()
    written(PARTS, "folder/other.py")
    (tmp_path / "folder/parts.py").symlink_to("other.py")
    runs(upstream_classes(tmp_path / "folder"))
    (tmp_path / "link").symlink_to("folder")
    runs(upstream_classes(tmp_path / "link"))
