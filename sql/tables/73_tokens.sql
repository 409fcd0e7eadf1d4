-- Access tokens of the HTTP API. What a client holds is 256 random bits; here is only their SHA-256, which nobody may read.
CREATE TABLE IF NOT EXISTS symphony.api_tokens (
    token_id     UUID CONSTRAINT api_tokens_are_named_once PRIMARY KEY DEFAULT gen_random_uuid(),
    name         TEXT COLLATE "C" NOT NULL,
    -- Whose it is: their login's name, if they have one. Two tokens of one person are one person to an approval.
    person       TEXT NOT NULL,
    scopes       TEXT[] NOT NULL CONSTRAINT api_tokens_have_known_scopes
        CHECK (cardinality(scopes) >= 1 AND cardinality(scopes) <= 6 AND scopes <@ '{ingest,operate,approve,read,audit,call}'),
    token_hash   BYTEA NOT NULL CONSTRAINT api_tokens_are_secret_once UNIQUE
        CONSTRAINT api_tokens_are_hashed CHECK (octet_length(token_hash) = 32),
    created_by   TEXT NOT NULL,
    session_role TEXT NOT NULL DEFAULT session_user,
    created_at   TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    expires_at   TIMESTAMPTZ NOT NULL,
    revoked_at   TIMESTAMPTZ,
    revoked_by   TEXT,
    revoked_why  TEXT,
    CONSTRAINT api_tokens_expire_later CHECK (expires_at > created_at),
    CONSTRAINT api_tokens_are_revoked_by_somebody CHECK (num_nonnulls(revoked_at, revoked_by, revoked_why) IN (0, 3))
);
