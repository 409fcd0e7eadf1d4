//! The schema as installed: signatures, golden text, plpgsql_check.

use symphony::db::{calls, catalog, privileges};

use crate::support::TestDb;

#[tokio::test]
async fn every_wrapper_has_the_signature_of_the_live_function() {
    let db = TestDb::new().await;
    let mut connection = db.admin().await;
    for call in calls::ALL {
        let live: Vec<(String, String)> = sqlx::query_as(
            "SELECT pg_get_function_arguments(oid), pg_get_function_result(oid) FROM pg_proc WHERE pronamespace = 'symphony'::regnamespace AND proname = $1",
        )
        .bind(call.function)
        .fetch_all(&mut connection)
        .await
        .unwrap();
        assert_eq!(
            live,
            [(call.arguments.to_owned(), call.result.to_owned())],
            "{}",
            call.function
        );
        // And the statement that calls it can be prepared.
        let mut count = 0;
        for argument in 1..=40 {
            if call.sql.contains(&format!("${argument}")) {
                count = argument;
            }
        }
        assert_eq!(
            count,
            call.arguments.split(", p_").count() - usize::from(call.arguments.is_empty()),
            "{}",
            call.function
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("PREPARE s AS {}; DEALLOCATE s", call.sql)))
            .execute(&mut connection)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn every_function_a_role_may_call_has_a_wrapper() {
    let called: Vec<_> = calls::ALL.iter().map(|call| call.function).collect();
    for (function, callers) in privileges::FUNCTIONS {
        assert_eq!(called.contains(function), !callers.is_empty(), "{function}");
    }
}

/// A call of a SQL function costs microseconds; an inlined one, nothing.
#[tokio::test]
async fn what_is_asked_for_every_item_of_a_batch_is_inlined() {
    let db = TestDb::new().await;
    let mut connection = db.admin().await;
    let often = [
        "bulky_json_defect",
        "derive_key",
        "json_defect",
        "payment_request_defect",
        "payment_request_hash",
    ];
    for function in often {
        let explain: String = sqlx::query_scalar(
            "SELECT format('EXPLAIN (VERBOSE, COSTS OFF) SELECT symphony.%I(%s) FROM (SELECT %s FROM generate_series(1, 2) g OFFSET 0) x', \
                    p.proname, string_agg('c' || u.n, ', ' ORDER BY u.n), \
                    string_agg(format('CASE WHEN g > 0 THEN NULL::%s END AS c%s', format_type(u.type, NULL), u.n), ', ' ORDER BY u.n)) \
               FROM pg_proc p, unnest(p.proargtypes) WITH ORDINALITY u(type, n) \
              WHERE p.pronamespace = 'symphony'::regnamespace AND p.proname = $1 GROUP BY p.oid, p.proname",
        )
        .bind(function)
        .fetch_one(&mut connection)
        .await
        .unwrap();
        let plan: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(explain))
            .fetch_all(&mut connection)
            .await
            .unwrap();
        assert!(!plan.join("\n").contains(&format!("{function}(")), "{}", plan.join("\n"));
    }
}

#[tokio::test]
async fn the_installed_schema_is_the_golden_one() {
    let db = TestDb::new().await;
    let mut connection = db.admin().await;
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let version: i32 = db.one("SELECT current_setting('server_version_num')::int").await;
        assert!(version < 180_000, "written on a server that needs our own uuidv7()");
        let text = catalog::golden(&catalog::live(&mut connection).await.unwrap());
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/../../sql/schema.golden.txt"), text)
            .unwrap();
        return;
    }
    let differences =
        catalog::differences(&mut connection, &symphony::db::Schema::default()).await.unwrap();
    assert!(
        differences.is_empty(),
        "the schema differs from sql/schema.golden.txt; if that is meant, run UPDATE_GOLDEN=1 scripts/test golden\n{differences:#?}"
    );
}

#[tokio::test]
async fn plpgsql_check_finds_nothing_in_any_function() {
    let db = TestDb::new().await;
    let available: bool = db
        .one("SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'plpgsql_check')")
        .await;
    if !available {
        assert!(
            std::env::var_os("SYMPHONY_REQUIRE_PLPGSQL_CHECK").is_none(),
            "plpgsql_check is not installed for this server"
        );
        eprintln!(
            "plpgsql_check is not installed for this server: run scripts/test as root to have it"
        );
        return;
    }
    db.sql("CREATE SCHEMA checker; CREATE EXTENSION plpgsql_check SCHEMA checker").await;
    let found: Vec<String> = sqlx::query_scalar(
        "SELECT format('%s line %s: %s %s %s %s', p.proname, c.lineno, c.level, c.message, c.detail, c.query) \
           FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang AND l.lanname = 'plpgsql' \
          CROSS JOIN LATERAL checker.plpgsql_check_function_tb(p.oid, \
              CASE WHEN p.proname = 'notify_outbox_pending' THEN 'payment_outbox_pending'::regclass \
                   WHEN p.prorettype = 'trigger'::regtype THEN 'payment_outbox_attempts'::regclass ELSE 0 END, \
              security_warnings => true, performance_warnings => false) c \
          WHERE p.pronamespace = 'symphony'::regnamespace",
    )
    .fetch_all(&mut db.admin().await)
    .await
    .unwrap();
    assert_eq!(found, Vec::<String>::new());
}

#[tokio::test]
async fn ids_are_version_seven_and_follow_the_clock() {
    let db = TestDb::new().await;
    let odd = db
        .count("(SELECT symphony.time_ordered_id() AS id FROM generate_series(1, 1000)) g WHERE substr(id::text, 15, 1) <> '7' OR substr(id::text, 20, 1) NOT IN ('8', '9', 'a', 'b')")
        .await;
    assert_eq!(odd, 0);
    let near: bool = db
        .one("SELECT abs(extract(epoch FROM clock_timestamp()) * 1000 - ('x' || translate(left(symphony.time_ordered_id()::text, 13), '-', ''))::bit(48)::bigint) < 5000")
        .await;
    assert!(near);
    let single = db.enqueue(&crate::support::payment("i", "p", "ach")).await;
    let batch = db.enqueue_stream("q", "ach", 3).await;
    for id in batch.iter().chain([&single.outbox_id]) {
        assert_eq!(id.0.get_version_num(), 7);
    }
    assert!(batch.is_sorted());
}
