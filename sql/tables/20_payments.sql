-- The payment lane's tables.
--
-- Three shapes, measured against one wide table (docs/PERFORMANCE.md): the instruction is written once and
-- never again, the pending row is small and hot, the ledger row is narrow and permanent. There are no
-- foreign keys between them: the functions are the only writers, `symphony audit` proves the relation, and
-- a foreign key costs about 10 microseconds an item.
--
-- Identifiers are COLLATE "C": equality and order by byte, the same on every machine, and twice as fast in
-- an index as a locale's rules.

-- One gapless stream of numbers per participant. The row lock is held to the producer's commit: that is
-- what makes a rolled-back enqueue give its number back, and what makes number order commit order.
CREATE TABLE IF NOT EXISTS symphony.participant_outbox_sequences (
    participant_id   TEXT COLLATE "C" CONSTRAINT participant_outbox_sequences_one_stream_per_participant PRIMARY KEY,
    next_sequence_id BIGINT NOT NULL
        CONSTRAINT participant_outbox_sequences_start_at_one CHECK (next_sequence_id >= 1)
) WITH (fillfactor = 50);

-- What was asked. Written once; idempotency and continuity hold forever because this table does.
CREATE TABLE IF NOT EXISTS symphony.payment_outbox_instructions (
    outbox_id       UUID CONSTRAINT payment_outbox_instructions_are_named_once PRIMARY KEY DEFAULT uuidv7(),
    instruction_id  TEXT COLLATE "C" NOT NULL,
    idempotency_key TEXT COLLATE "C" NOT NULL,
    participant_id  TEXT COLLATE "C" NOT NULL,
    sequence_id     BIGINT NOT NULL,
    rail_type       TEXT COLLATE "C" NOT NULL,
    payload         JSONB NOT NULL
        CONSTRAINT payment_outbox_instructions_carry_an_object CHECK (jsonb_typeof(payload) = 'object'),
    -- SHA-256 of the request, so that a reused key is recognised even once retention has dropped payloads.
    request_hash    BYTEA NOT NULL,
    created_at      TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    redrive_of      UUID,
    redrive_no      INT NOT NULL DEFAULT 0,
    traceparent     TEXT COLLATE "C",
    CONSTRAINT payment_outbox_instructions_are_idempotent
        UNIQUE (instruction_id, idempotency_key, redrive_no),
    CONSTRAINT payment_outbox_instructions_number_each_stream_once
        UNIQUE (participant_id, sequence_id),
    CONSTRAINT payment_outbox_instructions_redrives_name_their_origin
        CHECK ((redrive_of IS NULL) = (redrive_no = 0))
);
-- A failed item is redriven at most once; its redrive may fail and be redriven in turn.
CREATE UNIQUE INDEX IF NOT EXISTS payment_outbox_instructions_redriven_once
    ON symphony.payment_outbox_instructions (redrive_of) WHERE redrive_of IS NOT NULL;

