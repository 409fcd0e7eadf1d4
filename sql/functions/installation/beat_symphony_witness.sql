-- beat_symphony_witness: a worker says what this database told it last, and is told the next number to keep.
--
-- Moves    nothing; after a failover, what this installation may do on its new server
-- Caller   symphony_executor: every second, and when a claim was refused with P7020
-- Locks    the witness's row; the installation's row where there is something to decide
-- Refuses  P7005 invalid argument
-- Why      what a witness knows and the database does not was lost. A failover goes on by itself: at once where every
--          worker says that it misses nothing and commits had waited for a standby; otherwise what was sent in the
--          lost moments is unknown, and rails are asked first. More than p_loss_max_seconds lost is no failover but a
--          restored backup or a copy: that waits for a person. Nothing is counted on meanwhile, because the count is
--          the evidence. p_at_start says that what the worker knows comes from a file: it did not see what others did since.
CREATE OR REPLACE FUNCTION symphony.beat_symphony_witness(
    p_witness_id UUID, p_worker_id TEXT, p_durable BOOLEAN DEFAULT false, p_beat_no BIGINT DEFAULT NULL,
    p_beat_at TIMESTAMPTZ DEFAULT NULL, p_decided_at TIMESTAMPTZ DEFAULT NULL, p_claimed_at TIMESTAMPTZ DEFAULT NULL,
    p_loss_max_seconds INT DEFAULT 300, p_at_start BOOLEAN DEFAULT false
) RETURNS TABLE (state TEXT, detail TEXT, installation_id UUID, beat_no BIGINT, beat_at TIMESTAMPTZ, decided_at TIMESTAMPTZ)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now      TIMESTAMPTZ := clock_timestamp();
    v_loss_max INTERVAL := make_interval(secs => p_loss_max_seconds);
    v_timeline INT := symphony.server_timeline();
    v_system   BIGINT := (SELECT c.system_identifier FROM pg_control_system() c);
    v_known    symphony.symphony_installation;
    v_own      symphony.symphony_witnesses;
    v_newest   TIMESTAMPTZ;
    v_counts   BOOLEAN;
    v_missing  BOOLEAN;
    v_lost     TIMESTAMPTZ;
