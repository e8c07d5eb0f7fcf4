"""The whole schema: importing it makes `metadata` know every table, whichever module it stands in."""

from typing import Final

import sqlalchemy as sa

from ledger import tables, tables_receiving, tables_sweeping, tables_upkeep

MODULES: Final = (tables, tables_receiving, tables_sweeping, tables_upkeep)
metadata: Final[sa.MetaData] = tables.metadata
