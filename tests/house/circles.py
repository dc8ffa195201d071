"""Find files that import each other in a circle, even if only for types.

None of these files can be understood without reading the others.
"""

from collections.abc import Iterable, Iterator

from tests.house.laws import imports
from tests.house.tree import Module


def circles(modules: Iterable[Module]) -> list[list[str]]:
    """Return the groups of files that import each other in a circle, including imports for type
    checking."""
    names = {".".join(one.parts): one for one in modules}
    graph = {
        name: sorted({found for _, found in imports(one) if found in names and found != name})
        for name, one in names.items()
    }
    return [sorted(group) for group in _connected(graph) if len(group) > 1]


def _connected(graph: dict[str, list[str]]) -> Iterator[list[str]]:
    """Return the strongly connected components by Tarjan's algorithm, without recursion."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    for root in graph:
        work = [(root, iter(graph[root]))] if root not in number else []
        if work:
            number[root] = low[root] = len(number)
            stack.append(root)
        while work:
            name, ahead = work[-1]
            following = next(ahead, None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == number[name]:
                    at = stack.index(name)
                    group, stack[at:] = stack[at:], []
                    yield group
            elif following not in number:
                number[following] = low[following] = len(number)
                stack.append(following)
                work.append((following, iter(graph[following])))
            elif following in stack:
                low[name] = min(low[name], number[following])