BEGIN
    PERFORM symphony.require_outbox_id('p_worker_id', p_worker_id);
    PERFORM symphony.require_read_committed();
    IF p_witness_id IS NULL OR (p_beat_no IS NULL) <> (p_beat_at IS NULL) OR (p_beat_no IS NULL) <> (p_decided_at IS NULL) THEN
        RAISE EXCEPTION 'p_witness_id must be given; p_beat_no, p_beat_at and p_decided_at come together or not at all' USING ERRCODE = 'P7005';
    END IF;
    SELECT i.* INTO STRICT v_known FROM symphony.symphony_installation i;
    SELECT w.* INTO v_own FROM symphony.symphony_witnesses w WHERE w.witness_id = p_witness_id;
    -- What it knows counts, unless somebody has decided since: then counting has begun anew.
    v_counts := coalesce(p_decided_at >= v_known.decided_at, false);
    v_missing := v_counts AND (
        p_decided_at > v_known.decided_at OR v_own.witness_id IS NULL OR v_own.beat_no < p_beat_no
        -- A worker's claims are forgotten after a day without any.
        OR (p_claimed_at > v_now - INTERVAL '20 hours') IS TRUE
           AND NOT EXISTS (SELECT FROM symphony.payment_outbox_workers c WHERE c.worker_id = p_worker_id AND c.last_claim_at >= p_claimed_at));

    IF v_missing OR v_known.held_because IS NOT NULL OR v_system <> v_known.system_identifier
       OR symphony.present_database() <> v_known.database_oid
       OR v_timeline <> v_known.timeline THEN
        SELECT i.* INTO STRICT v_known FROM symphony.symphony_installation i FOR UPDATE;
        -- Somebody else may have decided while this waited for the lock.
        v_counts := v_counts AND p_decided_at >= v_known.decided_at;
        v_missing := v_missing AND v_counts;
        SELECT max(w.beat_at) INTO v_newest FROM symphony.symphony_witnesses w;
        installation_id := v_known.installation_id;
        state := 'HELD';
        IF v_known.held_because IS NOT NULL THEN
            detail := v_known.held_because;
        ELSIF v_system <> v_known.system_identifier THEN
            detail := format('this is another server (system identifier %s instead of %s), so a restored or copied database', v_system,
                             v_known.system_identifier);
        ELSIF symphony.present_database() <> v_known.database_oid THEN
            detail := 'this is another database than on record, so a copy of it or a restored dump';
        ELSIF v_missing THEN
            v_lost := coalesce(v_own.beat_at, v_newest);
            detail := format('a worker was told something at %s that this database does not know; what it knows ends at %s',
                             GREATEST(p_beat_at, p_claimed_at), coalesce(v_newest::TEXT, 'no worker''s beat'));
            IF v_lost >= GREATEST(p_beat_at, p_claimed_at) - v_loss_max THEN
                v_lost := LEAST(v_lost, p_beat_at);
                state := 'ASK_FIRST';
            END IF;
        ELSIF v_timeline = v_known.timeline THEN
            state := 'OK';
        ELSE
            UPDATE symphony.symphony_installation i SET noticed_at = v_now WHERE v_known.noticed_at IS NULL;
            UPDATE symphony.symphony_witnesses w SET vouches_for = v_timeline
             WHERE w.witness_id = p_witness_id AND v_counts;
            -- Who has just been started knows nothing of what others did since it was stopped.
            IF v_newest IS NULL OR (v_newest < v_now - v_loss_max AND (p_at_start OR NOT v_counts)) THEN
                detail := format('the server is on timeline %s instead of %s, and no worker that has seen the earlier one can say what was lost',
                                 v_timeline, v_known.timeline);
            ELSIF NOT EXISTS (SELECT FROM symphony.symphony_witnesses w
                               WHERE w.beat_at > v_newest - INTERVAL '10 seconds'
                                 AND (NOT w.synchronous OR w.vouches_for IS DISTINCT FROM v_timeline)) THEN
                state := 'OK';
                detail := format('failover to timeline %s: commits had waited for a standby, and no worker misses anything', v_timeline);
                UPDATE symphony.symphony_installation i SET timeline = v_timeline, noticed_at = NULL;
                INSERT INTO symphony.payment_outbox_events (event_type, worker_id, reason, details)
                VALUES ('SERVER_CHANGED', p_worker_id, detail,
                        jsonb_build_object('timeline_before', v_known.timeline, 'timeline', v_timeline, 'ask_first', false));
            ELSIF EXISTS (SELECT FROM symphony.symphony_witnesses w WHERE w.beat_at > v_newest - INTERVAL '10 seconds' AND NOT w.synchronous)
                  OR v_known.noticed_at < v_now - INTERVAL '1 second' THEN
                state := 'ASK_FIRST';
                v_lost := v_newest;
                detail := format('failover to timeline %s: what was committed after %s may be lost', v_timeline, v_newest);
            ELSE
                state := 'WAITING';
                detail := format('failover to timeline %s: waiting for the other workers to say that they miss nothing', v_timeline);
            END IF;
        END IF;
        IF state = 'ASK_FIRST' THEN
            PERFORM symphony.go_on_asking_first(v_lost, INTERVAL '1 day');
            INSERT INTO symphony.payment_outbox_events (event_type, worker_id, reason, details)
            VALUES ('SERVER_CHANGED', p_worker_id, detail,
                    jsonb_build_object('timeline_before', v_known.timeline, 'timeline', v_timeline, 'ask_first', true, 'lost_since', v_lost));
            SELECT i.* INTO STRICT v_known FROM symphony.symphony_installation i;
        ELSIF state = 'HELD' AND v_missing AND v_known.held_because IS NULL AND v_system = v_known.system_identifier THEN
            -- Nothing else about this server would tell the next worker.
            UPDATE symphony.symphony_installation i SET held_because = detail;
        END IF;
        IF state IN ('HELD', 'WAITING') THEN
            decided_at := v_known.decided_at;
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;

    state := coalesce(state, 'OK');
    installation_id := v_known.installation_id;
    decided_at := v_known.decided_at;
    INSERT INTO symphony.symphony_witnesses AS w (witness_id, worker_id, beat_no, beat_at, synchronous, durable)
    VALUES (p_witness_id, p_worker_id, 1, v_now,
            current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') IN ('on', 'remote_apply'),
            coalesce(p_durable, false))
    ON CONFLICT (witness_id) DO UPDATE
       SET worker_id = excluded.worker_id, beat_no = w.beat_no + 1, beat_at = GREATEST(w.beat_at, excluded.beat_at),
           synchronous = excluded.synchronous, durable = excluded.durable, vouches_for = NULL
    RETURNING w.beat_no, w.beat_at INTO beat_no, beat_at;
    IF beat_no % 600 = 0 THEN
        DELETE FROM symphony.symphony_witnesses w WHERE NOT w.durable AND w.beat_at < v_now - INTERVAL '30 days';
    END IF;
    RETURN NEXT;
END $$;
