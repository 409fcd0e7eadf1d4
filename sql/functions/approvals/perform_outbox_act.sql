-- perform_outbox_act: an act by its name, with its arguments by theirs.
--
-- Moves    as the act does
-- Caller   call_outbox_act; nobody else may
-- Locks    as the act does
-- Refuses  whatever the act refuses
-- Why      every call is written out, so that no text of a request ever becomes SQL. A test compares it with the catalog.
CREATE OR REPLACE FUNCTION symphony.perform_outbox_act(
    p_act TEXT, p_arguments JSONB, p_actor TEXT, p_reason TEXT, p_approver TEXT, p_dry_run BOOLEAN
) RETURNS JSONB
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_answer JSONB;
BEGIN
    CASE p_act
        WHEN 'release_outbox' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.release_outbox(p_outbox_id => (p_arguments->>'p_outbox_id')::UUID,
                p_actor => p_actor, p_reason => p_reason, p_approver => p_approver, p_dry_run => p_dry_run,
                p_despite_unknown => coalesce((p_arguments->>'p_despite_unknown')::BOOLEAN, false)) a);
        WHEN 'resolve_outbox' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.resolve_outbox(p_outbox_id => (p_arguments->>'p_outbox_id')::UUID,
                p_resolution => p_arguments->>'p_resolution', p_actor => p_actor, p_reason => p_reason,
                p_rail_reference => p_arguments->>'p_rail_reference', p_approver => p_approver, p_dry_run => p_dry_run,
                p_despite_unknown => coalesce((p_arguments->>'p_despite_unknown')::BOOLEAN, false)) a);
        WHEN 'redrive_outbox' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.redrive_outbox(p_outbox_id => (p_arguments->>'p_outbox_id')::UUID,
                p_actor => p_actor, p_reason => p_reason, p_approver => p_approver, p_dry_run => p_dry_run,
                p_despite_unknown => coalesce((p_arguments->>'p_despite_unknown')::BOOLEAN, false)) a);
        WHEN 'skip_outbox_head' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.skip_outbox_head(
                p_participant_id => p_arguments->>'p_participant_id', p_rail_type => p_arguments->>'p_rail_type',
                p_actor => p_actor, p_reason => p_reason, p_approver => p_approver, p_dry_run => p_dry_run) a);
        WHEN 'close_payment_dead_letter' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.close_payment_dead_letter(
                p_outbox_id => (p_arguments->>'p_outbox_id')::UUID, p_actor => p_actor, p_reason => p_reason,
                p_approver => p_approver, p_dry_run => p_dry_run) a);
        WHEN 'close_payment_incident' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.close_payment_incident(
                p_incident_no => (p_arguments->>'p_incident_no')::BIGINT, p_actor => p_actor, p_reason => p_reason,
                p_approver => p_approver, p_dry_run => p_dry_run) a);
        WHEN 'resume_payment_lane' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.resume_payment_lane(p_actor => p_actor, p_reason => p_reason,
                p_dry_run => p_dry_run) a);
        WHEN 'resume_payment_rail' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.resume_payment_rail(p_rail_type => p_arguments->>'p_rail_type',
                p_actor => p_actor, p_reason => p_reason, p_dry_run => p_dry_run) a);
        WHEN 'resume_payment_participant' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.resume_payment_participant(
                p_participant_id => p_arguments->>'p_participant_id', p_actor => p_actor, p_reason => p_reason,
                p_dry_run => p_dry_run) a);
        WHEN 'configure_payment_rail' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.configure_payment_rail(p_rail_type => p_arguments->>'p_rail_type',
                p_actor => p_actor, p_reason => p_reason, p_fifo => (p_arguments->>'p_fifo')::BOOLEAN,
                p_on_failed => p_arguments->>'p_on_failed', p_marks_sending => (p_arguments->>'p_marks_sending')::BOOLEAN,
                p_give_up_after_seconds => (p_arguments->>'p_give_up_after_seconds')::INT) a);
        WHEN 'configure_payment_lane' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.configure_payment_lane(p_actor => p_actor, p_reason => p_reason,
                p_record_routine_events => (p_arguments->>'p_record_routine_events')::BOOLEAN,
                p_approval_required => (p_arguments->>'p_approval_required')::BOOLEAN, p_approver => p_approver) a);
        WHEN 'accept_symphony_server' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.accept_symphony_server(p_actor => p_actor, p_reason => p_reason,
                p_approver => p_approver, p_lost_since => (p_arguments->>'p_lost_since')::TIMESTAMPTZ,
                p_ask_first_seconds => coalesce((p_arguments->>'p_ask_first_seconds')::INT, 86400), p_dry_run => p_dry_run) a);
        WHEN 'redrive_event_outbox' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.redrive_event_outbox(
                p_event_id => (p_arguments->>'p_event_id')::UUID, p_actor => p_actor, p_reason => p_reason,
                p_approver => p_approver, p_dry_run => p_dry_run,
                p_resend_sent => coalesce((p_arguments->>'p_resend_sent')::BOOLEAN, false),
                p_dedup_window_seconds => coalesce((p_arguments->>'p_dedup_window_seconds')::INT, 300)) a);
        WHEN 'skip_event_outbox' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.skip_event_outbox(p_event_id => (p_arguments->>'p_event_id')::UUID,
                p_actor => p_actor, p_reason => p_reason, p_approver => p_approver, p_dry_run => p_dry_run) a);
        WHEN 'close_event_dead_letter' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.close_event_dead_letter(
                p_event_id => (p_arguments->>'p_event_id')::UUID, p_actor => p_actor, p_reason => p_reason,
                p_approver => p_approver, p_dry_run => p_dry_run) a);
        WHEN 'close_event_incident' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.close_event_incident(
                p_incident_no => (p_arguments->>'p_incident_no')::BIGINT, p_actor => p_actor, p_reason => p_reason,
                p_approver => p_approver, p_dry_run => p_dry_run) a);
        WHEN 'resume_event_lane' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.resume_event_lane(p_actor => p_actor, p_reason => p_reason,
                p_dry_run => p_dry_run) a);
        WHEN 'resume_event_topic' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.resume_event_topic(p_topic => p_arguments->>'p_topic',
                p_actor => p_actor, p_reason => p_reason, p_dry_run => p_dry_run) a);
        WHEN 'configure_event_lane' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.configure_event_lane(p_actor => p_actor, p_reason => p_reason,
                p_denied_payload_keys => CASE WHEN p_arguments ? 'p_denied_payload_keys' THEN ARRAY(SELECT e FROM jsonb_array_elements_text(p_arguments->'p_denied_payload_keys') e) END,
                p_approval_required => (p_arguments->>'p_approval_required')::BOOLEAN) a);
        WHEN 'replay_trigger_execution' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.replay_trigger_execution(p_id => (p_arguments->>'p_id')::UUID,
                p_actor => p_actor, p_reason => p_reason, p_approver => p_approver, p_dry_run => p_dry_run) a);
        WHEN 'close_trigger_dead_letter' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.close_trigger_dead_letter(p_id => (p_arguments->>'p_id')::UUID,
                p_actor => p_actor, p_reason => p_reason, p_approver => p_approver, p_dry_run => p_dry_run) a);
        WHEN 'close_trigger_incident' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.close_trigger_incident(
                p_incident_no => (p_arguments->>'p_incident_no')::BIGINT, p_actor => p_actor, p_reason => p_reason,
                p_approver => p_approver, p_dry_run => p_dry_run) a);
        WHEN 'resume_trigger_lane' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.resume_trigger_lane(p_actor => p_actor, p_reason => p_reason,
                p_dry_run => p_dry_run) a);
        WHEN 'resume_app' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.resume_app(p_app => p_arguments->>'p_app', p_actor => p_actor,
                p_reason => p_reason, p_dry_run => p_dry_run) a);
        WHEN 'push_app' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.push_app(p_app => p_arguments->>'p_app',
                p_manifest => p_arguments->'p_manifest', p_actor => p_actor) a);
        WHEN 'delete_app' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.delete_app(p_app => p_arguments->>'p_app', p_actor => p_actor,
                p_reason => p_reason, p_approver => p_approver, p_dry_run => p_dry_run) a);
        WHEN 'grant_app_mail' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.grant_app_mail(p_app => p_arguments->>'p_app',
                p_filter => p_arguments->>'p_filter', p_actor => p_actor, p_reason => p_reason, p_dry_run => p_dry_run) a);
        WHEN 'revoke_app_mail' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.revoke_app_mail(p_app => p_arguments->>'p_app',
                p_filter => p_arguments->>'p_filter', p_actor => p_actor, p_reason => p_reason, p_dry_run => p_dry_run) a);
        WHEN 'configure_trigger_lane' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.configure_trigger_lane(p_actor => p_actor, p_reason => p_reason,
                p_approver => p_approver, p_app => p_arguments->>'p_app', p_paused => (p_arguments->>'p_paused')::BOOLEAN,
                p_depth_max => (p_arguments->>'p_depth_max')::INT,
                p_keep_executions => (p_arguments->>'p_keep_executions')::BOOLEAN,
                p_approval_required => (p_arguments->>'p_approval_required')::BOOLEAN) a);
        WHEN 'rollback_app' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.rollback_app(p_app => p_arguments->>'p_app', p_actor => p_actor,
                p_reason => p_reason, p_version => (p_arguments->>'p_version')::INT, p_approver => p_approver, p_dry_run => p_dry_run) a);
        WHEN 'set_kv_entry' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.set_kv_entry(p_app => p_arguments->>'p_app', p_key => p_arguments->>'p_key',
                p_value => p_arguments->'p_value', p_actor => p_actor, p_reason => p_reason,
                p_ttl_seconds => (p_arguments->>'p_ttl_seconds')::INT, p_approver => p_approver, p_dry_run => p_dry_run) a);
        WHEN 'delete_kv_entry' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.delete_kv_entry(p_app => p_arguments->>'p_app', p_key => p_arguments->>'p_key',
                p_actor => p_actor, p_reason => p_reason, p_approver => p_approver, p_dry_run => p_dry_run) a);
        WHEN 'set_app_secret' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.set_app_secret(p_app => p_arguments->>'p_app', p_name => p_arguments->>'p_name',
                p_key_id => p_arguments->>'p_key_id', p_sealed => p_arguments->>'p_sealed', p_actor => p_actor, p_reason => p_reason,
                p_approver => p_approver, p_dry_run => p_dry_run) a);
        WHEN 'delete_app_secret' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.delete_app_secret(p_app => p_arguments->>'p_app', p_name => p_arguments->>'p_name',
                p_actor => p_actor, p_reason => p_reason, p_approver => p_approver, p_dry_run => p_dry_run) a);
        WHEN 'park_outbox' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.park_outbox(p_outbox_id => (p_arguments->>'p_outbox_id')::UUID,
                p_actor => p_actor, p_reason => p_reason, p_approver => p_approver, p_dry_run => p_dry_run) a);
        WHEN 'inquire_outbox' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.inquire_outbox(p_outbox_id => (p_arguments->>'p_outbox_id')::UUID,
                p_actor => p_actor, p_reason => p_reason, p_dry_run => p_dry_run) a);
        WHEN 'reset_outbox_destination' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.reset_outbox_destination(p_lane => p_arguments->>'p_lane',
                p_name => p_arguments->>'p_name', p_actor => p_actor, p_reason => p_reason, p_dry_run => p_dry_run) a);
        WHEN 'pause_payment_lane' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.pause_payment_lane(p_actor => p_actor, p_reason => p_reason,
                p_dry_run => p_dry_run) a);
        WHEN 'pause_payment_rail' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.pause_payment_rail(p_rail_type => p_arguments->>'p_rail_type',
                p_actor => p_actor, p_reason => p_reason, p_dry_run => p_dry_run) a);
        WHEN 'pause_payment_participant' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.pause_payment_participant(
                p_participant_id => p_arguments->>'p_participant_id', p_actor => p_actor, p_reason => p_reason,
                p_dry_run => p_dry_run) a);
        WHEN 'pause_event_lane' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.pause_event_lane(p_actor => p_actor, p_reason => p_reason,
                p_dry_run => p_dry_run) a);
        WHEN 'pause_event_topic' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.pause_event_topic(p_topic => p_arguments->>'p_topic',
                p_actor => p_actor, p_reason => p_reason, p_dry_run => p_dry_run) a);
        WHEN 'pause_trigger_lane' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.pause_trigger_lane(p_actor => p_actor, p_reason => p_reason,
                p_dry_run => p_dry_run) a);
        WHEN 'pause_app' THEN
            v_answer := (SELECT to_jsonb(a) FROM symphony.pause_app(p_app => p_arguments->>'p_app', p_actor => p_actor,
                p_reason => p_reason, p_dry_run => p_dry_run) a);
    END CASE;
    RETURN v_answer;
END $$;
