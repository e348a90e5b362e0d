"""The six classes of a reader's copy of upstream's `gpt.py`, taken without running the file (chapter 9).

The file is not trusted. It is parsed, never imported. Of its syntax tree only the six class definitions are kept; each
is compared with the lists below, where what is not named is refused; and only what passed is compiled, in a namespace
that holds nothing but the names in those lists. So the classes can compute with tensors and build modules, and reach
no file, process, module or object beyond. Every loop and every recursion of theirs ends, but how much time and memory
permitted arithmetic takes cannot be read off a program: whoever runs the classes sets the limits of the process.
"""

import __future__

import ast
import builtins
import codecs
import math
import os
import stat
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from types import CodeType
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F


def _names(text: str, prefix: str = "") -> frozenset:
    return frozenset(prefix + name for name in text.split())


CLASSES = ("GELU", "LayerNorm", "MultiHeadAttention", "FeedForward", "TransformerBlock", "GPTModel")
MAIN_FILES = ("gpt.py", "ch04.py")  # in upstream's chapter folder, and in the package llms_from_scratch
MAX_BYTES = 2**20
MAX_INT = 100_000  # above GPT-2's vocabulary
MAX_POWER = 3

_MODULES = {"torch": torch, "nn": nn, "F": F, "math": math}
_FUNCTIONS = _names("range enumerate zip len int float bool tuple list min max")
_FUNCTIONS |= _names("ValueError TypeError AssertionError RuntimeError NotImplementedError")
_PROVIDED = {*_MODULES, *_FUNCTIONS, "super"}
_LISTS = _names("ModuleList Sequential", "torch.nn.")
_CALLED = (
    _LISTS
    | _names("Linear Embedding Dropout Parameter LayerNorm GELU ReLU SiLU Tanh Softmax Identity", "torch.nn.")
    | _names("gelu relu silu softmax layer_norm dropout linear scaled_dot_product_attention", "torch.nn.functional.")
    | _names("tensor ones zeros full arange ones_like zeros_like triu tril cat stack where masked_fill", "torch.")
    | _names("sqrt rsqrt pow square exp tanh erf mean var softmax matmul bmm einsum transpose split chunk", "torch.")
    | _names("sqrt exp log tanh erf", "math.")
)
_READ = _names("pi inf bool int long int32 int64 float double float16 bfloat16 float32 float64", "torch.")
_READ |= _names("pi inf e", "math.")
_FIELDS = _names("shape dtype device ndim T mT weight bias p training")
_METHODS = _names(
    "size dim numel mean var std sum sqrt rsqrt pow square exp tanh erf softmax matmul view view_as reshape transpose "
    "permute contiguous flatten unflatten unsqueeze squeeze expand chunk split unbind masked_fill masked_fill_ triu "
    "tril clone detach bool int long float double to type_as get append add sub mul div neg abs"
)
_MOST_POSITIONAL = {"torch.nn.Linear": 3, "torch.nn.Embedding": 2, "torch.nn.LayerNorm": 3}  # then `device` may come
_OF_MODULE = frozenset(dir(nn.Module()))  # no class may put something of its own in the place of these
# The kinds of syntax that are permitted as soon as all their parts are, and those that may stand in an annotation.
_PLAIN = _names(
    "Pass Assign Return Raise Expr If Assert IfExp BoolOp Compare UnaryOp Tuple List Slice Starred ListComp "
    "GeneratorExp JoinedStr Load Store Add Sub Mult Div FloorDiv Mod Pow MatMult BitAnd BitOr USub UAdd Not Invert "
    "And Or Eq NotEq Lt LtE Gt GtE Is IsNot In NotIn"
)
_NOTES = _names("Name Attribute Subscript Constant Tuple List BinOp BitOr Load")


class UpstreamFileError(ValueError):
    """The file, the line, the class and what was refused, in one message."""


