"""The OpenAPI 3.1 document, made of the table of routes and of the types that validate."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from chary import __version__
from chary.service import wire
from chary.service.routes import ROUTES, Route

# What each refusal means; which of them a route can give follows from what it takes.
REFUSALS = {
    400: "The body is not JSON, or the query not well formed.",
    401: "There is no token, or it is not valid.",
    403: "The token does not have the scope of this path.",
    404: "There is no such episode, step or token.",
    405: "The path does not take this method.",
    409: "The request contradicts what is recorded.",
    410: "The episode has ended.",
    413: "The body is too large.",
    415: "The body is not of the type application/json.",
    422: "The body, query or path is not of the right type, or out of range.",
    429: "Too many episodes are open.",
    500: "The service failed.",
    503: "The service is stopping, or has too much to do.",
}
_OFTEN = (405, 500)
_GUARDED = (401, 403, 503)
_WITH_BODY = (400, 413, 415, 422)
_OF_THE_ENGINE = (404, 409, 410, 422, 429)
_REFERENCE = "#/components/schemas/{name}"


@cache
def document() -> bytes:
    """Return the document as JSON."""
    return msgspec.json.encode(description())


def description() -> dict[str, Any]:
    """Return the document as a dictionary."""
    kinds = [wire.Problem]
    for route in ROUTES:
        kinds += [
            kind for kind in (route.takes, *route.replies.values()) if kind is not None and kind is not str
        ]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    # msgspec has no union of two structs without a tag.
    rows = [{"$ref": _REFERENCE.format(name=name)} for name in ("Decided", "Problem")]
    components["DecidedMany"]["properties"]["decisions"]["items"] = {"anyOf": rows}
    schema_of = {id(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "chary",
            "version": __version__,
            "description": "Decisions under a budget per episode, durable before they are answered.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "bearerFormat": "chary_<id>_<secret>"}
            },
        },
    }


def refusals(route: Route) -> list[int]:
    """Return the statuses with which a route can refuse."""
    statuses = {*_OFTEN}
    if route.scope is not None:
        statuses |= {*_GUARDED}
    if route.takes is not None:
        statuses |= {*_WITH_BODY}
    if route.query is not None or "{" in route.path:
        statuses |= {400, 422}
    if route.view is not None or route.write is not None:
        statuses |= {*_OF_THE_ENGINE}
    if route.path == "/readyz":
        statuses.add(503)
    return sorted(statuses)


def _operation(route: Route, schema_of: Mapping[int, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": re.sub(r"[^a-z0-9]+", "_", f"{route.method} {route.path}".lower()).strip("_"),
        "summary": route.summary,
        "security": [] if route.scope is None else [{"token": [route.scope]}],
        "parameters": _parameters(route),
        "responses": {},
    }
    if route.takes is not None:
        required = any(field.required for field in msgspec.structs.fields(route.takes))
        operation["requestBody"] = {"required": required, "content": _content(schema_of[id(route.takes)])}
    for status, kind in route.replies.items():
        if kind is str:
            content = {"text/plain": {"schema": {"type": "string"}}}
        else:
            content = _content(schema_of[id(kind)])
        operation["responses"][str(status)] = {"description": route.summary + ".", "content": content}
    problem = _content({"$ref": _REFERENCE.format(name="Problem")})
    for status in refusals(route):
        operation["responses"].setdefault(str(status), {"description": REFUSALS[status], "content": problem})
    return operation


def _content(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _parameters(route: Route) -> list[dict[str, Any]]:
    """Return what stands in the path and after the question mark."""
    found = []
    for name in re.findall(r"{(\w+)}", route.path):
        kind = wire.Step if name == "t" else wire.Name
        schema, _ = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
        found.append({"name": name, "in": "path", "required": True, "schema": schema[0]})
    if route.query is not None:
        for field in msgspec.structs.fields(route.query):
            schema, _ = msgspec.json.schema_components([field.type], ref_template=_REFERENCE)
            found.append(
                {"name": field.encode_name, "in": "query", "required": field.required, "schema": schema[0]}
            )
    return found
