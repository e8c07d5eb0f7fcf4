"""Errors of the record, named by whose fault they are. No message carries a payload, a secret or a connection's password."""


class LedgerError(Exception):
    """The record could not do what was asked."""


class LedgerBusyError(LedgerError):
    """Our own bound was reached (queue or pool): nothing was written, ask again in a moment (503 + Retry-After)."""


class LedgerUnavailableError(LedgerError):
    """The database refuses for now: locked, full, gone, or in conflict. What was asked may be asked again."""


class LedgerClosedError(LedgerError):
    """The ledger has been closed; nothing was written."""


class ConfigurationError(LedgerError):
    """An operator's mistake; the message names the cure."""


class SchemaTooNewError(ConfigurationError):
    """The database was migrated by a newer version than this one."""


class SchemaTooOldError(ConfigurationError):
    """The database has not been migrated to this version."""


class VaultError(LedgerError):
    """A sealed value could not be opened; the message names table, column and row, never the content."""


class WrongKeyError(ConfigurationError):
    """The master key is not the one that this database was sealed with."""


class SecretMissingError(ConfigurationError):
    """A secret's reference leads nowhere; the message names the cure, never a value."""


class RecordError(LedgerError):
    """A stored row is not what this version writes; the message names row and column."""