def upstream_classes(path: str | Path) -> dict[str, type]:
    """The six classes of upstream's model, by name, from a file, or from a folder that holds gpt.py or ch04.py (or one
    file of another name that defines GPTModel).

    A class that the file imports is taken from that neighbour in the folder. UpstreamFileError for whatever cannot be
    read, is not there, or does more than define modules; then nothing was executed.
    """
    path = Path(path)
    reader = _Reader(path if _kind_of_file(path) == "folder" else None)
    path = reader.main_file(path)
    try:
        with warnings.catch_warnings(action="ignore"):  # such as a stray escape, in a text that is not ours
            codes = [_Check(*reader.find(name, path)).checked() for name in CLASSES]
    except RecursionError:
        raise UpstreamFileError(f"{path.name}: a class is nested too deeply to be checked") from None
    known = {name: getattr(builtins, name) for name in (*_FUNCTIONS, "super", "__build_class__")}
    known["__import__"] = _import_for_torch
    namespace = {"__builtins__": known, "__name__": "upstream_file", **_MODULES}
    for code in codes:
        exec(code, namespace)  # six class statements: literals, functions, and the base nn.Module
    return {name: namespace[name] for name in CLASSES}


def _import_for_torch(name: str, *rest):
    """The compiled part of torch imports torch by the name that its caller, here a checked class, has for importing."""
    if name.partition(".")[0] != "torch":
        raise ImportError(f"upstream's classes import nothing, not {name}")
    return __import__(name, *rest)


# --- finding the classes ---------------------------------------------------------------------------------------------


class _Binding(NamedTuple):
    name: str
    node: ast.AST  # on the line that binds the name
    statement: ast.AST


class _Source(NamedTuple):
    path: Path
    tree: ast.Module
    bindings: list[_Binding]


class _Reader:
    """The files of one folder, or (folder None) one file alone."""

    def __init__(self, folder: Path | None):
        self.folder, self.sources = folder, {}

    def main_file(self, path: Path) -> Path:
        if self.folder is None:
            return path
        for name in MAIN_FILES:
            if os.path.lexists(path / name):
                return path / name
        others = [file for file in sorted(path.glob("*.py")) if self.defines_the_model(file)]
        if len(others) == 1:
            return others[0]
        told = f", but several files with a GPTModel: {', '.join(file.name for file in others)}" if others else ""
        here = f"the folder {path} holds neither {' nor '.join(MAIN_FILES)}{told}"
        raise UpstreamFileError(f"{here}; name the file itself")

    def defines_the_model(self, path: Path) -> bool:
        try:
            return ("GPTModel", "ClassDef") in {(name, _kind(node)) for name, node, _ in _parsed(path).bindings}
        except UpstreamFileError:
            return False

    def find(self, name: str, path: Path, seen: tuple = ()) -> tuple[_Source, ast.ClassDef]:
        """The one definition of a class, in this file or in the neighbour that it is imported from."""
        if path not in self.sources:
            self.sources[path] = _parsed(path)
        source = self.sources[path]
        found = [binding for binding in source.bindings if binding.name in (name, "*")]
        if not found:
            raise UpstreamFileError(f"{path.name}: there is no class {name} at the top level")
        here = f"{path.name}, line {found[0].node.lineno}: class {name}"
        if len(found) > 1:
            raise UpstreamFileError(f"{here} is ambiguous: line {found[1].node.lineno} binds the name as well")
        node, statement = found[0].node, found[0].statement
        if statement in source.tree.body and isinstance(node, ast.ClassDef):
            return source, node
        if statement in source.tree.body and isinstance(statement, ast.ImportFrom) and node.name == name:
            seen = (*seen, path)
            return self.find(name, self.neighbour(statement, here, seen), seen)
        raise UpstreamFileError(f"{here} is neither a class at the top level nor a plain `from ... import {name}`")

    def neighbour(self, statement: ast.ImportFrom, here: str, seen: tuple) -> Path:
        origin = "." * statement.level + (statement.module or "")
        here = f"{here} is imported from {origin}"
        if self.folder is None:
            raise UpstreamFileError(f"{here}; give the folder that holds both files")
        path = self.folder / f"{origin.rpartition('.')[2]}.py"
        if path in seen:
            raise UpstreamFileError(f"{here}, a circle: {path.name} imports it itself")
        if statement.level > 1 or not statement.module or Path(os.path.realpath(path)).parent != self.folder.resolve():
            raise UpstreamFileError(f"{here}, which leads out of the folder")
        if not os.path.isfile(path):
            raise UpstreamFileError(f"{here}, and {path.name} is no file in the folder")
        return path


def _kind_of_file(path: Path) -> str:
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise UpstreamFileError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"


