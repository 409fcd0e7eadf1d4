-- The trigger lane's tables: apps with their scripts, what fires them, and one outbox for all of it.
--
-- What belongs to an app is deleted with it, by foreign keys; the ledger, the narrative and (unless configured
-- otherwise) the executions name the app without a foreign key and stay.

CREATE TABLE IF NOT EXISTS symphony.apps (
    id         UUID CONSTRAINT apps_are_numbered_once PRIMARY KEY DEFAULT uuidv7(),
    name       TEXT COLLATE "C" NOT NULL CONSTRAINT apps_are_named_once UNIQUE
        CONSTRAINT apps_have_a_name_for_urls CHECK (name ~ '^[a-z][a-z0-9-]*$' AND length(name) <= 63),
    paused     BOOLEAN NOT NULL DEFAULT false,
    -- Which other sites' pages may call its routes, as the manifest says; NULL: none.
    cors       JSONB,
    created_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);

-- A claim passes over paused apps by it.
CREATE INDEX IF NOT EXISTS apps_that_run ON symphony.apps (id) WHERE NOT paused;

-- Every version that ever was, until the app goes: an item keeps the version that was current when it was written.
CREATE TABLE IF NOT EXISTS symphony.scripts (
    id         UUID CONSTRAINT scripts_are_numbered_once PRIMARY KEY DEFAULT uuidv7(),
    app_id     UUID NOT NULL CONSTRAINT scripts_belong_to_an_app REFERENCES symphony.apps ON DELETE CASCADE,
    name       TEXT COLLATE "C" NOT NULL,
    version    INT NOT NULL,
    -- Exactly one: JavaScript to run here, or where to post the request to.
    source     TEXT,
    url        TEXT,
    -- The file of the app's folder that it is, for stacks; and those that it imports: path -> JavaScript.
    file       TEXT,
    modules    JSONB NOT NULL DEFAULT '{}',
    timeout_ms INT NOT NULL CONSTRAINT scripts_end_in_time CHECK (timeout_ms BETWEEN 1 AND 300000),
    created_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT scripts_have_each_version_once UNIQUE (app_id, name, version),
    CONSTRAINT scripts_run_here_or_elsewhere CHECK ((source IS NULL) <> (url IS NULL))
);

-- What each push made of an app, to go back to; the newest twenty.
CREATE TABLE IF NOT EXISTS symphony.app_pushes (
    app_id          UUID NOT NULL CONSTRAINT app_pushes_belong_to_an_app REFERENCES symphony.apps ON DELETE CASCADE,
    version         INT NOT NULL CONSTRAINT app_pushes_count_from_one CHECK (version >= 1),
    manifest        JSONB NOT NULL,
    -- Equal where two pushes made the same of it; shows that without the sources.
    manifest_digest TEXT COLLATE "C" NOT NULL,
    pushed_by       TEXT NOT NULL,
    principal       UUID,
    pushed_at       TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT app_pushes_have_each_version_once PRIMARY KEY (app_id, version)
);

-- Sealed by whoever sets them, bound to app and name, under a key that no database ever sees.
CREATE TABLE IF NOT EXISTS symphony.app_secrets (
    app_id UUID NOT NULL CONSTRAINT app_secrets_belong_to_an_app REFERENCES symphony.apps ON DELETE CASCADE,
    name   TEXT COLLATE "C" NOT NULL,
    -- Of which key, so that the right one of two is used while it is changed.
    key_id TEXT COLLATE "C" NOT NULL,
    sealed TEXT COLLATE "C" NOT NULL,
    set_by TEXT NOT NULL,
    set_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT app_secrets_are_named_once PRIMARY KEY (app_id, name)
);

