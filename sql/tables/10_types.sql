-- Types shared by every lane. A lane's tables never invent their own words for an outcome.

DO $$ BEGIN
    -- DISPATCHING is kept so that older readers can name it; a CHECK on every ledger refuses it.
    CREATE TYPE symphony.outbox_attempt_state AS ENUM
        ('DISPATCHING', 'DISPATCHED', 'RETRYABLE', 'FAILED', 'ZOMBIE_REQUEUE');
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

DO $$ BEGIN
    -- Why a pending row is out of the claimable index. NULL means nothing keeps it.
    CREATE TYPE symphony.outbox_hold AS ENUM ('PARKED', 'BEHIND_HEAD', 'PARTICIPANT_PAUSED');
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

-- PostgreSQL 18 has uuidv7(); before it, ours, where no service has one of its own. Time first, so that new keys land on the same index page:
-- random v4 keys cost 27 % of the drain.
DO $do$ BEGIN
    IF pg_catalog.to_regprocedure('pg_catalog.uuidv7()') IS NULL THEN
        CREATE OR REPLACE FUNCTION symphony.uuidv7() RETURNS uuid
        LANGUAGE sql VOLATILE PARALLEL SAFE
        RETURN pg_catalog.encode(
            pg_catalog.set_bit(
                pg_catalog.set_bit(
                    pg_catalog.overlay(
                        pg_catalog.uuid_send(pg_catalog.gen_random_uuid()),
                        pg_catalog.substring(
                            pg_catalog.int8send(
                                pg_catalog.floor(
                                    EXTRACT(EPOCH FROM pg_catalog.clock_timestamp()) * 1000)::bigint), 3),
                        1, 6),
                    52, 1),
                53, 1),
            'hex')::uuid;
    END IF;
END $do$;
