"""The diagram of the states, drawn from the table: Mermaid text for docs/states.md."""

from lifecycle.arrows import ARROWS
from lifecycle.questions import ANSWERS, ASKS
from schemas.states import ACTIVE, ADMISSIBLE, FINAL, PARKED, State

_KINDS = (("active", ACTIVE), ("parked", PARKED), ("final", FINAL))


def mermaid() -> str:
    """Return a Mermaid state diagram of every arrow."""
    lines = [
        "stateDiagram-v2",
        "    [*] --> awaiting_approval",
        "    [*] --> create_pending",
        "    [*] --> awaiting_outcome",
        "    [*] --> accepted",
    ]
    lines += [f"    {state} --> {target}" for state, targets in ARROWS.items() for target in sorted(targets)]
    lines += [f"    {state} --> [*]" for state in State if state in FINAL]
    for name, states in _KINDS:
        lines.append(f"    class {','.join(state for state in State if state in states)} {name}")
    lines += [
        "    classDef active fill:#e8f1ff",
        "    classDef parked fill:#fff3d6",
        "    classDef final fill:#e7f6e7",
    ]
    return "\n".join(lines) + "\n"


def arrows_table() -> str:
    """Return the arrows as a Markdown table."""
    rows = ["| from | to |", "|---|---|"]
    rows += [
        f"| `{state}` | {', '.join(f'`{target}`' for target in sorted(targets)) or 'never changes'} |" for state, targets in ARROWS.items()
    ]
    return "\n".join(rows) + "\n"


def questions_table() -> str:
    """Return the questions as a Markdown table."""
    asked_in = {question: state for state, question in ASKS.items()}
    rows = ["| question | asked in | answers |", "|---|---|---|"]
    for question, answers in ANSWERS.items():
        state = asked_in.get(question)
        rows.append(f"| `{question}` | {f'`{state}`' if state else 'a final state'} | {', '.join(f'`{answer}`' for answer in answers)} |")
    return "\n".join(rows) + "\n"


def causes_table() -> str:
    """Return which causes may end an operation, as a Markdown table."""
    rows = ["| final state | may be caused by |", "|---|---|"]
    rows += [f"| `{state}` | {', '.join(f'`{cause}`' for cause in sorted(causes))} |" for state, causes in ADMISSIBLE.items()]
    return "\n".join(rows) + "\n"
