-- What the examples need besides Symphony: tables for their own state. Once, as whoever owns the database:
--
--   psql "$ADMIN_URL" -f examples/setup.sql
--   psql "$ADMIN_URL" -c "CREATE ROLE shop LOGIN PASSWORD '…'" -c 'GRANT symphony_ingest TO shop' \
--        -c 'GRANT SELECT, INSERT, UPDATE ON public.example_invoices TO shop'
--   psql "$ADMIN_URL" -c "CREATE ROLE wallet LOGIN PASSWORD '…'" -c 'GRANT symphony_consumer TO wallet' \
--        -c 'GRANT SELECT, INSERT, UPDATE ON public.example_balances TO wallet'

CREATE TABLE IF NOT EXISTS public.example_invoices (
    id          TEXT PRIMARY KEY,
    amount      NUMERIC NOT NULL,
    state       TEXT NOT NULL,
    -- What is told of it is made once and kept, so that a repeated try tells the very same event. The time is kept as the
    -- event carries it: no driver can round it.
    event_id    UUID NOT NULL DEFAULT gen_random_uuid(),
    occurred_at TEXT NOT NULL DEFAULT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
);

-- The consumers' own state.
CREATE TABLE IF NOT EXISTS public.example_balances (
    account TEXT PRIMARY KEY,
    cents   BIGINT NOT NULL
);
