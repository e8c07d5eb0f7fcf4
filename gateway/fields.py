"""Bodies, parsed strictly: every fault is named by its field, an unknown field with the nearest known one."""

import difflib
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gateway.problems import ProblemError
from schemas import jsontext
from schemas.api import Body

_MAX_FAULTS = 20

B = TypeVar("B", bound=Body)


def parse(model: type[B], data: bytes, *, optional: bool = False) -> B:
    """Return the body as `model`. `optional`: an empty body means an empty object.

    Raises ProblemError 400 `unreadable_body`, or 422 `invalid_field` with `errors: [{field, message}]`.
    """
    if optional and not data.strip():
        data = b"{}"
    try:
        value = jsontext.parse(data)
    except jsontext.UnreadableJsonError as error:
        raise ProblemError("unreadable_body", str(error)) from None
    if not isinstance(value, dict):
        raise ProblemError("unreadable_body", "the body must be a JSON object")
    return check(model, value)


def check(model: type[B], value: Mapping[str, Any]) -> B:
    """Return `value` as `model`. Raises ProblemError 422 with all faults."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        faults = [_fault(model, item) for item in error.errors(include_url=False, include_input=False)[:_MAX_FAULTS]]
    raise invalid(*((fault["field"], fault["message"]) for fault in faults))


def invalid(*faults: tuple[str, str]) -> ProblemError:
    """Return the 422 that names these fields."""
    errors = [{"field": field, "message": message} for field, message in faults]
    return ProblemError("invalid_field", "; ".join(f"{field}: {message}" for field, message in faults), extra={"errors": errors})


def _fault(model: type[BaseModel], item: ErrorDetails) -> dict[str, str]:
    path = [str(part)[:100] for part in item["loc"]]
    if item["type"] != "extra_forbidden":
        return {"field": ".".join(path), "message": item["msg"]}
    known = list(_fields_at(model, path[:-1]))
    near = difflib.get_close_matches(path[-1], known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    return {"field": ".".join(path), "message": f"unknown field; {hint}"}


def _fields_at(model: type[BaseModel], path: list[str]) -> Mapping[str, Any]:
    """Return the fields of the model that `path` leads to."""
    for part in path:
        annotation = model.model_fields[part].annotation if part in model.model_fields else None
        inner = [annotation, *getattr(annotation, "__args__", ())]
        model = next((kind for kind in inner if isinstance(kind, type) and issubclass(kind, BaseModel)), model)
    return model.model_fields
