//! Bringing a live schema back to the declared one, one difference at a time, each in a savepoint of its own.
//!
//! A repair touches only what is ours and drops nothing that somebody else stands on. A constraint or index comes back
//! if the data satisfies it, or not at all. What has no repair here is named.

use std::collections::BTreeMap;

use sqlx::{Acquire as _, AssertSqlSafe, PgConnection};

use super::scripts::section;
use super::{MigrateError, left, run};
use crate::db::Schema;
use crate::db::catalog::{self, Difference};
use crate::db::privileges::{ROLES, RUNTIME_ROLES};
use crate::schema::{self, Section};

/// One repair can need another one first.
const ROUNDS: usize = 3;

/// What became of the differences.
#[derive(Debug, Default)]
pub(super) struct RepairReport {
    pub(super) repaired: Vec<String>,
    pub(super) remaining: Vec<String>,
    pub(super) notes: Vec<String>,
}

pub(super) async fn repair(
    connection: &mut PgConnection,
    schema: &Schema,
    before: &[Difference],
) -> Result<RepairReport, MigrateError> {
    let grants = grants_of_others(connection, schema).await?;
    // Why a repair was refused, by what it was for.
    let mut refusals = BTreeMap::new();
    let privileges = section(Section::Privileges, schema);
    // Whatever was granted by hand is taken back, even where nothing else differs; refused only where something is missing.
    let _refusal = attempt(connection, &Repair::owner(privileges.clone())).await?;
    let mut remaining = left(connection, schema).await?;
    for _ in 0..ROUNDS {
        if remaining.is_empty() {
            break;
        }
        for difference in in_order(&remaining) {
            for statement in statements(difference, schema) {
                match attempt(connection, &statement).await? {
                    Ok(()) => break,
                    Err(why) => {
                        refusals.insert(difference.to_string(), why);
                    }
                }
            }
        }
        if remaining.iter().any(|d| d.relation().is_some_and(catalog::is_view)) {
            replace_views(connection, schema, &remaining, &mut refusals).await?;
        }
        if let Err(why) = attempt(connection, &Repair::owner(privileges.clone())).await? {
            refusals.insert("privileges".to_owned(), why);
        }
        let now = left(connection, schema).await?;
        let stuck = now == remaining;
        remaining = now;
        if stuck {
            break;
        }
    }
    for grant in grants {
        // Lost only where an object had to be made anew; where it is gone for good there is nothing to grant on.
        let _refusal = attempt(connection, &Repair::owner(grant)).await?;
    }
    let named = |d: &Difference| match refusals.get(&d.to_string()) {
        Some(why) => format!("{d}: {why}"),
        None => d.to_string(),
    };
    Ok(RepairReport {
        repaired: before
            .iter()
            .filter(|d| !d.is_harmless() && !remaining.iter().any(|r| r.is_same_thing(d)))
            .map(ToString::to_string)
            .collect(),
        notes: before.iter().filter(|d| d.is_harmless()).map(ToString::to_string).collect(),
        remaining: remaining.iter().map(named).collect(),
    })
}

/// The owner's rights first, for nothing works without them; then what is too much, so that a changed signature does not
/// leave two.
fn in_order(differences: &[Difference]) -> Vec<&Difference> {
    let mut all: Vec<_> = differences.iter().collect();
    all.sort_by_key(|difference| (difference.kind != "grant", difference.declared.is_some()));
    all
}

/// What to run, and as whom.
struct Repair {
    sql: String,
    /// As the login instead of the owner: for roles and for system triggers.
    as_login: bool,
}

impl Repair {
    fn owner(sql: String) -> Self {
        Self { sql, as_login: false }
    }

    fn login(sql: String) -> Self {
        Self { sql, as_login: true }
    }
}

