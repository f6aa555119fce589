"""What each route of a node needs: one table. A route without a row cannot be served.

A row is read as `method path: permissions`. Several permissions are needed all together, for the name in the
path. `READ_ALL` is `read:*`. `ENSURE` is `create`, or `read` if it is there already as it is asked for: who
may read it may say what he expects, but neither make nor change it. HEAD needs what GET needs.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from headrace.kernel.errors import NoPermission
from headrace.server.permissions import Holder, Permission

_PUBLISH, _READ, _CREATE, _ADMIN = Permission.PUBLISH, Permission.READ, Permission.CREATE, Permission.ADMIN


@dataclass(frozen=True, slots=True)
class Need:
    every: tuple[Permission, ...] = ()
    """All of these."""
    some: tuple[Permission, ...] = ()
    """At least one of these."""
    all_names: bool = False
    """Not for one name, but for every name."""
    open: bool = False
    """Nothing at all, not even a token."""


OPEN = Need(open=True)
TOKEN = Need()
"""Any token. What is answered is only what it may see."""
PUBLISH = Need((_PUBLISH,))
READ = Need((_READ,))
CREATE = Need((_CREATE,))
CONSUME = Need((_PUBLISH, _READ))
ENSURE = Need(some=(_CREATE, _READ))
ADMIN = Need((_ADMIN,))
READ_ALL = Need((_READ,), all_names=True)

NEEDS: dict[str, Need] = {
    "GET /livez": OPEN,
    "GET /readyz": OPEN,
    "GET /openapi.json": OPEN,
    "GET /metrics": READ_ALL,
    #
    "GET /streams": TOKEN,
    "PUT /streams/{name}": ENSURE,
    "POST /streams/{name}/grow": CREATE,
    "DELETE /streams/{name}": ADMIN,
    "POST /streams/{name}": PUBLISH,
    "GET /streams/{name}/pipe": PUBLISH,
    "POST /streams/{name}/head": PUBLISH,
    "POST /streams/{name}/publisher": PUBLISH,
    "DELETE /streams/{name}/publisher": PUBLISH,
    "POST /streams/{name}/ids": PUBLISH,
    "GET /streams/{name}": READ,
    "GET /streams/{name}/info": READ,
    "GET /streams/{name}/meta": READ,
    "GET /streams/{name}/frames": READ,
    "GET /streams/{name}/verify": READ,
    "GET /streams/{name}/seek": READ,
    "GET /streams/{name}/plan": READ,
    "POST /streams/{name}/positions/{position}": READ,
    "DELETE /streams/{name}/positions/{position}": READ,
    "PUT /streams/{name}/staged/{query}/{batch}/{run}": PUBLISH,
    "DELETE /streams/{name}/staged/{query}/{batch}/{run}": PUBLISH,
    "DELETE /streams/{name}/staged/{query}": PUBLISH,
    "POST /streams/{name}/land": PUBLISH,
    "GET /streams/{name}/segments": READ,
    "POST /streams/{name}/segments": READ,
    "POST /streams/{name}/verify": READ,
    "POST /streams/{name}/compact": READ,
    #
    "GET /journals": TOKEN,
    "PUT /journals/{name}": ENSURE,
    "POST /journals/{name}/put": PUBLISH,
    "POST /journals/{name}/put_batch": PUBLISH,
    "POST /journals/{name}/cancel": PUBLISH,
    "POST /journals/{name}/next": CONSUME,
    "POST /journals/{name}/done": CONSUME,
    "POST /journals/{name}/fail": CONSUME,
    "POST /journals/{name}/next_batch": CONSUME,
    "POST /journals/{name}/done_batch": CONSUME,
    "POST /journals/{name}/extend": CONSUME,
    "POST /journals/{name}/redrive": CONSUME,
    "POST /journals/{name}/redrive_as": CONSUME,
    "POST /journals/{name}/set": PUBLISH,
    "POST /journals/{name}/delete": PUBLISH,
    "POST /journals/{name}/resize": PUBLISH,
    "POST /journals/{name}/lock": PUBLISH,
    "POST /journals/{name}/unlock": PUBLISH,
    "POST /journals/{name}/rename": PUBLISH,
    "POST /journals/{name}/link": PUBLISH,
    "POST /journals/{name}/add": CONSUME,
    "POST /journals/{name}/flip": CONSUME,
    "POST /journals/{name}/get": CONSUME,
    "POST /journals/{name}/probe": READ,
    "POST /journals/{name}/range": READ,
    "POST /journals/{name}/match": READ,
    "POST /journals/{name}/listen": READ,
    "PUT /journals/{name}/staged/{query}/{batch}/{run}": PUBLISH,
    "DELETE /journals/{name}/staged/{query}/{batch}/{run}": PUBLISH,
    "DELETE /journals/{name}/staged/{query}": PUBLISH,
    "POST /journals/{name}/land": PUBLISH,
    "GET /journals/{name}/history": READ,
    "GET /journals/{name}/history/reach": READ,
    "GET /journals/{name}/history/plan": READ,
    "GET /journals/{name}/jobs": READ,
    "GET /journals/{name}/settings": READ,
    "GET /journals/{name}/stats": READ,
    "GET /journals/{name}/fj": CONSUME,
    "GET /journals/{name}/frames": READ,
}


def route_of(request: web.Request) -> str:
    """The row of the table that a request belongs to."""
    resource = request.match_info.route.resource
    method = "GET" if request.method == "HEAD" else request.method
    return f"{method} {'' if resource is None else resource.canonical}"


def kind_of(request: web.Request) -> str:
    """`streams` or `journals`: what a name in the path is the name of."""
    return route_of(request).partition("/")[2].partition("/")[0]


def need_of(request: web.Request) -> Need:
    """What is nowhere, or not with this method, needs a token: only then is one told so."""
    return NEEDS.get(route_of(request), TOKEN)


def routes_of(app: web.Application) -> list[str]:
    """All that can be asked for."""
    return [
        f"{route.method} {'' if route.resource is None else route.resource.canonical}"
        for route in app.router.routes()
        if route.method != "HEAD"
    ]


def check_table(app: web.Application) -> None:
    """Every route that can be asked for has a row."""
    for route in routes_of(app):
        assert route in NEEDS, f"what does {route} need? say so in http_permissions.py"


def check_need(need: Need, holder: Holder, kind: str, name: str) -> None:
    """NoPermission, unless whoever asks may do this to that name."""
    if need.all_names:
        for permission in need.every:
            if not holder.may_everywhere(permission):
                raise NoPermission(f"the token {holder.name!r} may not do this: it needs {permission}:*")
        return
    for permission in need.every:
        holder.check(permission, kind, name)
    if need.some and not any(holder.may(permission, kind, name) for permission in need.some):
        holder.check(need.some[0], kind, name)