-- The hot queue and the lease record. A claim changes no indexed column, so it is a HOT update: the lease
-- columns are in no index on purpose (13 -> 9 ms per 500 claims), and fillfactor leaves it the room.
CREATE TABLE IF NOT EXISTS symphony.payment_outbox_pending (
    outbox_id         UUID CONSTRAINT payment_outbox_pending_holds_an_item_once PRIMARY KEY,
    instruction_id    TEXT COLLATE "C" NOT NULL,
    participant_id    TEXT COLLATE "C" NOT NULL,
    sequence_id       BIGINT NOT NULL,
    idempotency_key   TEXT COLLATE "C" NOT NULL,
    rail_type         TEXT COLLATE "C" NOT NULL,
    attempt_count     INT NOT NULL DEFAULT 0
        CONSTRAINT payment_outbox_pending_attempt_count_is_bounded CHECK (attempt_count BETWEEN 0 AND 20),
    next_attempt_at   TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    created_at        TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    claimed_by        TEXT COLLATE "C",
    lease_token       UUID,
    lease_expires_at  TIMESTAMPTZ,
    claimed_at        TIMESTAMPTZ,
    -- NULL: claimable when due. Otherwise out of the claimable index, for the reason named.
    hold              symphony.outbox_hold,
    -- The place in its FIFO lane (participant, rail). NULL: unordered. 0: an operator skipped it, it has
    -- left the lane for good. Otherwise its sequence number, or that of the failed item it redrives.
    lane_position     BIGINT CONSTRAINT payment_outbox_pending_lane_position_is_a_place CHECK (lane_position >= 0),
    -- The money may have moved already: ask the rail before sending again.
    must_inquire      BOOLEAN NOT NULL DEFAULT false,
    -- Set, and committed, before the first byte leaves, for rails that can neither deduplicate nor be asked.
    sending_marked_at TIMESTAMPTZ,
    -- The fingerprint of where its worker sends it; once the outcome is unknown, of where it may have been sent.
    endpoint          TEXT COLLATE "C",
    -- A person has said, then, that it was not executed: no loss of a database before that makes it doubtful again.
    cleared_at        TIMESTAMPTZ,
    -- Its pause is only because the rail was in trouble: from here on it may be tried once the rail is well again. NULL: it
    -- waits for its own sake until next_attempt_at.
    hasten_from       TIMESTAMPTZ,
    -- A person wants to know what became of it: the rail is asked, and it is parked again rather than sent.
    only_ask          BOOLEAN NOT NULL DEFAULT false,
    CONSTRAINT payment_outbox_pending_lease_is_whole
        CHECK ((claimed_by IS NULL) = (lease_token IS NULL) AND (lease_token IS NULL) = (lease_expires_at IS NULL)),
    CONSTRAINT payment_outbox_pending_held_items_are_not_leased
        CHECK (hold IS NULL OR lease_token IS NULL),
    CONSTRAINT payment_outbox_pending_only_the_leased_are_sending
        CHECK (sending_marked_at IS NULL OR lease_token IS NOT NULL)
) WITH (
    fillfactor = 40,
    -- Dead rows are what slows a queue, not depth: vacuum by count, not by share of the backlog.
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_scale_factor = 0.5
);
-- Claim order within a rail. The rail leads, so that a paused rail, or one this worker does not serve,
-- costs nothing however deep it is. Items of one batch share both times; their ids are numbered in its order.
CREATE INDEX IF NOT EXISTS payment_outbox_pending_claimable
    ON symphony.payment_outbox_pending (rail_type, next_attempt_at, created_at, outbox_id) WHERE hold IS NULL;
-- The order of a FIFO lane; holds rows of FIFO rails only, so other rails do not pay for it.
CREATE UNIQUE INDEX IF NOT EXISTS payment_outbox_pending_fifo_lane
    ON symphony.payment_outbox_pending (participant_id, rail_type, lane_position) WHERE lane_position > 0;

-- What may have been sent and where, for doctor and for workers that start. A claim changes neither column.
CREATE INDEX IF NOT EXISTS payment_outbox_pending_unknown
    ON symphony.payment_outbox_pending (rail_type) WHERE must_inquire;
-- What waits for a person, among a million that wait for a worker; costs nothing until something is parked.
CREATE INDEX IF NOT EXISTS payment_outbox_pending_parked
    ON symphony.payment_outbox_pending (created_at, outbox_id) WHERE hold = 'PARKED';

-- The ledger: one row per outcome, the identifying columns copied so that an auditor reads it without joins.
CREATE TABLE IF NOT EXISTS symphony.payment_outbox_attempts (
    attempt_id      UUID NOT NULL DEFAULT gen_random_uuid(),
    outbox_id       UUID NOT NULL,
    instruction_id  TEXT COLLATE "C" NOT NULL,
    participant_id  TEXT COLLATE "C" NOT NULL,
    sequence_id     BIGINT NOT NULL,
    idempotency_key TEXT COLLATE "C" NOT NULL,
    rail_type       TEXT COLLATE "C" NOT NULL,
    attempt_no      INT NOT NULL CONSTRAINT payment_outbox_attempts_count_from_one CHECK (attempt_no >= 1),
    state           symphony.outbox_attempt_state NOT NULL
        CONSTRAINT payment_outbox_attempts_record_outcomes_only CHECK (state <> 'DISPATCHING'),
    -- With RETRYABLE only: the money may have moved, nobody knows yet.
    outcome_unknown BOOLEAN NOT NULL DEFAULT false,
    -- False where the rail was busy or away, or has not settled yet: it does not count towards the ceiling of 20.
    spends_attempt  BOOLEAN NOT NULL DEFAULT true,
    -- The rail was asked and nothing was sent: the settle delay does not start again.
    asked_only      BOOLEAN NOT NULL DEFAULT false,
    claimed_at      TIMESTAMPTZ,
    completed_at    TIMESTAMPTZ NOT NULL,
    rail_reference  TEXT,
    rail_code       TEXT,
    error_code      TEXT,
    error_message   TEXT,
    latency_ms      INT,
    worker_id       TEXT NOT NULL,
    -- NULL only where a person, not a worker, settled the item.
    lease_token     UUID,
    -- Where it was sent, or asked about: payment_outbox_endpoints has the words.
    endpoint        TEXT COLLATE "C",
    created_at      TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT payment_outbox_attempts_number_each_outcome_once PRIMARY KEY (outbox_id, attempt_no),
    CONSTRAINT payment_outbox_attempts_only_retryable_is_unknown
        CHECK (NOT outcome_unknown OR state = 'RETRYABLE'),
    CONSTRAINT payment_outbox_attempts_only_what_was_not_executed_is_free
        CHECK (spends_attempt OR state IN ('RETRYABLE', 'FAILED'))
);
CREATE UNIQUE INDEX IF NOT EXISTS payment_outbox_attempts_one_terminal_per_outbox
    ON symphony.payment_outbox_attempts (outbox_id) WHERE state IN ('DISPATCHED', 'FAILED');