-- HTTP: a method and a path pattern to a script.
CREATE TABLE IF NOT EXISTS symphony.routes (
    id          UUID CONSTRAINT routes_are_numbered_once PRIMARY KEY DEFAULT uuidv7(),
    app_id      UUID NOT NULL CONSTRAINT routes_belong_to_an_app REFERENCES symphony.apps ON DELETE CASCADE,
    method      TEXT COLLATE "C" NOT NULL,
    path        TEXT COLLATE "C" NOT NULL,
    script_name TEXT COLLATE "C" NOT NULL,
    -- Somebody waits for the answer; otherwise 202 and a status URL.
    synchronous BOOLEAN NOT NULL,
    -- How long somebody waits.
    wait_ms     INT NOT NULL CONSTRAINT routes_answer_in_time CHECK (wait_ms BETWEEN 1 AND 300000),
    attempts_max INT NOT NULL CONSTRAINT routes_try_so_often CHECK (attempts_max BETWEEN 1 AND 20),
    backoff_seconds INT[] NOT NULL,
    -- Its script gets the body as it was sent, to verify a signature over it.
    raw_body    BOOLEAN NOT NULL DEFAULT false,
    registered_by_principal UUID,
    -- Who may call: anybody, the holder of an access token, or whoever signs with a secret.
    auth        TEXT COLLATE "C" NOT NULL DEFAULT 'none' CONSTRAINT routes_say_who_may_call CHECK (auth IN ('none', 'token', 'hmac')),
    -- How the caller signs, and what the secret is called; the secret itself is never here.
    signature   TEXT COLLATE "C" CONSTRAINT routes_know_their_signatures CHECK (signature IN ('standard-webhooks', 'stripe', 'github')),
    secret_name TEXT COLLATE "C",
    CONSTRAINT routes_that_are_signed_have_a_secret
        CHECK ((auth = 'hmac') = (signature IS NOT NULL) AND (signature IS NULL) = (secret_name IS NULL)),
    CONSTRAINT routes_lead_to_one_script UNIQUE (app_id, method, path)
);

-- Everything else that fires a script.
CREATE TABLE IF NOT EXISTS symphony.triggers (
    id          UUID CONSTRAINT triggers_are_numbered_once PRIMARY KEY DEFAULT uuidv7(),
    app_id      UUID NOT NULL CONSTRAINT triggers_belong_to_an_app REFERENCES symphony.apps ON DELETE CASCADE,
    name        TEXT COLLATE "C" NOT NULL,
    source_kind TEXT COLLATE "C" NOT NULL
        CONSTRAINT triggers_have_a_known_source CHECK (source_kind IN ('kv', 'cron', 'pubsub', 'queue', 'email', 'dead_letter')),
    -- A key, topic, queue, address or script, whole or up to a final *; for cron the expression.
    filter      TEXT COLLATE "C" NOT NULL,
    script_name TEXT COLLATE "C" NOT NULL,
    attempts_max INT NOT NULL CONSTRAINT triggers_try_so_often CHECK (attempts_max BETWEEN 1 AND 20),
    -- After the first attempt, the second and so on; the last is repeated.
    backoff_seconds INT[] NOT NULL,
    time_zone   TEXT,
    -- Ticks that nobody was there for: none of them, or every one.
    catch_up    BOOLEAN NOT NULL DEFAULT false,
    registered_by_principal UUID,
    CONSTRAINT triggers_are_named_once UNIQUE (app_id, name),
    CONSTRAINT triggers_know_their_time_zone CHECK ((source_kind = 'cron') = (time_zone IS NOT NULL))
);

CREATE INDEX IF NOT EXISTS triggers_by_mail_filter ON symphony.triggers (app_id, lower(filter)) WHERE source_kind = 'email';

-- Whose mail is whose: an address is of the app that named it first, until that names it no more.
CREATE TABLE IF NOT EXISTS symphony.mail_addresses (
    address TEXT COLLATE "C" CONSTRAINT mail_addresses_are_one_apps PRIMARY KEY,
    app_id  UUID NOT NULL CONSTRAINT mail_addresses_belong_to_an_app REFERENCES symphony.apps ON DELETE CASCADE
);
CREATE INDEX IF NOT EXISTS mail_addresses_by_app ON symphony.mail_addresses (app_id);

-- What an operator has granted besides: filters with a *, and addresses of other apps.
CREATE TABLE IF NOT EXISTS symphony.mail_grants (
    filter     TEXT COLLATE "C" NOT NULL,
    app_id     UUID NOT NULL CONSTRAINT mail_grants_belong_to_an_app REFERENCES symphony.apps ON DELETE CASCADE,
    granted_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT mail_grants_are_made_once PRIMARY KEY (filter, app_id)
);
CREATE INDEX IF NOT EXISTS mail_grants_by_app ON symphony.mail_grants (app_id);

