"""A contract: how one provider behaves, parsed from its TOML file. `providers/contract.py` makes these values.

A *place* is text of the form `header:NAME`, `query:NAME` or `body:EXPRESSION` (JMESPath). A *template* is text with
`{name}` fields; the fields are `remote_job_id`, `token` (idempotency token), `operation` (our id), `reference` (the
caller's), `trace_id`, `callback_url`, `param.NAME` (a constant of the account), `request.NAME` (a member of the caller's
request that `create.take` or `create.keep` names), `create.NAME` (a value that `create.remember` kept) and in result paths
`result.NAME` (a value found by `[result]`). In a path every field becomes one percent-encoded segment; `{+name}` keeps the
slashes of a value and encodes its segments one by one. `{{` and `}}` are braces.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from schemas.states import Reading

RESEND_MARGIN_SECONDS: Final = 60
"""Before the end of a token's window it is not sent again: longer than a lease, so an attempt that is opened inside also sends inside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureLocation:
    """Where signatures stand and how they are split (catalogue, Signature location and parser)."""

    place: str  # "header" | "json" | "form" | "query" | "headers_numbered"
    name: str
    parser: str = "raw"  # "raw" | "kv" | "prefix" | "list" | "pairs"
    options: Mapping[str, Any] = field(default_factory=dict)  # the parser's own parameters, as in the file


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampRule:
    """Where the signed time is. Tolerances in seconds; None: that side is not checked."""

    place: str  # "header" | "sig" | "json"
    name: str = ""
    unit: str = "s"  # "s" | "ms" | "iso8601" | "rfc1123"
    past_seconds: int | None = 300
    future_seconds: int | None = 300
    earliest: int | None = None  # unix seconds; an earlier time is a mistaken unit, also where any age is allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureScheme:
    """One way in which the provider signs. `primitive` selects the engine's part; the rest are its parameters."""

    id: str
    primitive: str  # "hmac" | "hash" | "asym" | "jwt" | "httpsig" | "token" | "refetch"
    algorithm: str = ""
    key: str = "utf8"  # key transform: utf8 | whsec | whsec_or_utf8 | hex | sha1_utf8 | nfkd | latin1
    messages: tuple[str, ...] = ()
    encoding: str = "hex"
    location: SignatureLocation | None = None
    timestamp: TimestampRule | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # keysource, claims, token, require_headers, body_digest …


@dataclass(frozen=True, slots=True, kw_only=True)
class EventMap:
    """Where a delivery says what it is about. Places; empty means: not said."""

    id: str = ""
    id_signed: bool = True  # is the id inside the signed bytes? else it is a hint and the digest is the dedup key
    body_signed: bool = True  # False: the signature does not bind the body; a delivery is a budgeted read, the body's digest the key
    type: str = ""
    job_id: str = ""
    client_reference: str = ""
    state: str = ""
    time: str = ""
    time_unit: str = "iso8601"
    each: str = ""  # JMESPath to an array: every element is its own event, places are relative to it


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRules:
    """What the provider does with our answers to its deliveries."""

    horizon_seconds: int = 259_200  # how long it repeats a delivery
    success_status: int = 200
    success_body: str | None = None  # None: our JSON answer
    success: tuple[str, ...] = ("2xx",)  # every answer that the provider counts as delivered: "200" or "2xx"
    stops_on: tuple[str, ...] = ()  # answers after which it gives up for good: never sent for a fault of ours
    deadline_seconds: float = 30.0  # a later answer counts as a failure


