-- The event lane's tables: an ordered log read by leased cursors.
--
-- Chosen over row leases, a lane row per key, and bucket leases with deletion (docs/PERFORMANCE.md): nothing is
-- updated or deleted per event on the way out, so it stays flat under a held snapshot and leaves almost no dead
-- rows. No foreign keys, as in the payment lane: the functions are the only writers.

-- Where an event stands in the log. Taken under the bucket's lock, so that within a bucket a higher position
-- committed later: a cursor never passes a late commit.
CREATE SEQUENCE IF NOT EXISTS public.event_outbox_position AS BIGINT;

-- One row per bucket, locked by producers until they commit and never changed. A table and not advisory locks: a
-- batch over all buckets would take 256 of the server's shared lock table, and anybody may take an advisory lock.
CREATE TABLE IF NOT EXISTS public.event_outbox_buckets (
    bucket SMALLINT CONSTRAINT event_outbox_buckets_are_named_once PRIMARY KEY
        CONSTRAINT event_outbox_buckets_are_a_byte CHECK (bucket BETWEEN 0 AND 255)
);
INSERT INTO public.event_outbox_buckets SELECT b FROM generate_series(0, 255) b ON CONFLICT DO NOTHING;

-- Which events there have ever been. Permanent and narrow, so that the log can be retired by ranges one day and an
-- event id still stays unique for ever. What the id stands for is in the log; its hash here would cost every event 7 %
-- of its enqueue for a comparison hardly any will ever need (whoever retires a range keeps the hashes then).
CREATE TABLE IF NOT EXISTS public.event_outbox_identities (
    event_id   UUID CONSTRAINT event_outbox_identities_are_unique_forever PRIMARY KEY,
    bucket     SMALLINT NOT NULL,
    position   BIGINT NOT NULL
);

-- The events, immutable. JSON and not JSONB: written from the accepted JSONB's own text, it goes out as it is stored.
CREATE TABLE IF NOT EXISTS public.event_outbox_log (
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
CREATE TABLE IF NOT EXISTS public.event_outbox_cursors (
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
INSERT INTO public.event_outbox_cursors (bucket) SELECT b FROM generate_series(0, 255) b ON CONFLICT DO NOTHING;

-- Keys that do not go on by themselves at once: their head waits for a retry, or has FAILED and waits for a person.
CREATE TABLE IF NOT EXISTS public.event_outbox_blocked (
    bucket          SMALLINT NOT NULL,
    event_key       TEXT COLLATE "C" NOT NULL,
    -- When the first waiting event may be tried. infinity: an operator must redrive or skip failed_position first.
    due_at          TIMESTAMPTZ NOT NULL,
    failed_position BIGINT,
    blocked_at      TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    -- It waits only because the bus of this destination was in trouble: from hasten_from on it may be tried once that is well again.
    destination     TEXT,
    hasten_from     TIMESTAMPTZ,
    CONSTRAINT event_outbox_blocked_once_a_key PRIMARY KEY (bucket, event_key),
    CONSTRAINT event_outbox_blocked_by_a_failure_until_told
        CHECK ((failed_position IS NULL) = (due_at < 'infinity'))
);
CREATE INDEX IF NOT EXISTS event_outbox_blocked_by_due_time ON public.event_outbox_blocked (bucket, due_at);

-- What waits behind blocked keys, by its place in the log: the cursor has gone on.
CREATE TABLE IF NOT EXISTS public.event_outbox_waiting (
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
    ON public.event_outbox_waiting (lease_token, bucket) WHERE lease_token IS NOT NULL;
CREATE INDEX IF NOT EXISTS event_outbox_waiting_not_before
    ON public.event_outbox_waiting (bucket, event_key, position) WHERE not_before IS NOT NULL;

-- The ledger: one row per outcome. The primary key is the invariant: a terminal outcome is number 0, so there is
-- at most one per event and redrive, and one index guards that and orders the others.
CREATE TABLE IF NOT EXISTS public.event_outbox_attempts (
    bucket          SMALLINT NOT NULL,
    position        BIGINT NOT NULL,
    redrive_no      INT NOT NULL DEFAULT 0,
    -- 0 for the terminal outcome, else the attempt's number.
    outcome_no      INT NOT NULL,
    attempt_no      INT NOT NULL CONSTRAINT event_outbox_attempts_count_from_one CHECK (attempt_no >= 1),
    state           public.outbox_attempt_state NOT NULL
        CONSTRAINT event_outbox_attempts_record_outcomes_only CHECK (state <> 'DISPATCHING'),
    event_id        UUID NOT NULL,
    event_key       TEXT COLLATE "C" NOT NULL,
    -- With RETRYABLE only: it may have been published, nobody knows.
    outcome_unknown BOOLEAN NOT NULL DEFAULT false,
    -- False where the bus was away and surely did not take it: it is not one of the event's tries.
    spends_attempt  BOOLEAN NOT NULL DEFAULT true,
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
    ON public.event_outbox_attempts (completed_at) WHERE state = 'FAILED';

-- The narrative beside the ledger: repairs, late outcomes, and what operators did.
CREATE TABLE IF NOT EXISTS public.event_outbox_events (
    event_no     BIGINT GENERATED ALWAYS AS IDENTITY
        CONSTRAINT event_outbox_events_are_numbered PRIMARY KEY,
    event_type   TEXT COLLATE "C" NOT NULL
        CONSTRAINT event_outbox_events_have_a_known_type CHECK (event_type IN (
            'LEASE_EXPIRED_REPAIRED', 'LATE_OUTCOME', 'REDRIVEN', 'SKIPPED', 'PAUSED', 'RESUMED', 'CONFIGURED',
            'INCIDENT_CLOSED', 'DEAD_LETTER_CLOSED', 'BREAKER_RESET')),
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
    ON public.event_outbox_events (outbox_event, event_no) WHERE outbox_event IS NOT NULL;
-- What may contradict the ledger; costs nothing until a worker is late.
CREATE INDEX IF NOT EXISTS event_outbox_events_late_outcomes
    ON public.event_outbox_events (event_no) WHERE event_type = 'LATE_OUTCOME';
-- Dead letters that a person has closed.
CREATE INDEX IF NOT EXISTS event_outbox_events_closed_dead_letters
    ON public.event_outbox_events (outbox_event) WHERE event_type = 'DEAD_LETTER_CLOSED';

-- The lane's switches: exactly one row.
CREATE TABLE IF NOT EXISTS public.event_outbox_settings (
    only_row            BOOLEAN CONSTRAINT event_outbox_settings_have_one_row PRIMARY KEY DEFAULT true
        CONSTRAINT event_outbox_settings_row_is_true CHECK (only_row),
    paused              BOOLEAN NOT NULL DEFAULT false,
    -- Members no payload may have, at any depth, by their exact names: events carry ids, not personal data.
    denied_payload_keys TEXT[] NOT NULL DEFAULT
        '{account_number,accountNumber,address,birth_date,birthDate,card_number,cardNumber,cvc,cvv,date_of_birth,dateOfBirth,email,first_name,firstName,full_name,fullName,iban,last_name,lastName,pan,passport_number,passportNumber,password,phone,phone_number,phoneNumber,secret,social_security_number,socialSecurityNumber,ssn,tax_id,taxId}'
);
INSERT INTO public.event_outbox_settings DEFAULT VALUES ON CONFLICT DO NOTHING;
