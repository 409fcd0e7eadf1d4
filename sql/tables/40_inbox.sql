-- The inbox: which consumer has applied which event. Written in the consumer's own transaction, beside its effects, so
-- that a repeated delivery finds the row and does nothing. Rows are retired by age; nothing else removes them.
CREATE TABLE IF NOT EXISTS symphony.event_inbox (
    consumer     TEXT COLLATE "C" NOT NULL,
    event_id     UUID        NOT NULL,
    processed_at TIMESTAMPTZ NOT NULL,
    CONSTRAINT event_inbox_applies_an_event_once PRIMARY KEY (consumer, event_id)
);
-- Rows arrive in time order, so this costs an insert at the right edge; without it retention would read everything.
CREATE INDEX IF NOT EXISTS event_inbox_by_age ON symphony.event_inbox (consumer, processed_at);

-- The same, by a key of the consumer's own domain (such as transfer and type): two events that mean one thing are
-- applied once. Apart, because most consumers have none and should not pay for it.
CREATE TABLE IF NOT EXISTS symphony.event_inbox_keys (
    consumer     TEXT COLLATE "C" NOT NULL,
    dedupe_key   TEXT COLLATE "C" NOT NULL,
    event_id     UUID        NOT NULL,
    processed_at TIMESTAMPTZ NOT NULL,
    CONSTRAINT event_inbox_keys_apply_a_meaning_once PRIMARY KEY (consumer, dedupe_key)
);
CREATE INDEX IF NOT EXISTS event_inbox_keys_by_age ON symphony.event_inbox_keys (consumer, processed_at);
