-- write_kv: write an entry as one run or caller wants it, and fire what watches it.
--
-- Moves    the entry; nothing -> pending, for each matching trigger
-- Caller   kv_set, kv_delete, apply_trigger_effects; nobody else may
-- Locks    the entry, until the caller's transaction ends
-- Refuses  P7005 for a bad key, time to live or value, an increment of what is no number, or more than p_rows_left and
--          p_bytes_left; P7011 if the entry is not as p_noted says, or a comparison comes out otherwise than its script was told
-- Why      the entry and what it fires commit together. All writes of a run to one key are one change: only the last value
--          is ever committed, and it fires once. What an increment or a comparison means is decided here, under the
--          entry's lock. Deleting what is not there changes nothing and fires nothing; an expired entry is not there.
CREATE OR REPLACE FUNCTION symphony.write_kv(
    p_app_id UUID, p_key TEXT, p_writes JSONB[], p_origin_principal UUID, p_depth INT, p_parent UUID, p_root UUID,
    p_after_dead_letter BOOLEAN, p_noted JSONB DEFAULT NULL, INOUT p_rows_left INT DEFAULT NULL, INOUT p_bytes_left BIGINT DEFAULT NULL,
    OUT entry_version BIGINT
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_entry    symphony.kv_entries;
    v_found    BOOLEAN;
    v_is_there BOOLEAN;
    v_current  TEXT;
    v_previous JSONB;
    v_value    JSONB;
    v_expires  TIMESTAMPTZ;
    v_until    TIMESTAMPTZ;
    v_wrote    BOOLEAN;
    v_holds    BOOLEAN;
    v_write    JSONB;
    v_fired    RECORD;
BEGIN
    PERFORM symphony.require_outbox_id('p_key', p_key, 512);
    -- Two may write a new key at once: the second looks again, and finds what the first wrote.
    LOOP
        SELECT e.* INTO v_entry FROM symphony.kv_entries e WHERE e.app_id = p_app_id AND e.key = p_key FOR UPDATE;
        v_found := FOUND;
        v_is_there := v_found AND (v_entry.expires_at IS NULL OR v_entry.expires_at > clock_timestamp());
        v_current := CASE WHEN v_is_there THEN v_entry.entry_no || '.' || v_entry.version END;
        IF p_noted IS NOT NULL AND v_current IS DISTINCT FROM p_noted->>'version' THEN
            RAISE EXCEPTION 'an entry has changed since it was read' USING ERRCODE = 'P7011';
        END IF;
        v_previous := CASE WHEN v_is_there THEN v_entry.value END;
        v_value := v_previous;
        v_expires := CASE WHEN v_is_there THEN v_entry.expires_at END;
        v_wrote := false;
        FOREACH v_write IN ARRAY p_writes LOOP
            v_until := NULL;
            IF v_write ? 'ttlSeconds' THEN
                IF (jsonb_typeof(v_write->'ttlSeconds') = 'number' AND v_write->>'ttlSeconds' ~ '^[1-9][0-9]{0,8}$') IS NOT TRUE THEN
                    RAISE EXCEPTION 'ttlSeconds must be a whole number from 1 to 999999999' USING ERRCODE = 'P7005';
                END IF;
                v_until := clock_timestamp() + make_interval(secs => (v_write->>'ttlSeconds')::INT);
            END IF;
            IF v_write->>'kind' = 'kv_set' THEN
                v_value := coalesce(v_write->'value', 'null');
                v_expires := v_until;
                v_wrote := true;
            ELSIF v_write->>'kind' = 'kv_delete' THEN
                v_value := NULL;
                v_wrote := true;
            ELSIF v_write->>'kind' = 'kv_increment' THEN
                IF jsonb_typeof(v_write->'by') IS DISTINCT FROM 'number' THEN
                    RAISE EXCEPTION 'by must be a number' USING ERRCODE = 'P7005';
                ELSIF v_value IS NULL THEN
                    v_value := v_write->'by';
                    v_expires := v_until;
                ELSIF jsonb_typeof(v_value) <> 'number' THEN
                    RAISE EXCEPTION 'kv.increment: the entry holds no number: set one first, or use another key' USING ERRCODE = 'P7005';
                ELSE
                    v_value := to_jsonb((v_value #>> '{}')::NUMERIC + (v_write->>'by')::NUMERIC);
                END IF;
                v_wrote := true;
            ELSE
                v_holds := CASE
                    WHEN v_write->>'kind' = 'kv_set_if_absent' THEN v_value IS NULL
                    WHEN v_write ? 'version' THEN NOT v_wrote AND v_current IS NOT DISTINCT FROM v_write->>'version'
                    ELSE coalesce(v_value, 'null') = coalesce(v_write->'expected', 'null') END;
                IF v_holds <> coalesce((v_write->>'told')::BOOLEAN, true) THEN
                    RAISE EXCEPTION 'an entry has changed since it was compared' USING ERRCODE = 'P7011';
                ELSIF v_holds THEN
                    v_value := coalesce(v_write->'value', 'null');
                    v_expires := v_until;
                    v_wrote := true;
                END IF;
            END IF;
        END LOOP;
        IF NOT v_wrote OR v_value IS NULL AND NOT v_is_there THEN
            entry_version := 0;
            RETURN;
        END IF;
        PERFORM symphony.require_plain_json('p_value', v_value, 256);
        IF v_is_there AND v_value IS NOT NULL THEN
            UPDATE symphony.kv_entries e SET value = v_value, version = e.version + 1, expires_at = v_expires, updated_at = clock_timestamp()
             WHERE e.app_id = p_app_id AND e.key = p_key RETURNING e.version INTO entry_version;
            EXIT;
        END IF;
        IF v_found THEN
            DELETE FROM symphony.kv_entries e WHERE e.app_id = p_app_id AND e.key = p_key;
        END IF;
        IF v_value IS NULL THEN
            entry_version := v_entry.version;
            EXIT;
        END IF;
        INSERT INTO symphony.kv_entries AS e (app_id, key, value, expires_at) VALUES (p_app_id, p_key, v_value, v_expires)
        ON CONFLICT (app_id, key) DO NOTHING RETURNING e.version INTO entry_version;
        EXIT WHEN FOUND;
    END LOOP;
    v_fired := symphony.fire_triggers(
        p_app_id, 'kv', p_key,
        jsonb_build_object('operation', CASE WHEN v_value IS NULL THEN 'delete' ELSE 'set' END, 'key', p_key, 'value', v_value,
                           'previous', v_previous, 'version', entry_version),
        p_origin_principal, p_depth, p_parent, p_root, p_after_dead_letter, p_rows_left, p_bytes_left);
    p_rows_left := v_fired.p_rows_left;
    p_bytes_left := v_fired.p_bytes_left;
END $$;
