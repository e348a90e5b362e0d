"""The six classes of a reader's copy of upstream's `gpt.py`, taken without running the file (chapter 9).

The file is not trusted. It is parsed, never imported. Of its syntax tree only the six class definitions are kept; each
is compared with the lists below, where what is not named is refused; and only what passed is compiled, in a namespace
that holds nothing but the names in those lists. So the classes can compute with tensors and build modules, and reach
no file, process, module or object beyond. All loops end and no method calls itself, but how much memory and time
permitted arithmetic takes cannot be read off a program: whoever runs the classes sets the limits of the process.
"""

import __future__

import ast
import builtins
import math
import stat
import tokenize
import warnings
from collections import Counter
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

CLASSES = ("GELU", "LayerNorm", "MultiHeadAttention", "FeedForward", "TransformerBlock", "GPTModel")  # uses the earlier
MAIN_FILES = ("gpt.py", "ch04.py")  # in upstream's chapter folder, and in the package llms_from_scratch
MAX_BYTES = 2**20
MAX_INT = 100_000  # above GPT-2's vocabulary
MAX_POWER = 3


def _below(prefix: str, names: str) -> frozenset:
    return frozenset(f"{prefix}.{name}" for name in names.split())


_MODULES = {"torch": torch, "nn": nn, "F": F, "math": math}
_FUNCTIONS = ("range", "enumerate", "zip", "len", "int", "float", "bool", "tuple", "list", "min", "max")
_ERRORS = ("ValueError", "TypeError", "AssertionError", "RuntimeError", "NotImplementedError")
_PROVIDED = {*_MODULES, *_FUNCTIONS, *_ERRORS, "super"}
_LISTS = _below("torch.nn", "ModuleList Sequential")
_CALLED = (
    _LISTS
    | _below("torch.nn", "Linear Embedding Dropout Parameter LayerNorm GELU ReLU SiLU Tanh Softmax Identity")
    | _below("torch.nn.functional", "gelu relu silu softmax layer_norm dropout linear scaled_dot_product_attention")
    | _below("torch", "tensor ones zeros full arange ones_like zeros_like triu tril cat stack where masked_fill")
    | _below("torch", "sqrt rsqrt pow square exp tanh erf mean var softmax matmul bmm einsum transpose split chunk")
    | _below("math", "sqrt exp log tanh erf")
)
_READ = (
    _below("torch", "pi inf bool int long int32 int64 float double float16 bfloat16 float32 float64")
    | _below("math", "pi inf e")
)  # fmt: skip
_FIELDS = set("shape dtype device ndim T mT weight bias training".split())
_METHODS = set(
    "size dim numel mean var std sum sqrt rsqrt pow square exp tanh erf softmax matmul view view_as reshape transpose "
    "permute contiguous flatten unflatten unsqueeze squeeze expand chunk split unbind masked_fill masked_fill_ triu "
    "tril clone detach bool int long float double to type_as get append".split()
)
_OF_MODULE = frozenset(dir(nn.Module()))  # no class may put something of its own in the place of these
# The kinds of syntax that are permitted as soon as all their parts are.
_PLAIN = (
    *(ast.Pass, ast.Assign, ast.Return, ast.Expr, ast.If, ast.Assert, ast.IfExp, ast.BoolOp, ast.Compare, ast.UnaryOp),
    *(ast.Tuple, ast.List, ast.Slice, ast.Starred, ast.ListComp, ast.GeneratorExp, ast.JoinedStr, ast.Load, ast.Store),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult, ast.BitAnd, ast.BitOr),
    *(ast.USub, ast.UAdd, ast.Not, ast.Invert, ast.And, ast.Or, ast.cmpop),
)
_IN_ANNOTATIONS = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.Tuple, ast.List, ast.BinOp, ast.BitOr)
_WORDS = {
    "FunctionDef": "a nested function",
    "ClassDef": "a nested class",
    "Lambda": "a lambda",
    "While": "a while loop",
}
_WORDS |= {"Import": "an import", "ImportFrom": "an import", "NamedExpr": "an assignment in an expression (:=)"}


