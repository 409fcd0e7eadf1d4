-- approved_outbox_act: who has approved the act that this transaction is carrying out; NULL if nobody has.
--
-- Moves    nothing
-- Caller   every act, through require_outbox_act and record_outbox_act
-- Locks    nothing
-- Refuses  nothing
-- Why      the row is written before the approved act and gone after it, both inside approve_outbox_request: no caller can make
--          it, and none can use it for another act.
CREATE OR REPLACE FUNCTION symphony.approved_outbox_act() RETURNS TEXT
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT a.approver FROM symphony.outbox_approved_acts a WHERE a.transaction_id = pg_current_xact_id_if_assigned());
END $$;