/// What may restore one thing, the gentlest first. Empty: nothing may.
fn statements(difference: &Difference, schema: &Schema) -> Vec<Repair> {
    let Difference { kind, object, declared, found } = difference;
    let relation = difference.relation().unwrap_or_default();
    let name = object.rsplit('.').next().unwrap_or_default();
    let one = |sql: String| vec![Repair::owner(sql)];
    match (kind.as_str(), declared.as_deref(), found.as_deref()) {
        ("constraint", Some(declared), found) => {
            let drop =
                found.map_or(String::new(), |_| format!("DROP CONSTRAINT {name} RESTRICT, "));
            one(format!("ALTER TABLE {relation} {drop}ADD CONSTRAINT {name} {declared}"))
        }
        ("index", Some(declared), None) => one(declared.to_owned()),
        ("index", Some(declared), Some(found)) if found.starts_with(declared) => {
            one(format!("REINDEX INDEX {object}"))
        }
        ("index", Some(declared), Some(_)) => {
            one(format!("DROP INDEX {object} RESTRICT; {declared}"))
        }
        ("trigger", Some(declared), _) => {
            trigger(relation, name, declared).map_or_else(Vec::new, one)
        }
        ("disabled", None, Some(_)) => vec![Repair::login(enable_all(relation, schema))],
        ("column", Some(declared), Some(found)) if !catalog::is_view(relation) => {
            column(relation, name, declared, found).map_or_else(Vec::new, one)
        }
        ("relation", Some(declared), Some(found)) => {
            table(object, declared, found).map_or_else(Vec::new, one)
        }
        ("relation", Some(_), None) if name == "symphony_schema" => {
            one(schema::files(Section::Tables)
                .filter(|(path, _)| path.ends_with("schema_stamp.sql"))
                .map(|(_, text)| schema.text(text))
                .collect())
        }
        ("relation", None, Some(found)) if found.starts_with("view, owner symphony_control") => {
            one(format!("DROP VIEW {object} RESTRICT"))
        }
        ("sequence", Some(declared), Some(_)) => one(format!("ALTER SEQUENCE {object} {declared}")),
        ("inheritance", None, Some(_)) => no_inherit(object, schema).map_or_else(Vec::new, one),
        ("function" | "body", Some(_), found) => function(object, found.is_some(), schema),
        ("function", None, Some(found)) if found.contains(", owner symphony_control") => {
            one(format!("DROP FUNCTION {object} RESTRICT"))
        }
        ("grant", Some(declared), _) => grant(object, declared).map_or_else(Vec::new, one),
        ("grant", None, Some(_)) => revoke(object).map_or_else(Vec::new, one),
        ("role", Some(_), Some(found)) => vec![Repair::login(role(object, found))],
        ("membership", None, Some(_)) => object
            .split_once(" in ")
            .map(|(member, of)| Repair::login(format!("REVOKE {of} FROM {member}")))
            .into_iter()
            .collect(),
        _ => Vec::new(),
    }
}

fn trigger(relation: &str, name: &str, declared: &str) -> Option<String> {
    let (definition, state) = declared.strip_suffix(']')?.rsplit_once(" [")?;
    let definition = definition.strip_prefix("CREATE ")?;
    let enable = match state {
        "A" => "ENABLE ALWAYS",
        "R" => "ENABLE REPLICA",
        "D" => "DISABLE",
        _ => "ENABLE",
    };
    Some(format!("CREATE OR REPLACE {definition}; ALTER TABLE {relation} {enable} TRIGGER {name}"))
}

/// Every trigger of a table fires, and those that always must, always.
fn enable_all(relation: &str, schema: &Schema) -> String {
    let start = format!("ALTER TABLE {relation} ");
    let triggers = section(Section::Triggers, schema);
    let always: String = triggers.lines().filter(|line| line.starts_with(&start)).collect();
    format!("ALTER TABLE {relation} ENABLE TRIGGER ALL; {always}")
}

