"""Floor 1, judgement: state x evidence -> decision. Pure: no clock, no chance, no I/O."""
