-- What each worker sees of the rails and buses it serves, as it last said. Liveness, not truth: nothing is decided by it but
-- what a person is shown. A row that is not said again for a while is a worker that is gone.
CREATE TABLE IF NOT EXISTS symphony.outbox_destinations (
    worker_id       TEXT COLLATE "C" NOT NULL,
    lane            TEXT COLLATE "C" NOT NULL
        CONSTRAINT outbox_destinations_are_of_a_lane CHECK (lane IN ('payments', 'events', 'triggers')),
    -- A rail, a topic as 'bus/topic', or what runs scripts.
    name            TEXT COLLATE "C" NOT NULL,
    breaker         TEXT COLLATE "C" NOT NULL
        CONSTRAINT outbox_destinations_breaker_has_three_states CHECK (breaker IN ('CLOSED', 'OPEN', 'HALF_OPEN')),
    -- Since when it is left alone; NULL while it is not.
    open_since      TIMESTAMPTZ,
    next_probe_at   TIMESTAMPTZ,
    -- Troubles in a row, and the last one's code.
    troubles        INT NOT NULL,
    last_trouble    TEXT,
    last_trouble_at TIMESTAMPTZ,
    -- Since the worker's report before: calls, how long these took on average, and the length of that time.
    calls           INT NOT NULL,
    latency_ms      INT,
    window_ms       INT NOT NULL,
    -- Outcomes of the whole lane that the worker wrote in that time: the same on each of its rows.
    dispatched      INT NOT NULL DEFAULT 0,
    retryable       INT NOT NULL DEFAULT 0,
    failed          INT NOT NULL DEFAULT 0,
    -- The limit it keeps; NULL for none.
    rate_per_second INT,
    reported_at     TIMESTAMPTZ NOT NULL,
    CONSTRAINT outbox_destinations_are_named_once_a_worker PRIMARY KEY (worker_id, lane, name)
) WITH (fillfactor = 50);

-- When a person last said that a rail or a bus shall be tried again at once. Workers compare it with what they saw before.
CREATE TABLE IF NOT EXISTS symphony.outbox_destination_resets (
    lane     TEXT COLLATE "C" NOT NULL,
    name     TEXT COLLATE "C" NOT NULL,
    reset_at TIMESTAMPTZ NOT NULL,
    CONSTRAINT outbox_destination_resets_are_one_each PRIMARY KEY (lane, name)
);
