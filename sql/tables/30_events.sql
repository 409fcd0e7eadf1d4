-- The event lane's tables: an ordered log read by leased cursors.
--
-- Chosen over row leases, a lane row per key, and bucket leases with deletion (docs/PERFORMANCE.md): nothing is
-- updated or deleted per event on the way out, so it stays flat under a held snapshot and leaves almost no dead
-- rows. No foreign keys, as in the payment lane: the functions are the only writers.

-- Where an event stands in the log. Taken by a registered producer that has locked the event's key, so that within a
-- key a higher position committed later.
CREATE SEQUENCE IF NOT EXISTS symphony.event_outbox_position AS BIGINT;

-- What is open, so that a cursor never passes a late commit (docs/ARCHITECTURE.md, "Producers never wait for
-- strangers"). A producer registers in the present epoch by a shared advisory lock that lasts as long as its
-- transaction. The horizon is the position up to which everything is committed or gone. The next horizon was read as the
-- present epoch began: it is reached when nobody of the epochs before is open any more. Sequences and not a row: they
-- are read and set outside of transactions, and leave no dead rows however long a snapshot is held. All are set
-- by setval, never by nextval, which after a crash may skip numbers.
CREATE SEQUENCE IF NOT EXISTS symphony.event_outbox_epoch AS BIGINT MINVALUE 0;
CREATE SEQUENCE IF NOT EXISTS symphony.event_outbox_next_horizon AS BIGINT MINVALUE 0;
CREATE SEQUENCE IF NOT EXISTS symphony.event_outbox_horizon AS BIGINT MINVALUE 0;
-- Producers that stay open are passed: the horizon moves on without those of epochs before this one (0: there are none),
-- and only the groups of buckets they are registered for stay behind, each at the position before the first event of
-- the earliest of them.
CREATE SEQUENCE IF NOT EXISTS symphony.event_outbox_passed_epoch AS BIGINT MINVALUE 0;
-- When the present epoch began, in milliseconds since 1970.
CREATE SEQUENCE IF NOT EXISTS symphony.event_outbox_epoch_began_ms AS BIGINT MINVALUE 0;

-- One row per key there has ever been, by its hash: locked by whoever tells an event of that key until it commits, and
-- never changed. Rows and not advisory locks, because a batch has up to 4,096 keys and the server's lock table is
-- small; one per key and not one per bucket, because then strangers would wait for each other. Two keys of one hash
-- would, one time in 2^64.
CREATE TABLE IF NOT EXISTS symphony.event_outbox_keys (
    key_hash BIGINT CONSTRAINT event_outbox_keys_are_named_once PRIMARY KEY
);

-- Which events there have ever been. Permanent and narrow, so that the log can be retired by ranges one day and an
-- event id still stays unique for ever. What the id stands for is in the log; its hash here would cost every event 7 %
-- of its enqueue for a comparison hardly any will ever need (whoever retires a range keeps the hashes then).
CREATE TABLE IF NOT EXISTS symphony.event_outbox_identities (
    event_id   UUID CONSTRAINT event_outbox_identities_are_unique_forever PRIMARY KEY,
    bucket     SMALLINT NOT NULL,
    position   BIGINT NOT NULL
);

-- The events, immutable. JSON and not JSONB: written from the accepted JSONB's own text, it goes out as it is stored.
CREATE TABLE IF NOT EXISTS symphony.event_outbox_log (
    bucket     SMALLINT NOT NULL,
    position   BIGINT NOT NULL,
    event_id   UUID NOT NULL,
    event_key  TEXT COLLATE "C" NOT NULL,
    event      JSON NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT event_outbox_log_has_one_event_a_place PRIMARY KEY (bucket, position)
);

-- How far each bucket is published, and who holds it. Every position up to published_through has its outcome, or
-- waits behind a blocked key. A lease covers the window up to claimed_through, and the waiting rows that carry
-- its token.
CREATE TABLE IF NOT EXISTS symphony.event_outbox_cursors (
    bucket            SMALLINT CONSTRAINT event_outbox_cursors_are_one_a_bucket PRIMARY KEY,
    published_through BIGINT NOT NULL DEFAULT 0,
    claimed_through   BIGINT NOT NULL DEFAULT 0,
    -- Above published_through and up to here, some positions have outcomes already.
    ragged_through    BIGINT NOT NULL DEFAULT 0,
    -- Positions of the present lease without an answer.
    unanswered        INT NOT NULL DEFAULT 0
        CONSTRAINT event_outbox_cursors_count_from_zero CHECK (unanswered >= 0),
    claimed_by        TEXT COLLATE "C",
    lease_token       UUID,
    lease_expires_at  TIMESTAMPTZ,
    claimed_at        TIMESTAMPTZ,
    CONSTRAINT event_outbox_cursors_never_claim_backwards CHECK (claimed_through >= published_through),
    CONSTRAINT event_outbox_cursors_lease_is_whole
        CHECK ((claimed_by IS NULL) = (lease_token IS NULL) AND (lease_token IS NULL) = (lease_expires_at IS NULL))
) WITH (
    -- A claim and a completion each write the row anew: room for many versions on its page.
    fillfactor = 20, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0
);
INSERT INTO symphony.event_outbox_cursors (bucket) SELECT b FROM generate_series(0, 255) b ON CONFLICT DO NOTHING;

-- Keys that do not go on by themselves at once: their head waits for a retry, or has FAILED and waits for a person.
CREATE TABLE IF NOT EXISTS symphony.event_outbox_blocked (
    bucket          SMALLINT NOT NULL,
    event_key       TEXT COLLATE "C" NOT NULL,
    -- When the first waiting event may be tried. infinity: an operator must redrive or skip failed_position first.
    due_at          TIMESTAMPTZ NOT NULL,
    failed_position BIGINT,
    blocked_at      TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    -- It waits only because the bus of this destination was in trouble: from hasten_from on it may be tried once that is well again.
    destination     TEXT,
    hasten_from     TIMESTAMPTZ,
    -- It waits only because this topic is paused: the resume makes it due at once.
    paused_topic    TEXT COLLATE "C",
    CONSTRAINT event_outbox_blocked_once_a_key PRIMARY KEY (bucket, event_key),
    CONSTRAINT event_outbox_blocked_by_a_failure_until_told
        CHECK ((failed_position IS NULL) = (due_at < 'infinity'))
);
CREATE INDEX IF NOT EXISTS event_outbox_blocked_by_due_time ON symphony.event_outbox_blocked (bucket, due_at);

-- What waits behind blocked keys, by its place in the log: the cursor has gone on.
CREATE TABLE IF NOT EXISTS symphony.event_outbox_waiting (
    bucket      SMALLINT NOT NULL,
    event_key   TEXT COLLATE "C" NOT NULL,
    position    BIGINT NOT NULL,
    redrive_no  INT NOT NULL DEFAULT 0,
    -- Handed out under this lease of its bucket.
    lease_token UUID,
    -- A redriven event waits until the bus does not swallow its id any more.
    not_before  TIMESTAMPTZ,
    CONSTRAINT event_outbox_waiting_once PRIMARY KEY (bucket, event_key, position)
) WITH (
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_scale_factor = 0.5
);
-- The token leads, so that no plan made on empty statistics walks what waits in the bucket to find what is in flight.
CREATE INDEX IF NOT EXISTS event_outbox_waiting_in_flight
    ON symphony.event_outbox_waiting (lease_token, bucket) WHERE lease_token IS NOT NULL;
CREATE INDEX IF NOT EXISTS event_outbox_waiting_not_before
    ON symphony.event_outbox_waiting (bucket, event_key, position) WHERE not_before IS NOT NULL;

-- The ledger: one row per outcome. The primary key is the invariant: a terminal outcome is number 0, so there is
-- at most one per event and redrive, and one index guards that and orders the others.
CREATE TABLE IF NOT EXISTS symphony.event_outbox_attempts (
    bucket          SMALLINT NOT NULL,
    position        BIGINT NOT NULL,
    redrive_no      INT NOT NULL DEFAULT 0,
    -- 0 for the terminal outcome, else the attempt's number.
    outcome_no      INT NOT NULL,
    attempt_no      INT NOT NULL CONSTRAINT event_outbox_attempts_count_from_one CHECK (attempt_no >= 1),
    state           symphony.outbox_attempt_state NOT NULL
        CONSTRAINT event_outbox_attempts_record_outcomes_only CHECK (state <> 'DISPATCHING'),
    event_id        UUID NOT NULL,
    event_key       TEXT COLLATE "C" NOT NULL,
    -- With RETRYABLE only: it may have been published, nobody knows.
    outcome_unknown BOOLEAN NOT NULL DEFAULT false,
    -- False where the bus was away and surely did not take it: it is not one of the event's tries.
    spends_attempt  BOOLEAN NOT NULL DEFAULT true,
    -- It was away by itself: only that is given up after a time. What an operator must mend (rights, a missing topic)
    -- never is.
    bus_away        BOOLEAN NOT NULL DEFAULT false
        CONSTRAINT event_outbox_attempts_of_an_absent_bus_spend_nothing CHECK (NOT bus_away OR NOT spends_attempt),
    claimed_at      TIMESTAMPTZ,
    completed_at    TIMESTAMPTZ NOT NULL,
    -- Bus and topic, as 'bus/topic'.
    destination     TEXT,
    bus_reference   TEXT,
    error_code      TEXT,
    error_message   TEXT,
    latency_ms      INT,
    worker_id       TEXT NOT NULL,
    lease_token     UUID,
    CONSTRAINT event_outbox_attempts_one_terminal_per_event PRIMARY KEY (bucket, position, redrive_no, outcome_no),
    CONSTRAINT event_outbox_attempts_terminal_is_number_zero
        CHECK (outcome_no = CASE WHEN state IN ('DISPATCHED', 'FAILED') THEN 0 ELSE attempt_no END),
    CONSTRAINT event_outbox_attempts_only_retryable_is_unknown CHECK (NOT outcome_unknown OR state = 'RETRYABLE')
);
-- The dead letters; costs nothing until something fails.
CREATE INDEX IF NOT EXISTS event_outbox_attempts_failed
    ON symphony.event_outbox_attempts (completed_at) WHERE state = 'FAILED';

-- The narrative beside the ledger: repairs, late outcomes, and what operators did.
CREATE TABLE IF NOT EXISTS symphony.event_outbox_events (
    event_no     BIGINT GENERATED ALWAYS AS IDENTITY
        CONSTRAINT event_outbox_events_are_numbered PRIMARY KEY,
    event_type   TEXT COLLATE "C" NOT NULL
        CONSTRAINT event_outbox_events_have_a_known_type CHECK (event_type IN (
            'LEASE_EXPIRED_REPAIRED', 'LATE_OUTCOME', 'REDRIVEN', 'SKIPPED', 'PAUSED', 'RESUMED', 'CONFIGURED',
            'INCIDENT_CLOSED', 'DEAD_LETTER_CLOSED', 'BREAKER_RESET',
            'APPROVAL_REQUESTED', 'APPROVAL_GIVEN', 'APPROVAL_REFUSED', 'APPROVAL_WITHDRAWN')),
    -- The event concerned, where it is about one.
    outbox_event UUID,
    worker_id    TEXT,
    -- The person named by the caller, and the database login that made the call: both, always.
    actor        TEXT,
    approver     TEXT,
    session_role TEXT NOT NULL DEFAULT session_user,
    reason       TEXT,
    details      JSONB NOT NULL DEFAULT '{}',
    created_at   TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX IF NOT EXISTS event_outbox_events_by_event
    ON symphony.event_outbox_events (outbox_event, event_no) WHERE outbox_event IS NOT NULL;
-- What may contradict the ledger; costs nothing until a worker is late.
CREATE INDEX IF NOT EXISTS event_outbox_events_late_outcomes
    ON symphony.event_outbox_events (event_no) WHERE event_type = 'LATE_OUTCOME';
-- The audit: what people did, among what workers did; costs nothing until somebody acts.
CREATE INDEX IF NOT EXISTS event_outbox_events_of_people
    ON symphony.event_outbox_events (event_no) WHERE actor IS NOT NULL;
-- Dead letters that a person has closed.
CREATE INDEX IF NOT EXISTS event_outbox_events_closed_dead_letters
    ON symphony.event_outbox_events (outbox_event) WHERE event_type = 'DEAD_LETTER_CLOSED';

-- The topics that workers' routes lead to, as 'bus/topic', and which of them are paused. Kept for ever: there are few.
CREATE TABLE IF NOT EXISTS symphony.event_outbox_topics (
    topic         TEXT COLLATE "C" CONSTRAINT event_outbox_topics_are_named_once PRIMARY KEY,
    paused        BOOLEAN NOT NULL DEFAULT false,
    first_seen_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);

-- The lane's switches: exactly one row.
CREATE TABLE IF NOT EXISTS symphony.event_outbox_settings (
    only_row            BOOLEAN CONSTRAINT event_outbox_settings_have_one_row PRIMARY KEY DEFAULT true
        CONSTRAINT event_outbox_settings_row_is_true CHECK (only_row),
    paused              BOOLEAN NOT NULL DEFAULT false,
    -- Members no payload may have, at any depth, by their exact names: events carry ids, not personal data.
    denied_payload_keys TEXT[] NOT NULL DEFAULT
        '{account_number,accountNumber,address,birth_date,birthDate,card_number,cardNumber,cvc,cvv,date_of_birth,dateOfBirth,email,first_name,firstName,full_name,fullName,iban,last_name,lastName,pan,passport_number,passportNumber,password,phone,phone_number,phoneNumber,secret,social_security_number,socialSecurityNumber,ssn,tax_id,taxId}',
    -- As in payment_outbox_settings.
    approval_required   BOOLEAN NOT NULL DEFAULT false
);
INSERT INTO symphony.event_outbox_settings DEFAULT VALUES ON CONFLICT DO NOTHING;
