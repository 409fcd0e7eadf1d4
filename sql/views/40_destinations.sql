-- Rails and the topics of buses as the live workers see them, and what nobody serves.

-- One row per rail, topic ('bus/topic') or runner of scripts that a live worker serves: the worst of what they say. A worker lives if it spoke
-- within twenty seconds.
CREATE OR REPLACE VIEW symphony.outbox_destination_status AS
SELECT d.lane, d.name, count(*) AS workers, count(*) FILTER (WHERE d.breaker <> 'CLOSED') AS workers_away,
       CASE WHEN bool_or(d.breaker = 'OPEN') THEN 'OPEN' WHEN bool_or(d.breaker = 'HALF_OPEN') THEN 'HALF_OPEN' ELSE 'CLOSED' END AS breaker,
       min(d.open_since) AS open_since, min(d.next_probe_at) AS next_probe_at, max(d.troubles) AS troubles,
       (array_agg(d.last_trouble ORDER BY d.last_trouble_at DESC NULLS LAST))[1] AS last_trouble, max(d.last_trouble_at) AS last_trouble_at,
       sum(d.calls * 60000::BIGINT / GREATEST(d.window_ms, 1))::BIGINT AS calls_per_minute,
       (sum(d.latency_ms::BIGINT * d.calls) / NULLIF(sum(d.calls) FILTER (WHERE d.latency_ms IS NOT NULL), 0))::BIGINT AS latency_ms,
       max(d.rate_per_second) AS rate_per_second, max(d.reported_at) AS reported_at
  FROM symphony.outbox_destinations d
 CROSS JOIN (SELECT clock_timestamp() - INTERVAL '20 seconds' AS since OFFSET 0) live
 WHERE d.reported_at > live.since
 GROUP BY d.lane, d.name;

-- Rails with pending payments that no live worker serves, and lanes with work and no live worker. Rails are found by one index
-- probe each, from each rail's first entry to the next rail's.
CREATE OR REPLACE VIEW symphony.outbox_unserved AS
WITH RECURSIVE working(rail_type) AS (
    (SELECT p.rail_type FROM symphony.payment_outbox_pending p WHERE p.hold IS NULL ORDER BY p.rail_type LIMIT 1)
    UNION ALL
    SELECT (SELECT p.rail_type FROM symphony.payment_outbox_pending p
             WHERE p.hold IS NULL AND p.rail_type > w.rail_type ORDER BY p.rail_type LIMIT 1)
      FROM working w WHERE w.rail_type IS NOT NULL
)
SELECT 'payments'::TEXT AS lane, w.rail_type AS name, waits.items AS pending, waits.oldest AS oldest_created_at
  FROM working w
 CROSS JOIN LATERAL (SELECT count(*) AS items, min(p.created_at) AS oldest FROM symphony.payment_outbox_pending p
                      WHERE p.hold IS NULL AND p.rail_type = w.rail_type) waits
 WHERE w.rail_type IS NOT NULL
   AND NOT EXISTS (SELECT FROM symphony.outbox_destination_status d WHERE d.lane = 'payments' AND d.name = w.rail_type)
UNION ALL
SELECT 'events', '*', NULL, oldest.created_at
  FROM (SELECT min(first.created_at) AS created_at
          FROM symphony.event_outbox_cursors c
         CROSS JOIN LATERAL (SELECT l.created_at FROM symphony.event_outbox_log l
                              WHERE l.bucket = c.bucket AND l.position > c.published_through ORDER BY l.position LIMIT 1) first) oldest
 WHERE oldest.created_at IS NOT NULL
   AND NOT EXISTS (SELECT FROM symphony.outbox_destination_status d WHERE d.lane = 'events')
UNION ALL
SELECT 'triggers', '*', waits.items, waits.oldest
  FROM (SELECT count(*) AS items, min(p.created_at) AS oldest FROM symphony.trigger_outbox_pending p) waits
 WHERE waits.items > 0
   AND NOT EXISTS (SELECT FROM symphony.outbox_destination_status d WHERE d.lane = 'triggers');