/// Default and NOT NULL; never the type, which would rewrite what is stored.
fn column(relation: &str, name: &str, declared: &str, found: &str) -> Option<String> {
    let parts = |text: &str| {
        let (head, default) = match text.split_once(" default ") {
            Some((head, default)) => (head.to_owned(), Some(default.to_owned())),
            None => (text.to_owned(), None),
        };
        let head = head.replace(" not valid", "");
        match head.strip_suffix(" not null") {
            Some(kind) => (kind.to_owned(), true, default),
            None => (head, false, default),
        }
    };
    let (kind, not_null, default) = parts(declared);
    let (kind_found, _, _) = parts(found);
    if kind != kind_found || kind.contains(" generated ") {
        return None;
    }
    let default = default.map_or("DROP DEFAULT".to_owned(), |text| format!("SET DEFAULT {text}"));
    let not_null = if not_null { "SET NOT NULL" } else { "DROP NOT NULL" };
    Some(format!(
        "ALTER TABLE {relation} ALTER COLUMN {name} {default}, ALTER COLUMN {name} {not_null}"
    ))
}

/// Logged again and without row level security. Another owner, or another kind of relation, is for a person.
fn table(relation: &str, declared: &str, found: &str) -> Option<String> {
    let mut changes = Vec::new();
    let mut restored = found.to_owned();
    for (word, change) in [
        (", unlogged", "SET LOGGED"),
        (", forced row level security", "NO FORCE ROW LEVEL SECURITY"),
        (", row level security", "DISABLE ROW LEVEL SECURITY"),
    ] {
        if restored.contains(word) {
            restored = restored.replace(word, "");
            changes.push(format!("ALTER TABLE {relation} {change}"));
        }
    }
    (restored == declared && !changes.is_empty()).then(|| changes.join("; "))
}

/// Where ours was made a child; a child of ours is somebody else's table.
fn no_inherit(object: &str, schema: &Schema) -> Option<String> {
    let (child, parent) = object.split_once(" of ")?;
    catalog::is_declared_relation(child, schema)
        .then(|| format!("ALTER TABLE {child} NO INHERIT {parent}"))
}

/// In place; only where that is refused, dropped and made anew, and then only if nobody stands on it.
fn function(object: &str, exists: bool, schema: &Schema) -> Vec<Repair> {
    let Some((_, text)) = catalog::file_of(object) else { return Vec::new() };
    let text = schema.text(text);
    let mut repairs = vec![Repair::owner(text.clone().into_owned())];
    if exists {
        repairs.push(Repair::owner(format!("DROP FUNCTION {object} RESTRICT;\n{text}")));
    }
    repairs
}

/// The owner's own rights.
fn grant(object: &str, declared: &str) -> Option<String> {
    let (object, to) = object.rsplit_once(" to ")?;
    let on = match object {
        schema if schema.starts_with("schema ") => schema.replacen("schema ", "SCHEMA ", 1),
        function if function.contains('(') => format!("FUNCTION {function}"),
        sequence if catalog::is_sequence(sequence) => format!("SEQUENCE {sequence}"),
        relation => relation.to_owned(),
    };
    Some(format!("GRANT {} ON {on} TO {to}", declared.replace(' ', ", ")))
}

/// What our own roles or everybody got on the schema.
fn revoke(object: &str) -> Option<String> {
    let (schema, to) = object.strip_prefix("schema ")?.rsplit_once(" to ")?;
    (to == "PUBLIC" || RUNTIME_ROLES.contains(&to))
        .then(|| format!("REVOKE ALL ON SCHEMA {schema} FROM {to}"))
}

/// Only what is too much: a login without superuser may not even say NOSUPERUSER.
fn role(name: &str, found: &str) -> String {
    let words: Vec<_> = found
        .split(", ")
        .filter(|word| *word != "nologin")
        .map(|word| format!("NO{}", word.to_uppercase()))
        .collect();
    format!("ALTER ROLE {name} {}", words.join(" "))
}

