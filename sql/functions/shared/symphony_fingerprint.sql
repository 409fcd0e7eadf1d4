-- symphony_fingerprint: a digest of everything Symphony has in the catalog.
--
-- Moves    nothing
-- Caller   symphony migrate (stores it) and symphony doctor (compares it)
-- Locks    nothing
-- Refuses  nothing
-- Why      a function edited by hand, a dropped index or a disabled trigger is invisible to a version
--          number. Only what the server keeps textually stable across a restart goes in.
CREATE OR REPLACE FUNCTION public.symphony_fingerprint() RETURNS TEXT
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH facts(fact) AS (
        SELECT format('column %s.%s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
                      a.attnotnull, pg_get_expr(d.adbin, d.adrelid))
          FROM pg_class c
          JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
         WHERE c.relowner = 'symphony_control'::regrole AND c.relkind IN ('r', 'v')
        UNION ALL
        SELECT format('constraint %s %s', conname, pg_get_constraintdef(k.oid))
          FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
         WHERE c.relowner = 'symphony_control'::regrole
        UNION ALL
        SELECT format('index %s', pg_get_indexdef(i.indexrelid))
          FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid AND c.relkind = 'r'
         WHERE c.relowner = 'symphony_control'::regrole
        UNION ALL
        SELECT format('trigger %s %s', pg_get_triggerdef(t.oid), t.tgenabled)
          FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
         WHERE c.relowner = 'symphony_control'::regrole AND NOT t.tgisinternal
        UNION ALL
        SELECT format('view %s %s', c.relname, pg_get_viewdef(c.oid))
          FROM pg_class c WHERE c.relowner = 'symphony_control'::regrole AND c.relkind = 'v'
        UNION ALL
        SELECT format('function %s', pg_get_functiondef(p.oid))
          FROM pg_proc p WHERE p.proowner = 'symphony_control'::regrole AND p.prokind = 'f'
    )
    SELECT encode(sha256(convert_to(string_agg(fact, E'\n' ORDER BY fact COLLATE "C"), 'UTF8')), 'hex') FROM facts
$$;
