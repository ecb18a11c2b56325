"""Small wrong changes of a Python file, one at a time, for scripts/mutants.py.

A change keeps the file's lines where they are, so that a map from lines to tests stays
true. What nobody observes is left alone: docstrings, texts of errors, annotations,
decorators, imports, `__all__`, and `strict=`, which guards and computes nothing.
"""

import ast
import copy
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

COMPARISONS: dict[type[ast.cmpop], list[type[ast.cmpop]]] = {
    ast.Lt: [ast.LtE, ast.GtE],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
PAIRS = ["min max", "any all", "minimum maximum", "floor ceil", "zeros ones"]
PAIRS += ["zeros_like ones_like", "argmin argmax", "psum pmax", "pmean psum"]
NAMES = {a: b for pair in PAIRS for a, b in [pair.split(), pair.split()[::-1]]}
NAMES |= {"psum": "pmax", "pmax": "psum", "sorted": "list", "reversed": "list"}
NAMES |= {"float32": "float16"}

Scope = ast.FunctionDef | ast.ClassDef
N = TypeVar("N", bound=ast.AST)


class Mutant(NamedTuple):
    """One wrong change.

    Attributes:
      name: where and what, stable while other lines move.
      line: number of the line in which it begins.
      in_body: whether it is in a function's body, which runs when it is called.
      source: the whole file with the change.
    """

    name: str
    line: int
    in_body: bool
    source: str


class _Change(NamedTuple):
    node: ast.expr | ast.stmt
    new: ast.AST | str
    scope: str
    in_body: bool


def mutants_of(source: str) -> list[Mutant]:
    """Every mutant of a file, in its order."""
    lines = source.encode().splitlines(keepends=True)
    starts = [sum(map(len, lines[:i])) for i in range(len(lines))]
    seen: dict[str, int] = {}
    found = []
    for change in _visit(ast.parse(source), "", False, set()):
        node = change.node
        new = change.new if isinstance(change.new, str) else ast.unparse(change.new)
        name = f"{change.scope}: {_brief(ast.unparse(node))} -> {_brief(new)}"
        seen[name] = seen.get(name, 0) + 1
        name += f" #{seen[name]}" if seen[name] > 1 else ""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        text = b"".join(lines)
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        text = b"".join(lines)
        rest = "\n" * text.count(b"\n", begin, end)
        put = f"({new}{rest})" if isinstance(node, ast.expr) else new + rest
        whole = (text[:begin] + put.encode() + text[end:]).decode()
        found.append(Mutant(name, node.lineno, change.in_body, whole))
    return found


def _brief(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 70 else f"{text[:34]} .. {text[-32:]}"


def _visit(
    node: ast.AST, scope: str, in_body: bool, bound: set[str]
) -> Iterator[_Change]:
    """Changes of a node and of what is in it; `bound` are names that have a value."""
    if isinstance(node, ast.expr | ast.stmt) and not _unseen(node):
        for new in _changes(node, bound):
            yield _Change(node, new, scope or "module", in_body)
    for field, child in _children(node):
        inner, inside, names = scope, in_body, bound
        if isinstance(node, Scope):
            inner = f"{scope}.{node.name}".lstrip(".")
        if isinstance(node, ast.FunctionDef):
            inside = in_body or field == "body"
            args = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            names = {arg.arg for arg in args}
        if field == "test" and isinstance(child, ast.Name | ast.Call | ast.Attribute):
            yield _Change(child, f"not {ast.unparse(child)}", scope, in_body)
        yield from _visit(child, inner, inside or isinstance(node, ast.Lambda), names)
        if isinstance(child, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.For):
            stored = (n for n in ast.walk(child) if isinstance(n, ast.Name))
            bound |= {n.id for n in stored if isinstance(n.ctx, ast.Store)}


def _unseen(node: ast.AST) -> bool:
    """Whether nobody observes what this node says."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.JoinedStr():
            return True
        case ast.Expr(value=ast.Constant()):  # a docstring, or `...`
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
    return False


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What is in a node, with its field's name, and is observed."""
    if _unseen(node) or isinstance(node, ast.Raise):
        return
    for field, value in ast.iter_fields(node):
        if field in ("decorator_list", "returns", "annotation", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            guard = isinstance(child, ast.keyword) and child.arg == "strict"
            if isinstance(child, ast.AST) and not guard:
                yield field, child


def _changes(node: ast.expr | ast.stmt, bound: set[str]) -> Iterator[ast.AST | str]:
    """What may stand in a node's place."""
    match node:
        case ast.Raise():
            yield "pass"
        case ast.Expr(value=ast.Call()):
            yield "pass"
        case ast.AugAssign(op=op):
            yield "pass"
            if type(op) in OPERATORS:
                yield _with(node, op=OPERATORS[type(op)]())
        case ast.Assign(targets=[target], value=value):
            again = {n.id for n in ast.walk(target) if isinstance(n, ast.Name)} <= bound
            if again and not isinstance(value, ast.Lambda):
                yield "pass"
        case ast.Break():
            yield "continue"
        case ast.Continue():
            yield "break"
        case ast.Return(value=ast.expr() as value):
            if not (isinstance(value, ast.Constant) and value.value is None):
                yield "return None"
    if isinstance(node, ast.expr):
        yield from _of_expression(node)


def _of_expression(node: ast.expr) -> Iterator[ast.AST | str]:
    match node:
        case ast.Constant(value=bool() as value):
            yield repr(not value)
        case ast.Constant(value=int() as value):
            yield repr(value + 1)
        case ast.Constant(value=float() as value):
            yield from ("0.0", "1.0") if 0 < value < 1e-5 else (repr(value * 2 or 1.0),)
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                for other in COMPARISONS[type(op)]:
                    yield _with(node, ops=[*ops[:i], other(), *ops[i + 1 :]])
        case ast.BoolOp(op=op, values=values):
            yield _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
            yield from values
        case ast.BinOp(left=left, op=ast.MatMult(), right=right):
            yield _with(node, left=right, right=left)
        case ast.BinOp(left=left, op=op, right=right):
            texts = (ast.JoinedStr, ast.List, ast.Tuple)
            text = any(
                isinstance(x, texts) or isinstance(getattr(x, "value", 0), str)
                for x in (left, right)
            )
            if not text:
                yield _with(node, op=OPERATORS[type(op)]())
        case ast.UnaryOp(operand=operand):
            yield operand
        case ast.IfExp(body=body, orelse=orelse):
            yield _with(node, body=orelse, orelse=body)
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            yield from _unfiltered(node)
        case ast.Name(id=name) if name in NAMES:
            yield NAMES[name]
        case ast.Attribute(attr=name) if name in NAMES:
            yield _with(node, attr=NAMES[name])
        case ast.Call():
            yield from _of_call(node)


def _unfiltered(
    node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp,
) -> Iterator[ast.AST]:
    for i, loop in enumerate(node.generators):
        if loop.ifs:
            loops = [*node.generators]
            loops[i] = _with(loop, ifs=[])
            yield _with(node, generators=loops)


def _of_call(node: ast.Call) -> Iterator[ast.AST]:
    first = node.args[:2]
    fixed = any(isinstance(x, ast.Starred | ast.Lambda) for x in first)
    name = ast.unparse(node.func)
    fixed |= name in ("isinstance", "map", "jax.tree.map")  # nothing would run
    fixed |= name.rpartition(".")[2] in ("max", "min", "maximum", "minimum")
    if len(first) == 2 and not fixed and ast.dump(first[0]) != ast.dump(first[1]):
        yield _with(node, args=[first[1], first[0], *node.args[2:]])
    for i, word in enumerate(node.keywords):
        if word.arg not in (None, "strict"):
            yield _with(node, keywords=node.keywords[:i] + node.keywords[i + 1 :])


def _with(node: N, **fields: object) -> N:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new
