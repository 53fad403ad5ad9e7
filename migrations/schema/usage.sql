CREATE TABLE usage (
    dataset_id uuid NOT NULL CONSTRAINT fk_usage_dataset_id REFERENCES datasets,
    kind text NOT NULL CONSTRAINT ck_usage_kind CHECK (kind IN ('analyst', 'project', 'stated', 'signed')),
    holder text NOT NULL,
    spent numeric(38,0) DEFAULT '0' NOT NULL,
    reserved numeric(38,0) DEFAULT '0' NOT NULL,
    cap numeric(38,0),
    CONSTRAINT ck_usage_fits CHECK (cap IS NULL OR spent + reserved <= cap),
    CONSTRAINT ck_usage_not_negative CHECK (spent >= 0 AND reserved >= 0),
    CONSTRAINT ck_usage_numbers CHECK ((spent + reserved) < 'NaN'),
    CONSTRAINT pk_usage PRIMARY KEY (dataset_id, kind, holder)
);