-- How much each sender has sent to an address within an hour, and all together (sender ''): the brake for loops.
CREATE TABLE IF NOT EXISTS symphony.mail_counts (
    address TEXT COLLATE "C" NOT NULL,
    sender  TEXT COLLATE "C" NOT NULL,
    since   TIMESTAMPTZ NOT NULL,
    mails   INT NOT NULL DEFAULT 1,
    CONSTRAINT mail_counts_are_by_address_and_sender PRIMARY KEY (address, sender)
);
CREATE INDEX IF NOT EXISTS mail_counts_by_age ON symphony.mail_counts (since);

-- When each cron trigger is due next: whoever moves it on has fired the tick.
CREATE TABLE IF NOT EXISTS symphony.trigger_cron (
    trigger_id   UUID CONSTRAINT trigger_cron_one_clock_a_trigger PRIMARY KEY
        CONSTRAINT trigger_cron_belongs_to_a_trigger REFERENCES symphony.triggers ON DELETE CASCADE,
    next_tick_at TIMESTAMPTZ,
    last_tick_at TIMESTAMPTZ
);
CREATE INDEX IF NOT EXISTS trigger_cron_due ON symphony.trigger_cron (next_tick_at);

CREATE TABLE IF NOT EXISTS symphony.kv_entries (
    app_id     UUID NOT NULL CONSTRAINT kv_entries_belong_to_an_app REFERENCES symphony.apps ON DELETE CASCADE,
    key        TEXT COLLATE "C" NOT NULL,
    value      JSONB NOT NULL,
    version    BIGINT NOT NULL DEFAULT 1,
    -- Which entry of this key it is: after a deletion versions count from 1 again.
    entry_no   BIGINT GENERATED ALWAYS AS IDENTITY,
    -- Not there any more from then on.
    expires_at TIMESTAMPTZ,
    updated_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT kv_entries_have_each_key_once PRIMARY KEY (app_id, key)
);
-- Those to be removed; costs nothing until something has a time to live.
CREATE INDEX IF NOT EXISTS kv_entries_expiring ON symphony.kv_entries (expires_at) WHERE expires_at IS NOT NULL;

-- Declared by the app: a message to a name that is not is a mistake.
CREATE TABLE IF NOT EXISTS symphony.topics (
    app_id UUID NOT NULL CONSTRAINT topics_belong_to_an_app REFERENCES symphony.apps ON DELETE CASCADE,
    name   TEXT COLLATE "C" NOT NULL,
    CONSTRAINT topics_are_named_once PRIMARY KEY (app_id, name)
);
CREATE TABLE IF NOT EXISTS symphony.queues (
    app_id UUID NOT NULL CONSTRAINT queues_belong_to_an_app REFERENCES symphony.apps ON DELETE CASCADE,
    name   TEXT COLLATE "C" NOT NULL,
    -- Its messages run one after another, whatever their keys.
    serial BOOLEAN NOT NULL DEFAULT false,
    CONSTRAINT queues_are_named_once PRIMARY KEY (app_id, name)
);

-- Messages whose queue has no consumer yet.
CREATE TABLE IF NOT EXISTS symphony.queue_messages (
    message_no BIGINT GENERATED ALWAYS AS IDENTITY CONSTRAINT queue_messages_are_numbered PRIMARY KEY,
    app_id     UUID NOT NULL CONSTRAINT queue_messages_belong_to_an_app REFERENCES symphony.apps ON DELETE CASCADE,
    queue      TEXT COLLATE "C" NOT NULL,
    payload    JSONB NOT NULL,
    -- What it goes one after another with.
    message_key         TEXT COLLATE "C",
    origin_principal    UUID,
    trigger_depth       INT NOT NULL,
    parent_execution_id UUID,
    root_execution_id   UUID,
    after_dead_letter   BOOLEAN NOT NULL
);
CREATE INDEX IF NOT EXISTS queue_messages_by_root ON symphony.queue_messages (root_execution_id) WHERE root_execution_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS queue_messages_by_queue ON symphony.queue_messages (app_id, queue, message_no);

