-- Who follows hints at once, one worker a group; the others poll. A row and not an advisory lock: anybody may take an
-- advisory lock, and a stranger's would keep every worker from following hints.
CREATE TABLE IF NOT EXISTS symphony.outbox_hint_leaders (
    hint_group       TEXT COLLATE "C" CONSTRAINT outbox_hint_leaders_are_one_a_group PRIMARY KEY,
    worker_id        TEXT COLLATE "C" NOT NULL,
    lease_expires_at TIMESTAMPTZ NOT NULL
) WITH (fillfactor = 20);
