"""Files with secrets that other users of the machine can read: the `file:` references of a configuration, and the file that names them."""

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from schemas.settings import Settings

_OTHERS: Final = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH
_FILE: Final = "file:"


def exposed(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Yield (provider, what is wrong, the cure) for each file of a secret that others can read or change. No content is looked at."""
    for name, provider in settings.providers.items():
        references = (*provider.secrets, provider.credential or "", *provider.params.values())
        for text in dict.fromkeys(references):
            if not text.startswith(_FILE):
                continue
            place = Path(text.removeprefix(_FILE))
            try:
                mode = stat.S_IMODE(place.stat().st_mode)
            except (OSError, ValueError):
                continue  # a file that is missing is told by whoever needs it
            if mode & _OTHERS:
                yield name, f"{place} holds a secret and may be used by others (mode {mode:04o})", f"chmod 600 {place}"