CREATE TABLE IF NOT EXISTS symphony.trigger_outbox_pending (
    id                UUID CONSTRAINT trigger_outbox_pending_holds_an_item_once PRIMARY KEY DEFAULT uuidv7(),
    app_id            UUID NOT NULL CONSTRAINT trigger_outbox_pending_belongs_to_an_app REFERENCES symphony.apps ON DELETE CASCADE,
    source_kind       TEXT COLLATE "C" NOT NULL CONSTRAINT trigger_outbox_pending_has_a_known_source
        CHECK (source_kind IN ('http', 'kv', 'cron', 'pubsub', 'queue', 'email', 'dead_letter')),
    -- A route's id for http, else a trigger's; NULL for a replay and for email to be sent.
    trigger_id        UUID,
    -- Resolved when written. NULL: email to be sent.
    script_id         UUID,
    -- Somebody waits under this name: one attempt, never retried, worth nothing after the deadline.
    reply_to          UUID,
    reply_deadline_at TIMESTAMPTZ,
    payload           JSONB NOT NULL CONSTRAINT trigger_outbox_pending_carries_an_object CHECK (jsonb_typeof(payload) = 'object'),
    origin_principal  UUID,
    -- As whom the script runs: the trigger's registrant.
    principal         UUID,
    trigger_depth     INT NOT NULL DEFAULT 0,
    parent_execution_id UUID,
    root_execution_id UUID NOT NULL,
    -- A dead letter is among its ancestors: it fires none itself.
    after_dead_letter BOOLEAN NOT NULL DEFAULT false,
    attempt_count     INT NOT NULL DEFAULT 0,
    attempts_max      INT NOT NULL,
    backoff_seconds   INT[] NOT NULL,
    -- Messages of one order run one after another, by their numbers; those that are not the first await their turn.
    order_key         TEXT COLLATE "C",
    order_no          BIGINT,
    awaits_turn       BOOLEAN NOT NULL DEFAULT false,
    next_attempt_at   TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    created_at        TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    claimed_by        TEXT COLLATE "C",
    lease_token       UUID,
    lease_expires_at  TIMESTAMPTZ,
    claimed_at        TIMESTAMPTZ,
    -- W3C trace context of what caused it; the same for everything its run fires.
    traceparent       TEXT COLLATE "C",
    CONSTRAINT trigger_outbox_pending_lease_is_whole
        CHECK ((claimed_by IS NULL) = (lease_token IS NULL) AND (lease_token IS NULL) = (lease_expires_at IS NULL)),
    CONSTRAINT trigger_outbox_pending_order_is_whole CHECK ((order_key IS NULL) = (order_no IS NULL)),
    CONSTRAINT trigger_outbox_pending_awaits_its_turn_in_an_order CHECK (NOT awaits_turn OR (order_key IS NOT NULL AND lease_token IS NULL)),
    CONSTRAINT trigger_outbox_pending_waits_until_a_deadline CHECK ((reply_to IS NULL) = (reply_deadline_at IS NULL)),
    CONSTRAINT trigger_outbox_pending_attempts_are_bounded CHECK (attempt_count BETWEEN 0 AND attempts_max)
) WITH (
    fillfactor = 60, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_scale_factor = 0.5
);
-- The app leads: every app gets its share, and a paused one costs nothing. What awaits its turn is not in it, however much that is.
CREATE INDEX IF NOT EXISTS trigger_outbox_pending_claimable
    ON symphony.trigger_outbox_pending (app_id, next_attempt_at, id) WHERE lease_token IS NULL AND NOT awaits_turn;
-- Whether anything is due at all, and what has been longest, of whichever app.
CREATE INDEX IF NOT EXISTS trigger_outbox_pending_due
    ON symphony.trigger_outbox_pending (next_attempt_at) WHERE lease_token IS NULL AND NOT awaits_turn;
CREATE UNIQUE INDEX IF NOT EXISTS trigger_outbox_pending_in_order
    ON symphony.trigger_outbox_pending (app_id, order_key, order_no) WHERE order_key IS NOT NULL;
CREATE UNIQUE INDEX IF NOT EXISTS trigger_outbox_pending_one_at_a_time
    ON symphony.trigger_outbox_pending (app_id, order_key) WHERE order_key IS NOT NULL AND NOT awaits_turn;
CREATE INDEX IF NOT EXISTS trigger_outbox_pending_leased
    ON symphony.trigger_outbox_pending (lease_expires_at) WHERE lease_token IS NOT NULL;
CREATE INDEX IF NOT EXISTS trigger_outbox_pending_awaited
    ON symphony.trigger_outbox_pending (reply_deadline_at) WHERE reply_to IS NOT NULL;
-- Mail that is being sent, by its Message-ID: what answers it may be faster than the relay.
CREATE INDEX IF NOT EXISTS trigger_outbox_pending_by_message
    ON symphony.trigger_outbox_pending ((payload->>'messageKey')) WHERE source_kind = 'email' AND script_id IS NULL;
