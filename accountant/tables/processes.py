"""What the owner's triggers ask: which database role is which process, and what of an entry is
private.
"""

from sqlalchemy import CheckConstraint, Column, Table, Text

from accountant.tables.columns import metadata

process_roles = Table(
    "process_roles",
    metadata,
    Column("role", Text, primary_key=True),
    Column("process", Text, nullable=False),
    CheckConstraint(
        "process IN ('service','web','relay','worker','checks','signer')", name="process"
    ),
)

# Where entries of a kind hold private values, which their hashes cover as commitments.
private_places = Table(
    "private_places",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("place", Text, primary_key=True),
)
