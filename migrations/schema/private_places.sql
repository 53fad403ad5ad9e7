-- Where entries of a kind hold private values (core.ledger.commitments); stated anew after every migration.
CREATE TABLE private_places (
    kind text NOT NULL,
    place text NOT NULL,
    CONSTRAINT pk_private_places PRIMARY KEY (kind, place)
);