/// All views as their current text; those that cannot become it in place are made anew.
async fn replace_views(
    connection: &mut PgConnection,
    schema: &Schema,
    remaining: &[Difference],
    refusals: &mut BTreeMap<String, String>,
) -> Result<(), MigrateError> {
    let script = section(Section::Views, schema);
    let Err(_) = attempt(connection, &Repair::owner(script.clone())).await? else {
        return Ok(());
    };
    let mut changed: Vec<_> = remaining
        .iter()
        .filter(|d| d.kind != "relation" || d.found.is_some())
        .filter_map(Difference::relation)
        .filter(|relation| catalog::is_view(relation))
        .collect();
    changed.sort_unstable();
    changed.dedup();
    let drop = format!("DROP VIEW IF EXISTS {} RESTRICT;\n{script}", changed.join(", "));
    if let Err(why) = attempt(connection, &Repair::owner(drop)).await? {
        for difference in remaining {
            if difference.relation().is_some_and(catalog::is_view) {
                refusals.insert(difference.to_string(), why.clone());
            }
        }
    }
    Ok(())
}

/// Run it in a savepoint. The inner answer says why the database refused; waiting in vain for a lock ends everything.
async fn attempt(
    connection: &mut PgConnection,
    repair: &Repair,
) -> Result<Result<(), String>, MigrateError> {
    let mut savepoint = connection.begin().await?;
    let (before, after) = if repair.as_login {
        ("SET LOCAL ROLE NONE", "SET LOCAL ROLE symphony_control")
    } else {
        ("", "")
    };
    run(&mut savepoint, before).await?;
    match sqlx::raw_sql(AssertSqlSafe(repair.sql.as_str())).execute(&mut *savepoint).await {
        Ok(_) => {
            run(&mut savepoint, after).await?;
            savepoint.commit().await?;
            Ok(Ok(()))
        }
        Err(sqlx::Error::Database(error)) if error.code().as_deref() != Some("55P03") => {
            let why = words(&sqlx::Error::Database(error));
            savepoint.rollback().await?;
            Ok(Err(why))
        }
        Err(error) => Err(error.into()),
    }
}

/// The database's own words, on one line: which row, or who stands on it.
pub(super) fn words(error: &sqlx::Error) -> String {
    let sqlx::Error::Database(error) = error else { return error.to_string() };
    let detail = error
        .try_downcast_ref::<sqlx::postgres::PgDatabaseError>()
        .and_then(sqlx::postgres::PgDatabaseError::detail)
        .unwrap_or_default();
    // Details of a CHECK print the whole row, account numbers included.
    if detail.is_empty() || detail.starts_with("Failing row") {
        return error.message().to_owned();
    }
    format!("{} ({})", error.message(), detail.replace('\n', "; "))
}

/// GRANT statements for what others were granted on functions and views, which may have to be made anew.
async fn grants_of_others(
    connection: &mut PgConnection,
    schema: &Schema,
) -> Result<Vec<String>, MigrateError> {
    Ok(sqlx::query_scalar(
        "SELECT format('GRANT %s ON %s TO %s%s', a.privilege_type, o.name, a.grantee::regrole, \
                       CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' END) \
           FROM (SELECT 'TABLE ' || c.oid::regclass AS name, c.relacl AS acl FROM pg_class c \
                  WHERE c.relowner = 'symphony_control'::regrole AND c.relkind = 'v' \
                    AND c.relnamespace = to_regnamespace($2::text) \
                 UNION ALL \
                 SELECT format('FUNCTION %s.%I', p.pronamespace::regnamespace, p.proname), p.proacl FROM pg_proc p \
                  WHERE p.proowner = 'symphony_control'::regrole AND p.pronamespace = to_regnamespace($2::text)) o \
          CROSS JOIN LATERAL aclexplode(o.acl) a \
          WHERE a.grantee <> 0 AND a.grantee::regrole::text <> ALL ($1)",
    )
    .bind(ROLES)
    .bind(schema.name())
    .fetch_all(connection)
    .await?)
}
