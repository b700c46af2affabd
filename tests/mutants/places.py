"""What may be changed in a file of the product, one place at a time."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).parents[2]
QUIET = {"debug", "info", "warning", "error", "exception", "log", "print"}  # nobody promises the words of a log

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """The node of this number, in the order of ast.walk, of a function's body."""

    file: str
    function: str  # its qualified name
    line: int
    node: int
    change: str  # one of CHANGES

    def __str__(self) -> str:
        text = (ROOT / self.file).read_text().splitlines()[self.line - 1].strip()
        return f"{self.file}:{self.line} {self.function}: {self.change} in `{text}`"


# -- changes: each returns the new node, or None where it does not apply ----------------------------------------------


def _comparison(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.Compare):
        return None
    return ast.Compare(node.left, [COMPARISONS[type(node.ops[0])](), *node.ops[1:]], node.comparators)


def _constant(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, bool | int | float):
        return None
    value = node.value
    return ast.Constant(
        not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else value * 2 + 1
    )


def _operator(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.BoolOp):
        return ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS and not isinstance(node.left, ast.JoinedStr):
        return ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    return None


def _condition(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.If | ast.While) and not isinstance(node.test, ast.Compare | ast.BoolOp | ast.UnaryOp):
        return type(node)(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    if isinstance(node, ast.IfExp) and not isinstance(node.test, ast.Compare | ast.BoolOp | ast.UnaryOp):
        return ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    return None


def _dropped(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
        return ast.Pass()
    assigned = (
        node.targets[0] if isinstance(node, ast.Assign) else node.target if isinstance(node, ast.AugAssign) else None
    )
    return (
        ast.Pass() if isinstance(assigned, ast.Attribute | ast.Subscript) or isinstance(node, ast.AugAssign) else None
    )


def _swapped(node: ast.AST) -> ast.AST | None:
    if (
        not isinstance(node, ast.Call)
        or len(node.args) < 2
        or any(isinstance(one, ast.Starred) for one in node.args[:2])
    ):
        return None
    return ast.Call(node.func, [node.args[1], node.args[0], *node.args[2:]], node.keywords)


def _without_await(node: ast.AST) -> ast.AST | None:
    return node.value if isinstance(node, ast.Await) else None


CHANGES: dict[str, Callable[[ast.AST], ast.AST | None]] = {
    "another comparison": _comparison, "another constant": _constant, "another operator": _operator,
    "the other branch": _condition, "a dropped line": _dropped, "swapped arguments": _swapped,
    "a missing await": _without_await,
}  # fmt: skip


# -- places -----------------------------------------------------------------------------------------------------------


def _functions(tree: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{node.name}", node  # type: ignore[misc]


def _says(node: ast.AST) -> bool:
    """It makes a sentence, or a log's line, which no test should nail."""
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
        return True
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in QUIET


def _nodes(function: ast.FunctionDef) -> list[ast.AST]:
    """In an order of their own, those of sentences left out."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop(0)
        if _says(node) or (isinstance(node, ast.Expr) and _says(node.value)):
            continue
        found.append(node)
        waiting += ast.iter_child_nodes(node)
    return found


def places_of(file: str) -> list[Place]:
    """Every change that can be made of this file."""
    found = []
    functions = list(_functions(ast.parse((ROOT / file).read_text())))
    names = [name for name, _ in functions]
    for name, function in functions:
        if names.count(name) > 1 or name.endswith(("__repr__", "__str__")):
            continue
        for number, node in enumerate(_nodes(function)):
            for change, of in CHANGES.items():
                if of(node) is not None:
                    found.append(Place(file, name, getattr(node, "lineno", function.lineno), number, change))
    return found


def code_of(place: Place) -> dict[tuple[str, int], CodeType]:
    """The code objects of the changed function, by qualified name and first line."""
    tree = ast.parse((ROOT / place.file).read_text())
    function = dict(_functions(tree))[place.function]
    old = _nodes(function)[place.node]
    new = CHANGES[place.change](old)
    assert new is not None
    ast.fix_missing_locations(ast.copy_location(new, old))
    for parent in ast.walk(function):
        for field, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, field, new)
            elif isinstance(value, list) and any(one is old for one in value):
                value[[one is old for one in value].index(True)] = new
    found: dict[tuple[str, int], CodeType] = {}
    waiting = [compile(tree, str(ROOT / place.file), "exec", dont_inherit=True)]
    while waiting:
        code = waiting.pop()
        waiting += [one for one in code.co_consts if isinstance(one, CodeType)]
        if code.co_qualname == place.function or code.co_qualname.startswith(f"{place.function}."):
            found[code.co_qualname, code.co_firstlineno] = code
    return found