def _parsed(path: Path) -> _Source:
    if _kind_of_file(path) != "file":
        raise UpstreamFileError(f"{path}: not a regular file")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UpstreamFileError(f"{path.name}: larger than {MAX_BYTES} bytes")
        encoding = codecs.lookup(tokenize.detect_encoding(BytesIO(data).readline)[0]).name
        if encoding not in ("utf-8", "utf-8-sig") or b"\0" in data:
            raise UpstreamFileError(f"{path.name}: not a text in UTF-8")
        tree = ast.parse(data.decode(encoding))
    except OSError as error:
        raise UpstreamFileError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise UpstreamFileError(f"{path.name}: not a text in UTF-8") from None
    except SyntaxError as error:
        line = f", line {error.lineno}" if error.lineno else ""
        raise UpstreamFileError(f"{path.name}{line}: not Python ({error.msg})") from None
    except (RecursionError, MemoryError):
        raise UpstreamFileError(f"{path.name}: nested too deeply to be parsed") from None
    source = _Source(path, tree, [binding for statement in tree.body for binding in _bindings(statement)])
    for name, node, statement in source.bindings:
        if name in _PROVIDED and _origin(node, statement) != getattr(_MODULES.get(name), "__name__", ""):
            raise UpstreamFileError(f"{path.name}, line {node.lineno}: {name} is bound to something else than usual")
    return source


def _bindings(statement: ast.AST) -> Iterator[_Binding]:
    """What a statement binds in the scope of the module; `GELU.forward = f` counts as binding GELU."""
    todo = [(statement, statement)]
    while todo:
        node, parent = todo.pop()
        if isinstance(node, ast.alias):
            yield _Binding(node.asname or node.name.partition(".")[0], node, parent)
        elif isinstance(getattr(node, "name", None), str):  # class, function, except ... as, case ... as
            yield _Binding(node.name, node, node)
        elif isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            target = node
            while isinstance(target, ast.Attribute | ast.Subscript | ast.Starred):
                target = target.value
            yield _Binding(getattr(target, "id", ""), node, node)
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            todo.extend((child, node) for child in ast.iter_child_nodes(node))


def _origin(node: ast.AST, statement: ast.AST) -> str | None:
    """The full name of what an import binds."""
    if isinstance(statement, ast.Import):
        return node.name if node.asname else node.name.partition(".")[0]
    if isinstance(statement, ast.ImportFrom):
        return f"{'.' * statement.level}{statement.module or ''}.{node.name}"
    return None


# --- checking a class ------------------------------------------------------------------------------------------------


def _dotted(node: ast.AST) -> str:
    """`a.b.c` as text, "" for any other expression; the aliases nn and F are written out."""
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    name = getattr(node, "id", "")
    return _MODULES[name].__name__ if name in _MODULES else name


def _of_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "self"


def _kind(node: ast.AST) -> str:
    return type(node).__name__


