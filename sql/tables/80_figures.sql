-- The lanes' figures as they were last counted, one row: what every worker serves on /metrics. Derived; nothing is decided by it.
CREATE TABLE IF NOT EXISTS symphony.outbox_shared_figures (
    only_row      BOOLEAN DEFAULT true
        CONSTRAINT outbox_shared_figures_are_one_row PRIMARY KEY
        CONSTRAINT outbox_shared_figures_only_row_is_true CHECK (only_row),
    -- One object per lane: as supervisor_outbox_status has it, and what its workers call and write a minute.
    figures       JSONB NOT NULL,
    counted_at    TIMESTAMPTZ NOT NULL,
    -- How often anybody counted.
    counted_times BIGINT NOT NULL
) WITH (fillfactor = 20);
INSERT INTO symphony.outbox_shared_figures (figures, counted_at, counted_times) VALUES ('[]', '-infinity', 0) ON CONFLICT DO NOTHING;
