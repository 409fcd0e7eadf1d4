-- Who acts and who causes something, by name. Executions, routes and triggers refer to them by their ids, so rows stay.
CREATE TABLE IF NOT EXISTS symphony.principals (
    -- Derived from kind and name: the same after a restore.
    principal_id  UUID CONSTRAINT principals_are_numbered_once PRIMARY KEY,
    -- login: of the database. token: of the API, as person/name. app: the app itself, such as its clock. mail: a verified
    -- sender. webhook: whoever holds a route's secret, as app/secret.
    kind          TEXT COLLATE "C" NOT NULL
        CONSTRAINT principals_are_of_a_known_kind CHECK (kind IN ('login', 'token', 'app', 'mail', 'webhook')),
    name          TEXT COLLATE "C" NOT NULL,
    first_seen_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT principals_are_named_once UNIQUE (kind, name)
);
