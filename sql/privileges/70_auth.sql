-- Whoever hands out access tokens of the API: nothing else. Their hashes are read by nobody.
GRANT EXECUTE ON FUNCTION symphony.create_api_token, symphony.revoke_api_token TO symphony_auth;
GRANT SELECT ON symphony.api_token_states TO symphony_auth, symphony_auditor;
GRANT SELECT ON symphony.symphony_schema, symphony.outbox_lane_states TO symphony_auth;
