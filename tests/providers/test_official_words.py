"""The words of shipped contracts against the types of the providers' own packages: a word that is new there is found here."""

import typing
from pathlib import Path
from typing import Any, Final

import stripe
from anthropic.types.messages import MessageBatch, MessageBatchRequestCounts
from openai.types import Batch, BatchError
from openai.types.responses import Response, ResponseStatus
from replicate.prediction import Prediction

from providers.contract import load
from schemas.contract import StatusRule

FOLDER: Final = Path(__file__).parents[2] / "providers" / "contracts"


def status_of(name: str, action: str = "") -> StatusRule:
    rule = load((FOLDER / f"{name}.toml").read_bytes(), name=name).of(action).status
    assert rule is not None
    return rule


def words(rule: StatusRule) -> set[str]:
    return {*rule.readings, *(word for item in rule.outcome for word in item.words)}


def literals(hint: Any) -> set[str]:
    """Return the texts of a Literal, wherever it stands in a Union."""
    if typing.get_origin(hint) is typing.Literal:
        return set(typing.get_args(hint))
    return {text for part in typing.get_args(hint) for text in literals(part)}


def test_the_words_of_openai_are_those_of_its_package() -> None:
    """Batches and responses (B071)."""
    assert words(status_of("openai", "batch")) == literals(Batch.model_fields["status"].annotation)
    assert words(status_of("openai", "response")) == literals(ResponseStatus)


def test_the_places_of_openai_are_fields_of_its_package() -> None:
    """What is read out of an answer is there by the package's own models."""
    times = status_of("openai", "batch").provider_time.removeprefix("body:").split(" || ")
    assert {*times, "id", "status", "errors", "metadata", "output_file_id", "error_file_id"} <= set(Batch.model_fields)
    assert {"code", "message"} <= set(BatchError.model_fields)
    assert {"id", "status", "error", "incomplete_details", "created_at", "metadata"} <= set(Response.model_fields)


def test_the_words_of_replicate_are_those_of_its_package_and_one_more() -> None:
    """`aborted` is told by the provider's page on the life of a prediction; the package's last release is older."""
    for action in ("prediction", "file"):
        assert words(status_of("replicate", action)) == literals(Prediction.__annotations__["status"]) | {"aborted"}


def test_the_words_of_anthropic_are_those_of_its_package() -> None:
    """The one word that hides how it ended is told apart by counts that the package knows."""
    rule = status_of("anthropic")
    assert words(rule) == literals(MessageBatch.model_fields["processing_status"].annotation)
    counts = {item.at.removeprefix("body:request_counts.") for item in rule.outcome}
    assert counts | {"processing"} == set(MessageBatchRequestCounts.model_fields)


def test_the_words_of_stripe_are_those_of_its_package() -> None:
    """A payment's words are a type there; a refund's and a report's stand in its sentences only."""
    assert words(status_of("stripe", "payment_intent")) == literals(stripe.PaymentIntent.__annotations__["status"])