class UpstreamFileError(ValueError):
    """The file, the line, the class and what was refused, in one message."""


def upstream_classes(path: str | Path) -> dict[str, type]:
    """The six classes of upstream's model, by name, from a file, or from a folder that holds gpt.py or ch04.py.

    A class that the file imports is taken from that neighbour in the folder. UpstreamFileError for whatever cannot be
    read, is not there, or does more than define modules; then nothing was executed.
    """
    path = Path(path)
    reader = _Reader(path if _status(path, path) == "folder" else None)
    found = {name: reader.find(name, reader.main(path)) for name in CLASSES}
    namespace = {name: getattr(builtins, name) for name in (*_FUNCTIONS, *_ERRORS, "super", "__build_class__")}
    namespace = {"__builtins__": namespace, "__name__": "upstream_file", **_MODULES}
    try:
        for source, node in found.values():
            _Check(source, node).check()
        codes = [_compiled(source, node) for source, node in found.values()]
    except RecursionError:
        raise UpstreamFileError(f"{path.name}: a class is nested too deeply to be checked") from None
    for code in codes:
        exec(code, namespace)  # six class statements: literals, functions, and the base nn.Module
    return {name: namespace[name] for name in CLASSES}


def _compiled(source: "_Source", node: ast.ClassDef):
    flags = __future__.annotations.compiler_flag  # annotations stay text
    try:
        return compile(ast.Module([node], []), str(source.path), "exec", flags, dont_inherit=True)
    except SyntaxError as error:  # such as one parameter named twice
        raise UpstreamFileError(f"{source.path.name}, line {error.lineno}: class {node.name}: {error.msg}") from None


# --- finding the classes ---------------------------------------------------------------------------------------------


class _Binding(NamedTuple):
    name: str
    node: ast.AST  # of the line that binds the name
    statement: ast.AST


class _Source(NamedTuple):
    path: Path
    tree: ast.Module
    bindings: list[_Binding]


class _Reader:
    """The files of one folder, or (folder None) one file alone."""

    def __init__(self, folder: Path | None):
        self.folder, self.sources = folder, {}

    def main(self, path: Path) -> Path:
        if self.folder is None:
            return path
        for name in MAIN_FILES:
            if (path / name).exists() or (path / name).is_symlink():
                return path / name
        raise UpstreamFileError(f"the folder {path} holds neither {' nor '.join(MAIN_FILES)}; name the file itself")

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
            lines = " and ".join(str(binding.node.lineno) for binding in found[:2])
            raise UpstreamFileError(f"{here} is ambiguous: lines {lines} both bind the name")
        match found[0]:
            case _Binding(node=ast.ClassDef() as node) if node in source.tree.body:
                return source, node
            case _Binding(node=ast.alias(name=original), statement=ast.ImportFrom() as statement) if (
                original == name and statement in source.tree.body
            ):
                return self.find(name, self.neighbour(statement, here, (*seen, path)), (*seen, path))
        raise UpstreamFileError(
            f"{here} is neither defined at the top level nor imported by a plain `from ... import {name}`"
        )

    def neighbour(self, statement: ast.ImportFrom, here: str, seen: tuple) -> Path:
        origin = "." * statement.level + (statement.module or "")
        if self.folder is None:
            raise UpstreamFileError(f"{here} is imported from {origin}; give the folder that holds both files")
        path = self.folder / f"{origin.rpartition('.')[2]}.py"
        if statement.level > 1 or not statement.module or _leads_out(path, self.folder):
            raise UpstreamFileError(f"{here} is imported from {origin}, which leads out of the folder")
        if _status(path, here) != "file":
            raise UpstreamFileError(f"{here} is imported from {origin}, and {path.name} is no file")
        if path in seen:
            raise UpstreamFileError(f"{here} is imported in a circle: {path.name} is where the search came from")
        return path


def _leads_out(path: Path, folder: Path) -> bool:
    try:
        return path.resolve().parent != folder.resolve()
    except (OSError, RuntimeError):  # a symlink to itself
        return True