class _Check(ast.NodeVisitor):
    """Refuses the class unless each part of it is permitted."""

    def __init__(self, source: _Source, node: ast.ClassDef):
        self.path, self.node, self.line = source.path, node, node.lineno
        self.method, self.locals = "", frozenset()
        self.methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)} - {"__init__"}
        stored, lists = Counter(), Counter()
        for part in ast.walk(node):
            match part:
                case ast.Attribute(ctx=ast.Store()) if _of_self(part):
                    stored[part.attr] += 1
                case ast.Assign(targets=[target], value=ast.Call(func=func)) if _of_self(target):
                    lists[target.attr] += _dotted(func) in _LISTS
                case ast.Call(func=ast.Attribute(attr="register_buffer"), args=[ast.Constant(value=str(name)), *_]):
                    stored[name] += 1
        self.attributes = {"training", *stored}
        self.lists = {name for name in lists if lists[name] == stored[name]}  # never anything but a list of modules

    def checked(self) -> CodeType:
        """The class statement, ready to be executed."""
        module, flags = ast.Module([self.node], []), __future__.annotations.compiler_flag  # annotations stay text
        try:
            self.check_class()
            return compile(module, str(self.path), "exec", flags, dont_inherit=True)
        except SyntaxError as error:  # what only the compiler sees, such as one parameter named twice
            self.refuse(error, f"is not Python ({error.msg})")

    def refuse(self, node: ast.AST | SyntaxError, what: str):
        line = getattr(node, "lineno", self.line)
        raise UpstreamFileError(f"{self.path.name}, line {line}: class {self.node.name} {what}") from None

    # What runs when the class is defined: nothing but literals.

    def check_class(self):
        self.check_head(self.node)
        for keyword in self.node.keywords:
            self.refuse(keyword.value, f"has {keyword.arg or '**'} beside its base")
        if [_dotted(base) for base in self.node.bases] != ["torch.nn.Module"]:
            self.refuse(self.node, "must have the base nn.Module and no other")
        for part in sorted(self.node.body, key=lambda part: isinstance(part, ast.FunctionDef)):  # constants first
            match part:
                case ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
                    pass
                case ast.FunctionDef():
                    self.check_method(part)
                case ast.AnnAssign(target=ast.Name(id=name), value=None):
                    self.check_own(part, name)
                    self.check_annotations(part.annotation)
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ):
                    self.check_own(part, name)
                    self.check_literal(value)
                    self.check_annotations(getattr(part, "annotation", None))
                    self.attributes.add(name)
                case _:
                    self.refuse(part, f"{self.deed(part)} when it is defined; it may hold methods and constants only")

    def check_head(self, node: ast.ClassDef | ast.FunctionDef):
        for decorator in node.decorator_list:
            self.refuse(decorator, f"has a decorator at {node.name}")
        if getattr(node, "type_params", None):  # since Python 3.12
            self.refuse(node, f"has type parameters at {node.name}")

    def check_method(self, node: ast.FunctionDef):
        self.check_head(node)
        if node.name not in ("__init__", "forward"):
            self.check_own(node, node.name)
        given = node.args
        first, *others = [*given.posonlyargs, *given.args, *given.kwonlyargs] or [None]
        if first is None or first.arg != "self" or first in given.kwonlyargs or given.vararg or given.kwarg:
            self.refuse(node, f"must give {node.name} self as its first parameter, and no * or **")
        for parameter in others:
            self.check_binding(parameter, parameter.arg)
        for default in filter(None, [*given.defaults, *given.kw_defaults]):
            self.check_literal(default)
        self.check_annotations(node.returns, *(parameter.annotation for parameter in (first, *others)))
        self.method = node.name
        stored = (part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store))
        self.locals = {*(parameter.arg for parameter in others), *stored}
        for statement in node.body:
            self.visit(statement)

    def check_literal(self, node: ast.AST):
        value = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
        if not isinstance(value, ast.Constant):
            self.refuse(node, f"{self.deed(node)} when it is defined; only a literal may stand there")
        self.visit(value)

    def check_annotations(self, *nodes: ast.AST | None):
        for part in (part for node in filter(None, nodes) for part in ast.walk(node)):
            if _kind(part) not in _NOTES:
                self.refuse(part, f"{self.deed(part)} in an annotation")

    def check_own(self, node: ast.AST, name: str):
        if name.startswith("__") or name in _OF_MODULE or name in ("device", "dtype"):
            self.refuse(node, f"puts something of its own in the place of {name}")

    def check_binding(self, node: ast.AST, name: str):
        if name.startswith("__") or name in {*_PROVIDED, *CLASSES, "self"}:
            self.refuse(node, f"binds the name {name}, which has a meaning already")

    def deed(self, node: ast.AST) -> str:
        call = next((part for part in ast.walk(node) if isinstance(part, ast.Call)), None)
        return f"calls {_dotted(call.func) or 'something'}" if call else f"contains {_kind(node)}"

    # What runs when a model is built and called: a method for each kind of syntax that asks for more than its parts.

    def visit(self, node: ast.AST):
        self.line = getattr(node, "lineno", self.line)
        super().visit(node)

    def generic_visit(self, node: ast.AST):
        if _kind(node) not in _PLAIN:
            self.refuse(node, f"contains {_kind(node)}")
        super().generic_visit(node)

    def visit_Constant(self, node):
        value = node.value
        if isinstance(value, bytes | complex) or (isinstance(value, int) and value > MAX_INT):
            self.refuse(node, f"contains bytes, a complex number or an integer above {MAX_INT}")
        if isinstance(value, str) and not value.replace("\n", "").replace("\t", "").isprintable():
            self.refuse(node, "contains a text with control characters")

    def visit_FormattedValue(self, node):
        self.visit(node.value)
        parts = node.format_spec.values if node.format_spec else []
        if any(not isinstance(part, ast.Constant) or len(part.value) > 5 for part in parts):
            self.refuse(node, "formats a text by more than a short literal")

    def visit_Name(self, node):
        if isinstance(node.ctx, ast.Store):
            self.check_binding(node, node.id)
        elif node.id not in self.locals:
            self.refuse(node, f"uses the name {node.id} as a value")

    def visit_Subscript(self, node):
        if not isinstance(node.ctx, ast.Load):
            self.refuse(node, "assigns to an element")
        super().generic_visit(node)

    def visit_Attribute(self, node, called=False):
        name, full = node.attr, _dotted(node)
        use = "calls" if called else "reads"
        if not isinstance(node.ctx, ast.Load):
            if not _of_self(node):
                self.refuse(node, f"assigns to .{name} of something else than self")
            self.check_own(node, name)
        elif full.partition(".")[0] in ("torch", "math"):
            if full not in (_CALLED if called else _READ):
                self.refuse(node, f"{use} {full}")
        elif _of_self(node):
            if name not in self.attributes and not (called and name in self.methods):
                self.refuse(node, f"{use} self.{name}, which it does not assign")
        else:
            if name not in (_METHODS if called else _FIELDS):
                self.refuse(node, f"{use} .{name}")
            self.visit(node.value)

    def visit_Call(self, node):
        match node.func:
            case ast.Name(id=name):
                if name not in {*self.locals, *_FUNCTIONS, *CLASSES}:
                    self.refuse(node, f"calls {name}")
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"), args=of, keywords=[]), attr="__init__"):
                if self.method != "__init__" or [_dotted(part) for part in of] not in ([], [self.node.name, "self"]):
                    self.refuse(node, "uses super other than as super().__init__() in __init__")
            case ast.Attribute(value=ast.Name(id="self"), attr="register_buffer"):
                if not (node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)):
                    self.refuse(node, "registers a buffer whose name is no literal")
                self.check_own(node, node.args[0].value)
            case ast.Attribute() as function:
                self.visit_Attribute(function, called=True)
            case function:
                self.visit(function)
        for keyword in node.keywords:
            if keyword.arg is None:
                self.refuse(keyword.value, "passes arguments with **")
        self.check_device(node)
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            self.visit(argument)

    def check_device(self, node: ast.Call):
        """Everything stays where the ids are: on torch's meta device, say, a tensor has no values to compare."""
        chosen = [keyword.value for keyword in node.keywords if keyword.arg == "device"]
        if getattr(node.func, "attr", "") == "to":
            chosen = [*node.args, *(keyword.value for keyword in node.keywords)]
        for value in chosen:
            if _dotted(value) not in _READ and getattr(value, "attr", "") not in ("device", "dtype"):
                self.refuse(value, "chooses a device other than x.device, or a type other than x.dtype or torch's")
        if len(node.args) > _MOST_POSITIONAL.get(_dotted(node.func), len(node.args)):
            self.refuse(node, f"gives {_dotted(node.func)} more arguments than it needs")

    def visit_BinOp(self, node):
        left, right = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
        if isinstance(node.op, ast.Mult | ast.Mod):
            for side in (left, right):
                text = isinstance(getattr(side, "value", None), str)
                if text or _kind(side) in ("List", "Tuple", "ListComp", "JoinedStr"):
                    self.refuse(node, "repeats or formats a text or a list")
        if isinstance(node.op, ast.Pow):
            power = getattr(getattr(right, "operand", right), "value", None)
            if not isinstance(power, int | float) or power > MAX_POWER:
                self.refuse(node, f"raises to a power that is no literal up to {MAX_POWER}")
        super().generic_visit(node)

    def visit_AugAssign(self, node):
        self.visit_BinOp(node)

    def visit_AnnAssign(self, node):
        self.check_annotations(node.annotation)
        for part in filter(None, (node.target, node.value)):
            self.visit(part)

    def visit_For(self, node):
        if not self.ends(node.iter):
            self.refuse(node.iter, "loops over something else than range(...) or its own ModuleList or Sequential")
        super().generic_visit(node)

    visit_comprehension = visit_For

    def ends(self, node: ast.AST) -> bool:
        """Adding to a list of modules in a loop over it is an error of torch; adding to any other list never ends."""
        match node:
            case ast.Call(func=ast.Name(id="range")):
                return True
            case ast.Call(func=ast.Name(id="enumerate" | "zip"), args=[_, *_] as parts):
                return all(self.ends(part) for part in parts)
        return _of_self(node) and node.attr in self.lists
