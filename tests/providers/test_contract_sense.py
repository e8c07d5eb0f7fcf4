"""What could be loaded and would never work, or would be paid twice, is refused with its cure."""

import pytest

from providers.contract import ContractError, load

CREATE = 'name = "x"\norigin = "https://api.x.example"\n[create]\npath = "/jobs"\njob_id = "body:id"\n'
STATUS = '[status]\npath = "/jobs/{remote_job_id}"\nstate = "body:s"\nreadings = { done = "succeeded" }\n'
LIST = '[recovery]\nstrategies = ["list"]\npath = "/jobs"\nmatch = "meta.op"\n'
LOOKUP = '[recovery]\nstrategies = ["lookup"]\npath = "/jobs?ref={reference}"\nmatch = "ref"\n'


def faults_of(text: str) -> dict[str, str]:
    try:
        load(text.encode())
    except ContractError as error:
        return {fault.key: fault.message for fault in error.faults}
    return {}


@pytest.mark.parametrize(
    ("create", "recovery", "unsent"),
    [
        ("", LIST, "{operation}"),
        ("", LIST + "proves_absence = false\n", "{operation}"),
        ('add = { "meta.op" = "{trace_id}" }\n', LIST, "{operation}"),
        ('add = { "meta.op" = "{operation}" }\n', LIST, ""),
        ('headers = { X-Ours = "{operation}" }\n', LIST, ""),
        ("", LIST + 'equals = "{token}"\n', "{token}"),
        ('token = { in = "header", name = "K" }\n', LIST + 'equals = "{token}"\n', ""),
        ("", LOOKUP + 'equals = "{reference}"\n', "{reference}"),
        ('add = { ref = "{reference}" }\n', LOOKUP + 'equals = "{reference}"\n', ""),
        ('keep = ["name"]\n', LOOKUP + 'equals = "{request.name}"\n', ""),
    ],
)
def test_an_echo_that_is_never_sent_is_refused(create: str, recovery: str, unsent: str) -> None:
    """A6, A7: no job would carry it, each would be proven absent, and the create would be sent and paid again."""
    faults = faults_of(CREATE + create + recovery + STATUS)
    assert set(faults) == ({"recovery.match"} if unsent else set())
    assert all(f"compared with {unsent}, which [create] does not send" in told for told in faults.values())


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (STATUS.replace("/{remote_job_id}", ""), "status.path"),
        (STATUS.replace("/{remote_job_id}", "/{param.account}"), "status.path"),
        (STATUS + '[cancel]\npath = "/cancel"\n', "cancel.path"),
        (STATUS + '[result]\nfiles = [{ path = "/file" }]\n', "result.files[0].path"),
        (STATUS + '[result]\nfiles = [{ url = "body:a" }, { url = "body:b" }]\n', "result.files[1].role"),
        (STATUS + "[result]\none_shot = true\n", "result.one_shot"),
        (STATUS + '[result]\nretention_seconds = 0\nfiles = [{ url = "body:a" }]\n', "result.retention_seconds"),
        (STATUS + '[result]\norigins = ["http://cdn.x.example"]\nfiles = [{ url = "body:a" }]\n', "result.origins"),
        (STATUS.replace("succeeded", "running"), "status.readings"),
        (STATUS + "[deadlines]\nresult_seconds = 0\n", "deadlines.result_seconds"),
        (STATUS + "[limits]\nconcurrency = 0\n", "limits.concurrency"),
        (STATUS + "[limits]\nrate_per_second = 0\n", "limits.rate_per_second"),
    ],
)
def test_what_can_never_work_is_refused(text: str, key: str) -> None:
    """A7: one job's answer is never taken for another's, and no operation waits for what cannot come."""
    assert set(faults_of(CREATE + text)) == {key}


@pytest.mark.parametrize(
    "text",
    [
        STATUS.replace('"/jobs/{remote_job_id}"', '"/status"\nmethod = "POST"\nsend = { id = "{remote_job_id}" }'),
        STATUS.replace("{remote_job_id}", "{token}"),
        STATUS.replace('readings = { done = "succeeded" }', '[[status.outcome]]\nwords = ["end"]\nat = "body:error"\nabsent = "succeeded"'),
        STATUS + '[result]\nvalues = { id = "body:f" }\nfiles = [{ path = "/files/{result.id}" }, { url = "body:u", role = "log" }]\n',
    ],
)
def test_a_job_may_be_named_in_several_ways(text: str) -> None:
    """A2: by its id, by the name that we chose, in the body, or by what the status answer tells."""
    assert faults_of(CREATE + text) == {}