def _status(path: Path, name: object) -> str:
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise UpstreamFileError(f"{name}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "neither"


def _parsed(path: Path) -> _Source:
    if _status(path, path) != "file":
        raise UpstreamFileError(f"{path}: not a regular file")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UpstreamFileError(f"{path.name}: larger than {MAX_BYTES} bytes")
        encoding = tokenize.detect_encoding(BytesIO(data).readline)[0]
        if encoding not in ("utf-8", "utf-8-sig") or b"\0" in data:
            raise UpstreamFileError(f"{path.name}: not a text in UTF-8")
        with warnings.catch_warnings(action="ignore"):  # a stray escape in a text that is not ours
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


def _bindings(statement: ast.AST):
    """What a statement binds in the scope of the module; `GELU.forward = f` counts as binding GELU."""
    todo = [statement]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            statement = node
        elif isinstance(node, ast.alias):
            yield _Binding(node.asname or node.name.partition(".")[0], node, statement)
        elif isinstance(getattr(node, "name", None), str):  # class, function, except ... as, case ... as
            yield _Binding(node.name, node, node)
        elif isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            target = node
            while isinstance(target, ast.Attribute | ast.Subscript | ast.Starred):
                target = target.value
            if isinstance(target, ast.Name):
                yield _Binding(target.id, node, node)
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            todo.extend(ast.iter_child_nodes(node))


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
    if isinstance(node, ast.Name):
        return _MODULES[node.id].__name__ if node.id in _MODULES else node.id
    return ""


def _of_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


class _Check(ast.NodeVisitor):
    """Refuses the class unless each part of it is permitted."""

    def __init__(self, source: _Source, node: ast.ClassDef):
        self.file, self.node, self.line = source.path.name, node, node.lineno
        self.method, self.locals = "", frozenset()
        self.methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        stored, lists, self.attributes = Counter(), Counter(), {"training"}
        for part in ast.walk(node):
            match part:
                case ast.Attribute(attr=name, ctx=ast.Store()) if _of_self(part):
                    stored[name] += 1
                case ast.Assign(targets=[target], value=ast.Call(func=func)) if _of_self(target):
                    lists[target.attr] += _dotted(func) in _LISTS
                case ast.Call(func=ast.Attribute(attr="register_buffer"), args=[ast.Constant(value=str(name)), *_]):
                    stored[name] += 1
        self.attributes.update(stored)
        self.lists = {name for name in lists if lists[name] == stored[name]}  # never anything but a list of modules

    def refuse(self, node: ast.AST, what: str):
        line = getattr(node, "lineno", self.line)
        raise UpstreamFileError(f"{self.file}, line {line}: class {self.node.name} {what}")

    # what runs when the class is defined: nothing but literals

    def check(self):
        node = self.node
        self.plain_definition(node)
        if node.keywords:
            self.refuse(node.keywords[0].value, "has a keyword beside its base (a metaclass)")
        if [_dotted(base) for base in node.bases] != ["torch.nn.Module"]:
            self.refuse(node, "must have the base nn.Module and no other")
        for part in node.body:
            match part:
                case ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
                    pass
                case ast.FunctionDef():
                    self.check_method(part)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.constant(part, name, value)
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value) if value:
                    self.annotation(annotation)
                    self.constant(part, name, value)
                case _:
                    self.refuse(
                        part, f"{self.deed(part)} when it is defined; only methods and constants may stand there"
                    )

    def plain_definition(self, node: ast.ClassDef | ast.FunctionDef):
        for decorator in node.decorator_list:
            self.refuse(decorator, f"has a decorator at {node.name}")
        if getattr(node, "type_params", None):  # since Python 3.12
            self.refuse(node, f"has type parameters at {node.name}")

    def constant(self, node: ast.AST, name: str, value: ast.AST):
        self.own_name(node, name)
        self.literal(value)
        self.attributes.add(name)
        self.lists.discard(name)

    def literal(self, node: ast.AST):
        value = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
        if not isinstance(value, ast.Constant):
            self.refuse(node, f"{self.deed(node)} when it is defined; only a literal may stand there")
        self.visit(value)

    def deed(self, node: ast.AST) -> str:
        for part in ast.walk(node):
            if isinstance(part, ast.Call):
                return f"calls {_dotted(part.func) or 'something'}"
        return f"contains {_WORDS.get(type(node).__name__, type(node).__name__)}"

    def annotation(self, node: ast.AST):
        for part in ast.walk(node):
            if not isinstance(part, (*_IN_ANNOTATIONS, ast.expr_context)):
                self.refuse(node, f"{self.deed(node)} in an annotation")

    def own_name(self, node: ast.AST, name: str):
        if name.startswith("__") or name in _OF_MODULE:
            self.refuse(node, f"puts something of its own in the place of nn.Module's {name}")

    def bind(self, node: ast.AST, name: str):
        if name.startswith("__") or name in {*_PROVIDED, *CLASSES, "self"}:
            self.refuse(node, f"binds the name {name}, which has a meaning already")

    def check_method(self, node: ast.FunctionDef):
        self.plain_definition(node)
        if node.name not in ("__init__", "forward"):
            self.own_name(node, node.name)
        given = node.args
        positional = [*given.posonlyargs, *given.args]
        if not positional or positional[0].arg != "self" or given.vararg or given.kwarg:
            self.refuse(node, f"must give {node.name} self as its first parameter, and no * or **")
        parameters = [*positional[1:], *given.kwonlyargs]
        for parameter in parameters:
            self.bind(parameter, parameter.arg)
        for default in filter(None, [*given.defaults, *given.kw_defaults]):
            self.literal(default)
        for annotation in filter(None, [node.returns, *(part.annotation for part in [positional[0], *parameters])]):
            self.annotation(annotation)
        self.method = node.name
        self.locals = {parameter.arg for parameter in parameters}
        self.locals |= {
            part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
        }
        for statement in node.body:
            self.visit(statement)

    # what runs when a model is built and called: one method for each kind of syntax that asks for more than its parts

    def visit(self, node: ast.AST):
        self.line = getattr(node, "lineno", self.line)
        super().visit(node)

    def generic_visit(self, node: ast.AST):
        if not isinstance(node, _PLAIN):
            self.refuse(node, f"contains {_WORDS.get(type(node).__name__, type(node).__name__)}")
        super().generic_visit(node)

    def visit_Constant(self, node):
        value = node.value
        if isinstance(value, bytes | complex) or isinstance(value, int) and abs(value) > MAX_INT:
            self.refuse(node, f"contains bytes, a complex number or an integer beyond {MAX_INT}")
        if isinstance(value, str) and not value.replace("\n", "").isprintable():
            self.refuse(node, "contains a text with control characters")

    def visit_FormattedValue(self, node):
        self.visit(node.value)
        match node.format_spec:
            case None:
                pass
            case ast.JoinedStr(values=[ast.Constant(value=str(text))]) if len(text) <= 5:
                pass
            case _:
                self.refuse(node, "formats a text by more than a short literal")

    def visit_Name(self, node):
        if isinstance(node.ctx, ast.Store):
            self.bind(node, node.id)
        elif node.id not in self.locals:
            self.refuse(node, f"uses the name {node.id} as a value")

    def visit_Subscript(self, node):
        if not isinstance(node.ctx, ast.Load):
            self.refuse(node, "assigns to an element")
        super().generic_visit(node)

    def visit_Attribute(self, node, called=False):
        name, full = node.attr, _dotted(node)
        if not isinstance(node.ctx, ast.Load):
            if not _of_self(node):
                self.refuse(node, f"assigns to .{name} of something else than self")
            self.own_name(node, name)
        elif full.partition(".")[0] in ("torch", "math"):
            if full not in (_CALLED if called else _READ):
                self.refuse(node, f"{'calls' if called else 'reads'} {full}")
        elif _of_self(node):
            if name in self.methods:
                if not called or self.method not in ("__init__", "forward") or name in ("__init__", "forward"):
                    self.refuse(node, f"uses its method {name} other than to call it from __init__ or forward")
            elif name not in self.attributes:
                self.refuse(node, f"uses self.{name}, which it does not assign")
        else:
            if name not in (_METHODS if called else _FIELDS):
                self.refuse(node, f"{'calls' if called else 'reads'} .{name}")
            self.visit(node.value)

    def visit_Call(self, node):
        func = node.func
        if isinstance(func, ast.Name) and func.id in CLASSES:
            if func.id not in CLASSES[: CLASSES.index(self.node.name)]:
                self.refuse(node, f"makes a {func.id}, which comes after it in {', '.join(CLASSES)}")
        elif isinstance(func, ast.Name) and func.id not in self.locals:
            if func.id not in _FUNCTIONS:
                self.refuse(node, f"calls {func.id}")
        elif isinstance(func, ast.Attribute) and _dotted(func) == "self.register_buffer":
            match node.args:
                case [ast.Constant(value=str(name)), *_]:
                    self.own_name(node, name)
                case _:
                    self.refuse(node, "registers a buffer whose name is no literal")
        elif isinstance(func, ast.Attribute):
            self.visit_Attribute(func, called=True)
        else:
            self.visit(func)
        for argument in node.args:
            self.visit(argument)
        for keyword in node.keywords:
            if keyword.arg is None:
                self.refuse(keyword.value, "passes arguments with **")
            self.visit(keyword.value)

    def visit_Expr(self, node):
        match node.value:
            case ast.Constant(value=str()):  # a docstring
                pass
            case ast.Call(
                func=ast.Attribute(value=ast.Call(func=ast.Name(id="super"), args=of, keywords=[]), attr="__init__"),
                args=[],
                keywords=[],
            ) if self.method == "__init__" and [_dotted(part) for part in of] in ([], [self.node.name, "self"]):
                pass
            case value:
                self.visit(value)

    def visit_BinOp(self, node):
        self.arithmetic(node, node.op, node.left, node.right)
        super().generic_visit(node)

    def visit_AugAssign(self, node):
        self.arithmetic(node, node.op, node.target, node.value)
        super().generic_visit(node)

    def arithmetic(self, node, op, left, right):
        if isinstance(op, ast.Mult | ast.Mod):
            for operand in (left, right):
                if isinstance(operand, ast.List | ast.Tuple | ast.ListComp | ast.JoinedStr) or (
                    isinstance(operand, ast.Constant) and isinstance(operand.value, str)
                ):
                    self.refuse(node, "repeats or formats a text or a list")
        if isinstance(op, ast.Pow):
            power = right.operand if isinstance(right, ast.UnaryOp) else right
            if not (
                isinstance(power, ast.Constant) and isinstance(power.value, int | float) and power.value <= MAX_POWER
            ):
                self.refuse(node, f"raises to a power that is no literal up to {MAX_POWER}")

    def visit_AnnAssign(self, node):
        self.annotation(node.annotation)
        self.visit(node.target)
        if node.value:
            self.visit(node.value)

    def visit_Raise(self, node):
        match node:
            case ast.Raise(exc=ast.Call(func=ast.Name(id=error), args=arguments, keywords=[]), cause=None) if (
                error in _ERRORS
            ):
                for argument in arguments:
                    self.visit(argument)
            case _:
                self.refuse(node, f"raises something else than one of {', '.join(_ERRORS)}")

    def visit_For(self, node):
        self.iterable(node.iter)
        for part in (node.target, *node.body, *node.orelse):
            self.visit(part)

    def visit_comprehension(self, node):
        if node.is_async:
            self.refuse(node.target, "contains an asynchronous comprehension")
        self.iterable(node.iter)
        for part in (node.target, *node.ifs):
            self.visit(part)

    def iterable(self, node):
        """range(...), a ModuleList or Sequential of the class (adding to one inside the loop is an error of torch)."""
        match node:
            case ast.Call(func=ast.Name(id="range")):
                self.visit(node)
            case ast.Call(func=ast.Name(id="zip"), args=[_, *_] as parts, keywords=[]):
                for part in parts:
                    self.iterable(part)
            case ast.Call(func=ast.Name(id="enumerate"), args=[part], keywords=[]):
                self.iterable(part)
            case ast.Attribute(attr=name) if _of_self(node) and name in self.lists:
                pass
            case _:
                self.refuse(node, "loops over something else than range(...) or its own ModuleList or Sequential")