-- Pages of an app, the newest first.
CREATE INDEX IF NOT EXISTS trigger_outbox_pending_by_app ON symphony.trigger_outbox_pending (app_id, id);
-- A tree in the order of its ids, and whether it still runs; costs nothing for what nothing else fired.
CREATE INDEX IF NOT EXISTS trigger_outbox_pending_of_trees
    ON symphony.trigger_outbox_pending (root_execution_id, id) WHERE root_execution_id <> id;

-- The ledger: one row per outcome.
CREATE TABLE IF NOT EXISTS symphony.trigger_outbox_attempts (
    id                UUID NOT NULL,
    attempt_no        INT NOT NULL CONSTRAINT trigger_outbox_attempts_count_from_one CHECK (attempt_no >= 1),
    app_id            UUID NOT NULL,
    source_kind       TEXT COLLATE "C" NOT NULL,
    trigger_id        UUID,
    script_id         UUID,
    root_execution_id UUID NOT NULL,
    state             symphony.outbox_attempt_state NOT NULL
        CONSTRAINT trigger_outbox_attempts_record_outcomes_only CHECK (state <> 'DISPATCHING'),
    -- False where what should have taken it was busy or away: it is not one of the item's attempts.
    spends_attempt    BOOLEAN NOT NULL DEFAULT true,
    error_code        TEXT,
    error_message     TEXT,
    latency_ms        INT,
    worker_id         TEXT NOT NULL,
    -- NULL where no worker had it: refused when written, past its deadline, or deleted with its app.
    lease_token       UUID,
    claimed_at        TIMESTAMPTZ,
    completed_at      TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT trigger_outbox_attempts_number_each_outcome_once PRIMARY KEY (id, attempt_no)
);
CREATE UNIQUE INDEX IF NOT EXISTS trigger_outbox_attempts_one_terminal_per_item
    ON symphony.trigger_outbox_attempts (id) WHERE state IN ('DISPATCHED', 'FAILED');
COMMENT ON INDEX symphony.trigger_outbox_attempts_one_terminal_per_item IS
    'Invariant: an item has at most one terminal outcome. The lease prevents a second; this makes it impossible.';

-- The dead letters; costs nothing until something fails.
CREATE INDEX IF NOT EXISTS trigger_outbox_attempts_failed
    ON symphony.trigger_outbox_attempts (completed_at) WHERE state = 'FAILED';