COMMENT ON INDEX symphony.payment_outbox_attempts_one_terminal_per_outbox IS
    'Invariant: an item has at most one terminal outcome. The lease prevents a second; this makes it impossible.';
-- The dead letters; costs nothing until something fails.
CREATE INDEX IF NOT EXISTS payment_outbox_attempts_failed
    ON symphony.payment_outbox_attempts (completed_at) WHERE state = 'FAILED';

-- The narrative beside the ledger: what happened to an item other than an outcome, and who did it.
CREATE TABLE IF NOT EXISTS symphony.payment_outbox_events (
    event_no     BIGINT GENERATED ALWAYS AS IDENTITY
        CONSTRAINT payment_outbox_events_are_numbered PRIMARY KEY,
    event_type   TEXT COLLATE "C" NOT NULL
        CONSTRAINT payment_outbox_events_have_a_known_type CHECK (event_type IN (
            'LEASE_CLAIMED', 'ATTEMPT_COMPLETED', 'LEASE_EXPIRED_REPAIRED', 'TERMINAL_BLOCKED', 'LATE_OUTCOME',
            'PARKED', 'RELEASED', 'RESOLVED', 'REDRIVEN', 'SKIPPED', 'PAUSED', 'RESUMED', 'CONFIGURED',
            'SERVER_CHANGED', 'SERVER_ACCEPTED', 'INCIDENT_CLOSED', 'INQUIRY_ASKED', 'DEAD_LETTER_CLOSED', 'BREAKER_RESET',
            'APPROVAL_REQUESTED', 'APPROVAL_GIVEN', 'APPROVAL_REFUSED', 'APPROVAL_WITHDRAWN')),
    outbox_id    UUID,
    worker_id    TEXT,
    -- The person named by the caller, and the database login that made the call: both, always.
    actor        TEXT,
    approver     TEXT,
    session_role TEXT NOT NULL DEFAULT session_user,
    reason       TEXT,
    details      JSONB NOT NULL DEFAULT '{}',
    created_at   TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX IF NOT EXISTS payment_outbox_events_by_item
    ON symphony.payment_outbox_events (outbox_id, event_no) WHERE outbox_id IS NOT NULL;
-- What may contradict the ledger; costs nothing until a worker is late.
CREATE INDEX IF NOT EXISTS payment_outbox_events_late_outcomes
    ON symphony.payment_outbox_events (event_no) WHERE event_type = 'LATE_OUTCOME';
-- The audit: what people did, among what workers did; costs nothing until somebody acts.
CREATE INDEX IF NOT EXISTS payment_outbox_events_of_people
    ON symphony.payment_outbox_events (event_no) WHERE actor IS NOT NULL;
-- Pauses, resumes and settings, among many that are about items.
CREATE INDEX IF NOT EXISTS payment_outbox_events_of_switches
    ON symphony.payment_outbox_events (event_no) WHERE outbox_id IS NULL;
-- Dead letters that a person has closed.
CREATE INDEX IF NOT EXISTS payment_outbox_events_closed_dead_letters
    ON symphony.payment_outbox_events (outbox_id) WHERE event_type = 'DEAD_LETTER_CLOSED';

-- What the database must know of a rail. A rail without a row is unordered and running; the first full look
-- of a claim that meets a new rail writes its row.
CREATE TABLE IF NOT EXISTS symphony.payment_outbox_rails (
    rail_type     TEXT COLLATE "C" CONSTRAINT payment_outbox_rails_are_named_once PRIMARY KEY,
    fifo          BOOLEAN NOT NULL DEFAULT false,
    on_failed     TEXT NOT NULL DEFAULT 'block'
        CONSTRAINT payment_outbox_rails_block_or_continue CHECK (on_failed IN ('block', 'continue')),
    paused        BOOLEAN NOT NULL DEFAULT false,
    -- The rail can neither deduplicate nor be asked: workers call mark_outbox_sending before they send.
    marks_sending BOOLEAN NOT NULL DEFAULT false,
    -- How long an item is tried on a rail that is busy or away.
    give_up_after_seconds INT NOT NULL DEFAULT 86400
        CONSTRAINT payment_outbox_rails_give_up_within_a_year CHECK (give_up_after_seconds BETWEEN 1 AND 31536000),
    updated_at    TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);

-- What the fingerprints in pending rows and in the ledger stand for. A rail's name may come to mean another endpoint;
-- a fingerprint never does.
CREATE TABLE IF NOT EXISTS symphony.payment_outbox_endpoints (
    endpoint      TEXT COLLATE "C" CONSTRAINT payment_outbox_endpoints_are_named_once PRIMARY KEY,
    rail_type     TEXT COLLATE "C" NOT NULL,
    -- Kind, address, inquiry address and account, in words; never a secret.
    description   TEXT NOT NULL,
    first_seen_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);

-- When the next call of a rail may be made, where its rate is the whole fleet's. Apart from payment_outbox_rails, because it
-- changes with every call and producers share-lock those rows.
CREATE TABLE IF NOT EXISTS symphony.payment_outbox_rail_permits (
    rail_type      TEXT COLLATE "C" CONSTRAINT payment_outbox_rail_permits_are_named_once PRIMARY KEY,
    next_permit_at TIMESTAMPTZ NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);

CREATE TABLE IF NOT EXISTS symphony.payment_outbox_paused_participants (
    participant_id TEXT COLLATE "C" CONSTRAINT payment_outbox_paused_participants_are_named_once PRIMARY KEY,
    paused_at      TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);

-- Places in FIFO lanes whose item FAILED. Whatever stands behind such a place waits until it is redriven or skipped.
CREATE TABLE IF NOT EXISTS symphony.payment_outbox_blocked_lanes (
    participant_id TEXT COLLATE "C" NOT NULL,
    rail_type      TEXT COLLATE "C" NOT NULL,
    outbox_id      UUID NOT NULL,
    lane_position  BIGINT NOT NULL,
    blocked_at     TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT payment_outbox_blocked_lanes_block_a_place_once PRIMARY KEY (participant_id, rail_type, lane_position)
);

-- How far each worker has ever claimed on each rail. Every leased row is due at or before its rail's furthest, so
-- expired leases are found without an index over the lease columns and without walking the backlog.
CREATE TABLE IF NOT EXISTS symphony.payment_outbox_workers (
    worker_id       TEXT COLLATE "C" NOT NULL,
    rail_type       TEXT COLLATE "C" NOT NULL,
    claimed_through TIMESTAMPTZ NOT NULL,
    last_claim_at   TIMESTAMPTZ NOT NULL,
    CONSTRAINT payment_outbox_workers_are_named_once_a_rail PRIMARY KEY (worker_id, rail_type)
) WITH (fillfactor = 50);

-- The lane's switches: exactly one row.
CREATE TABLE IF NOT EXISTS symphony.payment_outbox_settings (
    only_row              BOOLEAN CONSTRAINT payment_outbox_settings_have_one_row PRIMARY KEY DEFAULT true
        CONSTRAINT payment_outbox_settings_row_is_true CHECK (only_row),
    paused                BOOLEAN NOT NULL DEFAULT false,
    -- LEASE_CLAIMED and ATTEMPT_COMPLETED cost more than 10 % of the drain: off unless asked for.
    record_routine_events BOOLEAN NOT NULL DEFAULT false,
    -- Whatever sends, settles, hides or loosens needs a second person: outbox_act_lane names the acts.
    approval_required     BOOLEAN NOT NULL DEFAULT false
);
INSERT INTO symphony.payment_outbox_settings DEFAULT VALUES ON CONFLICT DO NOTHING;
