-- Which installation this is, and on which server it was last known to run.
--
-- A restored, cloned or promoted database looks like the one it was copied from. What it does not share is the server:
-- the system identifier of another cluster, the timeline of a promotion, or the witnesses that workers keep outside.

CREATE TABLE IF NOT EXISTS symphony.symphony_installation (
    only_row          BOOLEAN CONSTRAINT symphony_installation_has_one_row PRIMARY KEY DEFAULT true
        CONSTRAINT symphony_installation_row_is_true CHECK (only_row),
    -- Part of every key a rail gets: the same for ever, whatever server this data moves to.
    installation_id   UUID NOT NULL DEFAULT gen_random_uuid(),
    -- The server that work was last allowed on.
    system_identifier BIGINT NOT NULL,
    timeline          INT NOT NULL,
    -- A dump that was restored beside the original, or a copy of it, is another database of the same server.
    database_oid      OID NOT NULL,
    -- When somebody last decided that another server goes on: a worker after a failover, a person after a restore.
    -- Witnesses carry it, so it must grow over every life this data has had: a time, not a count.
    decided_at        TIMESTAMPTZ NOT NULL DEFAULT 'epoch',
    -- Set: nothing is dispatched until `symphony restore accept`.
    held_because      TEXT,
    -- When another timeline was first noticed: workers have a moment to say that they miss nothing.
    noticed_at        TIMESTAMPTZ,
    -- What happened after lost_since may be missing here. Items asked for before ask_first_until, in this life or again
    -- after the loss, may have been sent in the lost one: their rail is asked first.
    lost_since        TIMESTAMPTZ,
    ask_first_until   TIMESTAMPTZ,
    CONSTRAINT symphony_installation_loss_is_whole CHECK ((lost_since IS NULL) = (ask_first_until IS NULL))
);
INSERT INTO symphony.symphony_installation (system_identifier, timeline, database_oid)
SELECT c.system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::BIT(32)::INT, d.oid
  FROM pg_control_system() c CROSS JOIN pg_database d WHERE d.datname = current_database()
ON CONFLICT DO NOTHING;

-- What each worker process has been told by this database. It keeps the number outside (in memory, and in a file where
-- one is configured): a database that knows a lower one has lost something.
CREATE TABLE IF NOT EXISTS symphony.symphony_witnesses (
    witness_id  UUID CONSTRAINT symphony_witnesses_are_named_once PRIMARY KEY,
    worker_id   TEXT COLLATE "C" NOT NULL,
    beat_no     BIGINT NOT NULL CONSTRAINT symphony_witnesses_count_from_one CHECK (beat_no >= 1),
    beat_at     TIMESTAMPTZ NOT NULL,
    -- Commits waited for a standby at this beat.
    synchronous BOOLEAN NOT NULL,
    -- The timeline after a failover on which this witness has said that it misses nothing.
    vouches_for INT,
    -- Kept in a file: it comes back after a restart, so its row stays.
    durable     BOOLEAN NOT NULL
) WITH (fillfactor = 50);