HandshakeKind = Literal[
    "query_echo", "json_echo", "header_echo", "challenge_hmac", "header_json", "typed_ping", "fetch_url", "options", "probe",
    "secret_capture", "head_ok", "fixed_reply",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Handshake:
    """One request by which a provider makes sure of us before or between deliveries (catalogue, Handshake primitives)."""

    kind: HandshakeKind
    when: Literal["before", "after"] = "after"  # relative to the signature; "after": an unsigned one is refused (B154)
    method: str = ""  # empty: the kind's own
    match: Mapping[str, str] = field(default_factory=dict)  # place -> exact value ("*": any); all must hold
    challenge: str = ""  # place of what is echoed, hashed, fetched or captured
    min_length: int = 1
    max_length: int = 512
    alphabet: Literal["text", "hex"] = "text"  # of a challenge; hex: lower-case digits alone
    also: str = ""  # characters of a challenge besides letters, digits and . _ ~ : + / = -
    verify: str = ""  # place of a word that must equal the account's constant `verify_param`
    verify_param: str = "verify_token"
    header: str = ""  # header of the answer that carries the challenge
    text: str = "{challenge}"  # text/plain answer: {challenge}, {hmac}, {param:NAME}
    json: Mapping[str, str] = field(default_factory=dict)  # instead: an object of such templates
    body: str | None = None  # instead: a fixed text
    media_type: Literal["text/plain", "application/json"] = "text/plain"  # of `body`
    status: int = 200
    alg: str = "sha256"  # of {hmac}
    key: str = "utf8"
    encoding: str = "hex"
    host_re: str = ""  # fetch_url: the whole host must match; https only
    query: Mapping[str, str] = field(default_factory=dict)  # fetch_url: parameters that the URL must have
    allow: tuple[str, ...] = ()  # options: origins that may ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Auth:
    """How the credential is presented: a header whose value is a template with `{credential}`."""

    header: str = "Authorization"
    value: str = "Bearer {credential}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRule:
    """Where our idempotency token goes, how it must look, and what the provider promises about a repeated one."""

    place: Literal["header", "body", "query", "path", "none"] = "none"  # path: `{token}` stands in the path, the job's name is ours
    name: str = ""
    window_seconds: int = 0  # how long a resend of the same token is answered, not executed
    max_length: int = 255
    form: Literal["text", "uuid", "alphanumeric", "hex", "digits"] = "text"
    repeats: Literal["answer", "success", "resume", "conflict"] = "answer"  # what a repeated token brings
    replayed: str = ""  # place where "true" says that the answer is a stored one; empty: the customary headers
    original: str = ""  # conflict: place of the original job's id in the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRule:
    """A second place that decides what a terminal word means. `present` and `absent` None: the next rule is asked."""

    words: tuple[str, ...] = ()  # words of the state for which it is asked
    at: str = ""  # the place that decides
    readings: Mapping[str, Reading] = field(default_factory=dict)  # exact words there
    present: Reading | None = None  # something else stands there
    absent: Reading | None = None  # nothing does: missing, null, false, 0, an empty text, list or object


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRule:
    """The create call and how its answers are told apart (MISSION A4-A6, A10)."""

    action: str = "create"
    method: str = "POST"
    path: str = "/"
    encoding: Literal["json", "form"] = "json"
    headers: Mapping[str, str] = field(default_factory=dict)  # header -> template
    take: tuple[str, ...] = ()  # members of the caller's request that become `{request.NAME}` and are not sent
    keep: tuple[str, ...] = ()  # the same, and they are sent too
    token: TokenRule = field(default_factory=TokenRule)
    add: tuple[tuple[str, str], ...] = ()  # dotted path in the request -> template; the echo that recovery compares
    accepted: tuple[int, ...] = (200, 201, 202)
    not_executed: tuple[int, ...] = (429,)  # statuses that by the provider's word surely did nothing: resent
    rejected: tuple[int, ...] = (400, 401, 402, 403, 404, 405, 406, 410, 411, 413, 414, 415, 422)  # definite refusals
    codes: Mapping[str, Literal["rejected", "not_executed", "ambiguous"]] = field(default_factory=dict)  # error code, before its status
    job_id: str = "body:id"  # a place, or a template as in `{token}`
    job_id_re: str = ""  # pattern whose first group is the id in what stands at `job_id`
    remember: Mapping[str, str] = field(default_factory=dict)  # NAME -> place in the answer, kept as `{create.NAME}`
    origins: tuple[str, ...] = ()  # other origins to which remembered addresses may lead, never with the credential
    answers_status: bool = False  # the create answer is a status answer too (synchronous success, state at once)
    error: str = ""  # place of the provider's explanation of a refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryRule:
    """How an ambiguous create is resolved, in the order of `strategies` (MISSION A6, A7)."""

    strategies: tuple[Literal["resend", "lookup", "list"], ...] = ()
    replay_guaranteed: bool = False  # a resend never executes again: may be used although a cancel is wanted
    visibility_seconds: int = 30  # how long a created job may stay invisible to lookups
    confirmations: int = 2  # "not found" counts only after visibility_seconds and this often
    proves_absence: bool = True  # False: what is not found may be there all the same; then a person is asked at the deadline
    method: str = "GET"
    path: str = ""  # lookup and list: request template
    send: tuple[tuple[str, str], ...] = ()  # dotted path in the body -> template
    items: str = "body:data"  # list: place of the array; lookup: empty means the answer is the job
    match: str = ""  # JMESPath in an item: our echo
    equals: str = "{operation}"  # template that `match` is compared with
    job_id: str = "id"  # JMESPath in an item
    created: str = ""  # JMESPath in an item: its time of creation, in a list that begins with the newest
    paging: Literal["cursor", "link", "header", "page", "offset"] = "cursor"
    next: str = ""  # place of the next page's cursor or link, or of "there is more"; empty: one page
    next_param: str = "after"  # query parameter that carries the cursor, page number or offset
    first_page: int = 1  # number of the first page
    max_pages: int = 20
    not_found: tuple[int, ...] = (404,)  # lookup: statuses that mean "no such job"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRule:
    """The authoritative read: request, where the state is, what its words mean."""

    method: str = "GET"
    path: str = "/{remote_job_id}"
    url: str = ""  # NAME of a remembered address that is used instead of the path, where there is one
    send: tuple[tuple[str, str], ...] = ()  # dotted path in the body -> template
    ok: tuple[int, ...] = (200,)
    http_readings: Mapping[str, Reading] = field(default_factory=dict)  # HTTP status -> what it says by itself
    state: str = "body:status"
    readings: Mapping[str, Reading] = field(default_factory=dict)  # exact words
    outcome: tuple[OutcomeRule, ...] = ()  # for words that hide how it ended, in this order
    job_id: str = ""  # place of the job id in the answer; when given it must be the one we asked for
    match: str = ""  # place of our echo in the answer; another operation's echo is a contradiction
    equals: str = "{operation}"  # template that `match` is compared with
    progress: str = ""
    progress_scale: float = 1.0  # what stands for "all done"
    provider_time: str = ""
    error: str = ""
    effects: Mapping[str, str] = field(default_factory=dict)  # NAME -> place: what an ended job did, paid or left behind
    not_found: tuple[int, ...] = (404, 410)
    not_found_grace_seconds: int = 60  # after the create a 404 means: not visible yet
    poll_seconds: int = 15  # first pause between reads
    max_poll_seconds: int = 600
    stale_seconds: int = 3_600  # longest silence: a read is due at the latest after this
    watch_seconds: int = 0  # how long an end is read on, because it may be reversed
    reversible: tuple[Reading, ...] = (Reading.SUCCEEDED,)  # the ends that may be


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRule:
    """The cancel call. Its answers never end an operation; only reads do."""

    method: str = "POST"
    path: str = "/{remote_job_id}/cancel"
    url: str = ""  # NAME of a remembered address that is used instead of the path, where there is one
    send: tuple[tuple[str, str], ...] = ()  # dotted path in the body -> template
    encoding: Literal["json", "form"] = "json"
    accepted: tuple[int, ...] = (200, 202, 204)
    refused: tuple[int, ...] = (400, 403, 405, 409, 422)
    not_executed: tuple[int, ...] = (429,)
    absent_after_cancel: bool = False  # 404 on a read after our cancel means cancelled
    destructive: bool = False  # the call also destroys a finished result: read immediately before it
    resend_seconds: int = 60  # pause before an unanswered cancel is sent again, after a read


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemsRule:
    """Where a record of a result file says which item it is and how that item ended (MISSION F5). JMESPath, or CSV columns."""

    id: str = ""  # the item's name
    outcome: str = ""  # the word, or the HTTP status, that says how it ended
    ok: tuple[str, ...] = ()  # values of `outcome` that mean success; "2xx" stands for a whole hundred
    error: str = ""  # a value here (neither null nor empty) means failure
    failed: bool = False  # every record of this file is an item that failed
    value: str = ""  # what the caller's JSON Schema is about; empty: the whole record


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFile:
    """One file of the result. `url` is a place in the status answer, `path` a template on the provider's origin."""

    role: str = "output"
    url: str = ""
    path: str = ""
    optional: bool = False
    media_type: str = ""
    bytes: str = ""  # place of the declared size in the status answer
    sha256: str = ""  # place of the declared SHA-256 (hex) in the status answer
    authenticated: bool = False  # a URL on another origin never gets the credential, whatever stands here
    format: Literal["opaque", "jsonl", "csv", "json"] = "opaque"  # how records stand in it; opaque: it is not looked into
    compression: Literal["none", "gzip"] = "none"  # of the file itself: kept as it came, inflated only to be looked into
    records: str = ""  # json: dotted names that lead to the array of records; empty: the document is the array
    items: ItemsRule | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRule:
    """What a finished job leaves behind. No rule: the status answer itself is the result."""

    files: tuple[ResultFile, ...] = ()
    readings: tuple[Reading, ...] = (Reading.SUCCEEDED,)  # endings that may have a result (partial ones too)
    values: Mapping[str, str] = field(default_factory=dict)  # NAME -> place in the status answer, for {result.NAME}
    retention_seconds: int = 86_400  # how long the provider keeps it
    one_shot: bool = False  # reading it consumes it
    origins: tuple[str, ...] = ()  # other origins where results may lie
    max_bytes: int = 1_073_741_824
    max_inflated_bytes: int = 4_294_967_296  # of a compressed file, while it is looked into
    max_record_bytes: int = 8_388_608  # a longer record is an unreadable one
    total: str = ""  # place in the status answer of the number of items that there must be
    failed_items: Literal["accept", "refuse"] = "accept"  # refuse: one failed item makes the result invalid
    missing_items: Literal["accept", "refuse"] = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRule:
    """The provider's list of jobs, walked now and then to compare it with the record (MISSION C9). Read only."""

    path: str = ""  # without fields: it is one for the whole account
    actions: tuple[str, ...] = ()  # kinds of operations whose jobs it lists; none: all, where there is one
    items: str = "body:data"  # place of the array
    job_id: str = "id"  # JMESPath in an item
    reference: str = ""  # JMESPath in an item: our operation's id or token, where create puts it
    time: str = ""  # JMESPath in an item: when the job was made
    newest_first: bool = False  # a walk may stop at what an earlier one has seen
    next: str = ""  # place of the next page's cursor; empty: one page
    next_param: str = "after"  # query parameter that carries the cursor
    max_pages: int = 200  # of one walk
    overlap_seconds: int = 3_600  # how far a walk looks back behind the newest job that the last one saw
    grace_seconds: int = 600  # a job or a record younger than this may still find its other half


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The provider's and our own bounds."""

    concurrency: int = 16
    rate_per_second: float = 50.0
    connect_seconds: float = 5.0
    total_seconds: float = 30.0
    answer_bytes: int = 1_048_576
    delivery_bytes: int = 1_048_576
    delivery_seconds: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Default clocks in seconds, used where the caller gives none (MISSION A9)."""

    create_seconds: int = 900
    result_seconds: int = 86_400
    cancel_seconds: int = 900
    collect_seconds: int = 3_600
    final_read_seconds: int = 60  # final_read_window: how long after a deadline a read is still tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """Everything that the engine knows about a provider. `digest` is the SHA-256 of the file's bytes (hex)."""

    name: str
    digest: str
    title: str = ""
    origin: str = ""
    docs: str = ""
    unconfirmed: tuple[str, ...] = ()  # keys whose values are general knowledge, not read in a document
    signatures: tuple[SignatureScheme, ...] = ()
    event: EventMap = field(default_factory=EventMap)
    retry: RetryRules = field(default_factory=RetryRules)
    handshakes: tuple[Handshake, ...] = ()
    auth: Auth = field(default_factory=Auth)
    headers: Mapping[str, str] = field(default_factory=dict)  # on every call to the origin, as they are
    trace_header: str = ""
    create: CreateRule | None = None
    recovery: RecoveryRule = field(default_factory=RecoveryRule)
    status: StatusRule | None = None
    cancel: CancelRule | None = None
    result: ResultRule | None = None
    list: ListRule | None = None
    limits: Limits = field(default_factory=Limits)
    deadlines: Deadlines = field(default_factory=Deadlines)
    samples: tuple[Mapping[str, Any], ...] = ()
    actions: Mapping[str, "Contract"] = field(default_factory=dict)  # NAME -> the contract as that action has it
    params: Mapping[str, str] = field(default_factory=dict)  # the account's constants: not in the file, put in by the configuration

    def of(self, action: str) -> "Contract":
        """Return the contract as `action` has it. A contract without `[actions]` has one, whatever it is called."""
        return self.actions.get(action, self)

    def kinds(self) -> Mapping[str, "Contract"]:
        """Return what an operation can be: action -> the contract as it has it. Receive-only: none."""
        if self.actions:
            return self.actions
        return {} if self.status is None else {self.create.action if self.create else "create": self}

    def receiving(self) -> "Contract":
        """Return the contract of an account that only receives deliveries: without jobs, as a contract without `[status]`."""
        return replace(self, create=None, recovery=RecoveryRule(), status=None, cancel=None, result=None, list=None, actions={})

    def with_params(self, params: Mapping[str, str]) -> "Contract":
        """Return the contract of an account with these constants."""
        actions = {name: replace(action, params=params) for name, action in self.actions.items()}
        return replace(self, params=params, actions=actions)