-- What happened to items and apps other than an outcome, and who did it.
CREATE TABLE IF NOT EXISTS symphony.trigger_outbox_events (
    event_no     BIGINT GENERATED ALWAYS AS IDENTITY CONSTRAINT trigger_outbox_events_are_numbered PRIMARY KEY,
    event_type   TEXT COLLATE "C" NOT NULL
        CONSTRAINT trigger_outbox_events_have_a_known_type CHECK (event_type IN (
            'LEASE_EXPIRED_REPAIRED', 'LATE_OUTCOME', 'PUSHED', 'DELETED', 'REPLAYED', 'PAUSED', 'RESUMED', 'CONFIGURED',
            'ROLLED_BACK', 'ENTRY_SET', 'ENTRY_DELETED', 'SECRET_SET', 'SECRET_DELETED',
            'INCIDENT_CLOSED', 'DEAD_LETTER_CLOSED', 'MAIL_GRANTED', 'MAIL_REVOKED',
            'APPROVAL_REQUESTED', 'APPROVAL_GIVEN', 'APPROVAL_REFUSED', 'APPROVAL_WITHDRAWN')),
    id           UUID,
    app_id       UUID,
    worker_id    TEXT,
    actor        TEXT,
    approver     TEXT,
    session_role TEXT NOT NULL DEFAULT session_user,
    reason       TEXT,
    details      JSONB NOT NULL DEFAULT '{}',
    created_at   TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX IF NOT EXISTS trigger_outbox_events_by_item ON symphony.trigger_outbox_events (id, event_no) WHERE id IS NOT NULL;
-- What may contradict the ledger; costs nothing until a worker is late.
CREATE INDEX IF NOT EXISTS trigger_outbox_events_late_outcomes
    ON symphony.trigger_outbox_events (event_no) WHERE event_type = 'LATE_OUTCOME';
-- The audit: what people did, among what workers did; costs nothing until somebody acts.
CREATE INDEX IF NOT EXISTS trigger_outbox_events_of_people
    ON symphony.trigger_outbox_events (event_no) WHERE actor IS NOT NULL;

-- What is left of an item once its row is gone: for status URLs, trees, replays and dead letters.
CREATE TABLE IF NOT EXISTS symphony.trigger_outbox_executions (
    id                UUID CONSTRAINT trigger_outbox_executions_end_once PRIMARY KEY,
    app_id            UUID NOT NULL,
    app_name          TEXT COLLATE "C" NOT NULL,
    source_kind       TEXT COLLATE "C" NOT NULL,
    trigger_id        UUID,
    script_id         UUID,
    script_name       TEXT COLLATE "C",
    script_version    INT,
    parent_execution_id UUID,
    root_execution_id UUID NOT NULL,
    trigger_depth     INT NOT NULL,
    reply_to          UUID,
    origin_principal  UUID,
    -- As whom the script ran.
    principal         UUID,
    payload           JSONB NOT NULL,
    state             symphony.outbox_attempt_state NOT NULL
        CONSTRAINT trigger_outbox_executions_are_ended CHECK (state IN ('DISPATCHED', 'FAILED')),
    result            JSONB,
    error_code        TEXT,
    error_message     TEXT,
    logs              JSONB NOT NULL DEFAULT '[]',
    attempts          INT NOT NULL,
    created_at        TIMESTAMPTZ NOT NULL,
    completed_at      TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    traceparent       TEXT COLLATE "C"
);
CREATE INDEX IF NOT EXISTS trigger_outbox_executions_by_app ON symphony.trigger_outbox_executions (app_id, completed_at);
-- A tree is read in the order of its ids, and no further than is shown.
CREATE INDEX IF NOT EXISTS trigger_outbox_executions_by_root ON symphony.trigger_outbox_executions (root_execution_id, id);
-- Pages of an app, the newest first: of those in one state, and through both of all.
CREATE INDEX IF NOT EXISTS trigger_outbox_executions_by_app_and_state ON symphony.trigger_outbox_executions (app_name, state, id);
-- What failed, of all apps; costs nothing until something fails.
CREATE INDEX IF NOT EXISTS trigger_outbox_executions_failed ON symphony.trigger_outbox_executions (id) WHERE state = 'FAILED';
-- Mail that was sent, by its Message-ID: what answers it is found.
CREATE INDEX IF NOT EXISTS trigger_outbox_executions_by_message
    ON symphony.trigger_outbox_executions ((payload->>'messageKey')) WHERE source_kind = 'email' AND script_id IS NULL;
CREATE INDEX IF NOT EXISTS trigger_outbox_executions_by_reply ON symphony.trigger_outbox_executions (reply_to) WHERE reply_to IS NOT NULL;

-- How long an app wants its executions and logs to be kept (NULL: as the lane is configured), and up to when that was done.
-- It outlives the app, as they do.
CREATE TABLE IF NOT EXISTS symphony.trigger_retention (
    app_id          UUID CONSTRAINT trigger_retention_is_one_an_app PRIMARY KEY,
    executions_days INT CONSTRAINT trigger_retention_keeps_executions_so_long CHECK (executions_days BETWEEN 1 AND 36500),
    logs_days       INT CONSTRAINT trigger_retention_keeps_logs_so_long CHECK (logs_days BETWEEN 1 AND 36500),
    executions_retired_before TIMESTAMPTZ,
    logs_retired_before       TIMESTAMPTZ
);

-- The lane's switches: exactly one row.
CREATE TABLE IF NOT EXISTS symphony.trigger_outbox_settings (
    only_row  BOOLEAN CONSTRAINT trigger_outbox_settings_have_one_row PRIMARY KEY DEFAULT true
        CONSTRAINT trigger_outbox_settings_row_is_true CHECK (only_row),
    paused    BOOLEAN NOT NULL DEFAULT false,
    -- A script's own writes fire at its depth plus one; past this they fail.
    depth_max INT NOT NULL DEFAULT 8 CONSTRAINT trigger_outbox_settings_end_somewhere CHECK (depth_max BETWEEN 0 AND 100),
    -- Whether executions outlive their app.
    keep_executions BOOLEAN NOT NULL DEFAULT true,
    -- As in payment_outbox_settings.
    approval_required BOOLEAN NOT NULL DEFAULT false
);
INSERT INTO symphony.trigger_outbox_settings DEFAULT VALUES ON CONFLICT DO NOTHING;
