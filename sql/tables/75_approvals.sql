-- Acts that wait for a second person, and what became of them.
--
-- Both tables only grow: a request is never changed, and is decided once.

CREATE TABLE IF NOT EXISTS symphony.outbox_approval_requests (
    request_no   BIGINT GENERATED ALWAYS AS IDENTITY CONSTRAINT outbox_approval_requests_are_numbered PRIMARY KEY,
    lane         TEXT COLLATE "C" NOT NULL
        CONSTRAINT outbox_approval_requests_are_of_a_lane CHECK (lane IN ('payments', 'events', 'triggers')),
    -- The function that the approval calls, and its arguments by name: an object, or a list of them for many at once.
    act          TEXT COLLATE "C" NOT NULL,
    arguments    JSONB NOT NULL
        CONSTRAINT outbox_approval_requests_name_their_arguments CHECK (jsonb_typeof(arguments) IN ('object', 'array')),
    -- What the act would have answered when it was asked for.
    preview      JSONB NOT NULL,
    actor        TEXT NOT NULL,
    reason       TEXT NOT NULL,
    -- The login that asked: it is the one that may not approve.
    session_role TEXT NOT NULL DEFAULT session_user,
    -- The token it asked with, where it came over the API: all clients of that share a login.
    token_id     UUID,
    created_at   TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    expires_at   TIMESTAMPTZ NOT NULL,
    CONSTRAINT outbox_approval_requests_expire_later CHECK (expires_at > created_at)
);
-- What waits has not expired: the past is not walked through.
CREATE INDEX IF NOT EXISTS outbox_approval_requests_by_expiry ON symphony.outbox_approval_requests (expires_at);

CREATE TABLE IF NOT EXISTS symphony.outbox_approval_decisions (
    request_no   BIGINT CONSTRAINT outbox_approval_decisions_are_made_once PRIMARY KEY,
    decision     TEXT COLLATE "C" NOT NULL
        CONSTRAINT outbox_approval_decisions_are_known CHECK (decision IN ('APPROVED', 'REJECTED', 'WITHDRAWN')),
    actor        TEXT NOT NULL,
    reason       TEXT NOT NULL,
    session_role TEXT NOT NULL DEFAULT session_user,
    token_id     UUID,
    -- What the act answered; for many at once, one answer or refusal each.
    answer       JSONB,
    decided_at   TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT outbox_approval_decisions_answer_if_approved CHECK ((decision = 'APPROVED') = (answer IS NOT NULL))
);

-- The approved act that a transaction is carrying out: there from before the act until after it, and so never committed.
CREATE TABLE IF NOT EXISTS symphony.outbox_approved_acts (
    transaction_id XID8 CONSTRAINT outbox_approved_acts_are_one_each PRIMARY KEY,
    approver       TEXT NOT NULL,
    -- Who asked for it: a principal.
    asked_by       UUID NOT NULL,
    -- With which token of the API, if it came over that.
    token_id       UUID
);
