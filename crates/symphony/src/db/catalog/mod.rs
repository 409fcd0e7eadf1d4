//! The declared schema and the live one, fact by fact, and how they differ.
//!
//! The declared one is embedded: `sql/schema.golden.txt`, and for function bodies the files of `sql/functions/`. The live
//! one is read from the catalog, which every login may read, by the query in `live.sql`. No function of the database
//! is asked: whoever can change the schema can change that function too.

pub mod environment;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use sha2::{Digest as _, Sha256};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::{DbError, Schema};
use crate::schema::{self, Section};

const GOLDEN: &str = include_str!("../../../sql/schema.golden.txt");
const LIVE: &str = include_str!("live.sql");
/// Stands between an object and its detail in the golden text.
const SEPARATOR: &str = " :: ";
/// PostgreSQL 18 has this function itself.
const BEFORE_18: &str = "uuidv7()";

/// One fact about the schema.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Fact {
    /// Such as `column` or `trigger`.
    pub kind: String,
    /// Its qualified name.
    pub object: String,
    /// Everything else about it.
    pub detail: String,
}

/// One fact that is not as declared.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// Such as `column` or `trigger`.
    pub kind: String,
    /// Its qualified name.
    pub object: String,
    /// As declared; `None` where nothing of the kind is.
    pub declared: Option<String>,
    /// As found; `None` where nothing is there.
    pub found: Option<String>,
}

impl Difference {
    /// Whether it changes nothing about what Symphony promises: an index somebody added for their own queries.
    pub fn is_harmless(&self) -> bool {
        self.kind == "index"
            && self.declared.is_none()
            && self.found.as_deref().is_some_and(|found| !found.starts_with("CREATE UNIQUE"))
    }

    /// Whether another one is about the same thing.
    pub(super) fn is_same_thing(&self, other: &Self) -> bool {
        self.kind == other.kind && self.object == other.object
    }

    /// Whether it is about tables, which cannot be replaced in place.
    pub(super) fn is_of_tables(&self) -> bool {
        let of_a_view = || self.relation().is_some_and(is_view);
        match self.kind.as_str() {
            "relation" | "column" => !of_a_view(),
            "constraint" | "index" | "trigger" | "sequence" | "type" => !self.is_harmless(),
            _ => false,
        }
    }

    /// The relation it is about or belongs to.
    pub(super) fn relation(&self) -> Option<&str> {
        match self.kind.as_str() {
            "relation" | "view" | "sequence" => Some(&self.object),
            "column" | "constraint" | "trigger" | "rule" | "policy" | "disabled" => {
                self.object.rsplit_once('.').map(|(relation, _)| relation)
            }
            "index" => {
                let text = self.declared.as_deref().or(self.found.as_deref())?;
                text.split_once(" ON ")?.1.trim_start_matches("ONLY ").split(' ').next()
            }
            "grant" => self.object.rsplit_once(" to ").map(|(object, _)| object),
            _ => None,
        }
    }

    /// Whether another difference of the list says it already: the rest of a missing table, or what an owner has.
    fn follows_from(&self, other: &Self) -> bool {
        let whole = other.declared.is_none() || other.found.is_none();
        match (self.kind.as_str(), other.kind.as_str()) {
            ("relation", _) => false,
            ("grant", "relation" | "function") => self.relation() == Some(&other.object),
            ("body", "function") => whole && self.object == other.object,
            (_, "relation") => whole && self.relation() == Some(&other.object),
            _ => false,
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, object, declared, found } = self;
        match (kind.as_str(), declared, found) {
            ("body" | "view", Some(_), Some(_)) => {
                write!(f, "{} {object} has another definition than declared", article(kind))
            }
            ("body" | "view", _, _) => {
                write!(f, "the definition of {object} is not as declared")
            }
            ("disabled", _, _) => write!(f, "foreign key {object} is disabled"),
            (_, Some(declared), None) => {
                write!(f, "{kind} {object} is missing (declared: {declared})")
            }
            (_, None, Some(found)) => write!(f, "{kind} {object} is not declared: {found}"),
            (_, Some(declared), Some(found)) => {
                write!(f, "{kind} {object} is changed: {found} (declared: {declared})")
            }
            (_, None, None) => write!(f, "{kind} {object}"),
        }
    }
}

/// Whether a name is declared as a view's.
pub(super) fn is_view(name: &str) -> bool {
    is_declared_as(name, "view")
}

/// Whether a name is declared as a sequence's.
pub(super) fn is_sequence(name: &str) -> bool {
    is_declared_as(name, "sequence")
}

/// Whether a name is declared at all, in this schema.
pub(super) fn is_declared_relation(name: &str, schema: &Schema) -> bool {
    name.split_once('.').is_some_and(|(of, _)| of == schema.name()) && is_declared_as(name, "")
}

/// By the name within the schema, whichever that is.
fn is_declared_as(name: &str, kind: &str) -> bool {
    let relation = format!("{}.{}", Schema::default(), unqualified(name));
    DECLARED.get(&("relation".to_owned(), relation)).is_some_and(|detail| detail.starts_with(kind))
}

/// A name without its schema.
fn unqualified(name: &str) -> &str {
    name.split_once('.').map_or(name, |(_, name)| name)
}

fn article(kind: &str) -> &str {
    if kind == "body" { "function" } else { kind }
}

/// Every way in which the live schema differs from the declared one. Needs no privilege and changes nothing.
pub async fn differences(
    connection: &mut PgConnection,
    schema: &Schema,
) -> Result<Vec<Difference>, DbError> {
    let mut transaction = connection.begin().await?;
    let version: i32 = sqlx::query_scalar("SELECT current_setting('server_version_num')::int")
        .fetch_one(&mut *transaction)
        .await?;
    let declared = declared(schema, version);
    let names = Names::of(&declared);
    // Names of other schemas are printed with their schema, whatever the login's own search_path is.
    sqlx::raw_sql("SET LOCAL search_path = pg_catalog").execute(&mut *transaction).await?;
    let live: Vec<Fact> = sqlx::query_as(schema.sql(LIVE))
        .bind(&names.relations)
        .bind(&names.functions)
        .bind(&names.types)
        .bind(&names.roles)
        .bind(schema.name())
        .fetch_all(&mut *transaction)
        .await?;
    transaction.rollback().await?;
    Ok(compare(declared, live))
}

type Facts = BTreeMap<(String, String), String>;

fn compare(mut declared: Facts, live: Vec<Fact>) -> Vec<Difference> {
    let mut all = Vec::new();
    for fact in live {
        let key = (fact.kind, fact.object);
        let expected = declared.remove(&key);
        if expected.as_ref() != Some(&fact.detail) {
            all.push(Difference {
                kind: key.0,
                object: key.1,
                declared: expected,
                found: Some(fact.detail),
            });
        }
    }
    all.extend(declared.into_iter().map(|((kind, object), detail)| Difference {
        kind,
        object,
        declared: Some(detail),
        found: None,
    }));
    let mut said: Vec<_> = all
        .iter()
        .filter(|difference| !all.iter().any(|other| difference.follows_from(other)))
        .cloned()
        .collect();
    // An index that stands for a missing constraint comes back with it.
    let constraints: Vec<_> = said
        .iter()
        .filter(|d| d.kind == "constraint" && d.found.is_none())
        .filter_map(|d| {
            let (schema, rest) = d.object.split_once('.')?;
            Some(format!("{schema}.{}", rest.rsplit('.').next()?))
        })
        .collect();
    said.retain(|d| d.kind != "index" || d.found.is_some() || !constraints.contains(&d.object));
    said
}

/// What this build declares in a schema, for a server of this version.
fn declared(schema: &Schema, server_version: i32) -> Facts {
    let mut facts = DECLARED.clone();
    if server_version >= 180_000 {
        facts.retain(|(_, object), _| !unqualified(object).starts_with(BEFORE_18));
    }
    if *schema == Schema::default() {
        return facts;
    }
    let mut facts: Facts = facts
        .into_iter()
        .map(|((kind, object), detail)| {
            let detail = match body_in_file(&object).filter(|_| kind == "body") {
                Some(body) => hash(&schema.text(&body)),
                None => schema.text(&detail).into_owned(),
            };
            // A schema's own fact has its bare name.
            let object = match kind.as_str() {
                "schema" => schema.name().to_owned(),
                _ => schema.text(&object).into_owned(),
            };
            ((kind, object), detail)
        })
        .collect();
    if schema.is_shared() {
        let of_schema = format!("schema {schema} to ");
        facts.retain(|(kind, object), _| kind != "schema" && !object.starts_with(&of_schema));
    }
    facts
}

static DECLARED: LazyLock<Facts> = LazyLock::new(|| {
    let mut facts: Facts = GOLDEN
        .lines()
        .filter_map(|line| {
            let (head, detail) = line.split_once(SEPARATOR)?;
            let (kind, object) = head.split_once(' ')?;
            Some(((kind.to_owned(), object.trim_start().to_owned()), detail.to_owned()))
        })
        .collect();
    let bodies: Vec<_> = facts
        .keys()
        .filter(|(kind, _)| kind == "function")
        .filter_map(|(_, object)| Some((object.clone(), hash(&body_in_file(object)?))))
        .collect();
    for (object, body) in bodies {
        facts.insert(("body".to_owned(), object), body);
    }
    facts
});

/// Every function's file, by the function's name.
static FILES: LazyLock<BTreeMap<&'static str, (&'static str, &'static str)>> =
    LazyLock::new(|| {
        let mut files = BTreeMap::new();
        for (path, text) in schema::files(Section::Functions).chain(schema::files(Section::Tables))
        {
            for line in text.lines() {
                let name = line
                    .trim_start()
                    .strip_prefix("CREATE OR REPLACE FUNCTION ")
                    .and_then(|rest| rest.split('(').next());
                if let Some(name) = name {
                    files.insert(unqualified(name), (path, text));
                }
            }
        }
        files
    });

/// The golden text of a live schema: everything but the bodies that `sql/functions/` has.
pub fn golden(live: &[Fact]) -> String {
    let lines: Vec<_> = live
        .iter()
        .filter(|fact| fact.kind != "body" || body_in_file(&fact.object).is_none())
        .map(|fact| format!("{:<10} {}{SEPARATOR}{}\n", fact.kind, fact.object, fact.detail))
        .collect();
    lines.concat()
}

/// The live schema as it is, for the golden text. As [`differences`] reads it.
pub async fn live(connection: &mut PgConnection) -> Result<Vec<Fact>, DbError> {
    let mut transaction = connection.begin().await?;
    sqlx::raw_sql("SET LOCAL search_path = pg_catalog").execute(&mut *transaction).await?;
    let nothing: Vec<String> = Vec::new();
    let live = sqlx::query_as(LIVE)
        .bind(&nothing)
        .bind(&nothing)
        .bind(&nothing)
        .bind(super::privileges::ROLES)
        .bind(Schema::default().name())
        .fetch_all(&mut *transaction)
        .await?;
    transaction.rollback().await?;
    Ok(live)
}

/// The file that makes a function of whichever schema, as (path, text).
pub(super) fn file_of(function: &str) -> Option<(&'static str, &'static str)> {
    FILES.get(unqualified(function.split('(').next()?)).copied()
}

/// The text between the dollar quotes; `None` for a body that the server keeps parsed.
fn body_in_file(function: &str) -> Option<String> {
    let (path, text) = file_of(function)?;
    let (_, rest) = text.split_once("AS $$").filter(|_| path.starts_with("functions/"))?;
    rest.rsplit_once("$$").map(|(body, _)| body.to_owned())
}

fn hash(text: &str) -> String {
    use std::fmt::Write as _;
    Sha256::digest(text.as_bytes()).iter().fold(String::new(), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _infallible = write!(hex, "{byte:02x}");
        hex
    })
}

/// The declared names, whoever may own what bears them.
struct Names {
    relations: Vec<String>,
    functions: Vec<String>,
    types: Vec<String>,
    roles: Vec<String>,
}

impl Names {
    fn of(facts: &Facts) -> Self {
        let named = |wanted: &str| {
            facts
                .keys()
                .filter(|(kind, _)| kind == wanted)
                .map(|(_, object)| object.split('(').next().unwrap_or(object).to_owned())
                .collect()
        };
        Self {
            relations: named("relation"),
            functions: named("function"),
            types: named("type"),
            roles: named("role"),
        }
    }
}

/// Objects that bear our names and are not ours, as `table symphony.x, owned by y`.
pub async fn foreign_objects(
    connection: &mut PgConnection,
    schema: &Schema,
) -> Result<Vec<String>, DbError> {
    let names = Names::of(&declared(schema, 0));
    Ok(sqlx::query_scalar(AssertSqlSafe(foreign_sql(schema, "$1", "$2", "$3")))
        .bind(&names.relations)
        .bind(&names.functions)
        .bind(&names.types)
        .fetch_all(connection)
        .await?)
}

/// The same question, for the printed script.
pub(super) fn foreign_objects_literal(schema: &Schema) -> String {
    let names = Names::of(&declared(schema, 0));
    foreign_sql(
        schema,
        &literal(&names.relations),
        &literal(&names.functions),
        &literal(&names.types),
    )
}

fn foreign_sql(schema: &Schema, relations: &str, functions: &str, types: &str) -> String {
    format!(
        "SELECT f.said FROM (
             SELECT n.nspname || '.' || c.relname AS name, c.relowner AS owner,
                    CASE c.relkind WHEN 'v' THEN 'view' WHEN 'S' THEN 'sequence' WHEN 'i' THEN 'index' ELSE 'table' END AS kind
               FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
              WHERE n.nspname || '.' || c.relname = ANY ({relations}::text[])
             UNION ALL
             SELECT n.nspname || '.' || p.proname, p.proowner, 'function'
               FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
              WHERE n.nspname || '.' || p.proname = ANY ({functions}::text[])
             UNION ALL
             SELECT n.nspname || '.' || t.typname, t.typowner, 'type'
               FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
              WHERE n.nspname || '.' || t.typname = ANY ({types}::text[])
             UNION ALL
             SELECT nspname, nspowner, 'schema' FROM pg_catalog.pg_namespace WHERE nspname = '{schema}' AND nspname <> 'public') o
          CROSS JOIN LATERAL (SELECT pg_catalog.format('%s %s, owned by %s', o.kind, o.name, o.owner::pg_catalog.regrole) AS said) f
          WHERE o.owner IS DISTINCT FROM pg_catalog.to_regrole('symphony_control') ORDER BY 1"
    )
}

fn literal(names: &[String]) -> String {
    format!("'{{{}}}'", names.join(","))
}

/// A query that answers one line per difference that matters, for the printed script.
pub(super) fn differences_literal(schema: &Schema) -> String {
    let facts = declared(schema, 0);
    let names = Names::of(&facts);
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let rows: Vec<_> = facts
        .iter()
        .map(|((kind, object), detail)| {
            format!("({}, {}, {})", quoted(kind), quoted(object), quoted(detail))
        })
        .collect();
    let live = schema
        .text(LIVE)
        .replace("($1)", &format!("({}::text[])", literal(&names.relations)))
        .replace("($2)", &format!("({}::text[])", literal(&names.functions)))
        .replace("($3)", &format!("({}::text[])", literal(&names.types)))
        .replace("($4)", &format!("({}::text[])", literal(&names.roles)))
        .replace("$5", &format!("'{schema}'"));
    format!(
        "SELECT pg_catalog.format('%s %s', kind, object) FROM (\n{live}) live\n  FULL JOIN (VALUES\n{}) declared(kind, object, detail)\n  \
         USING (kind, object)\n WHERE live.detail IS DISTINCT FROM declared.detail\n   \
         AND NOT (object LIKE '{schema}.uuidv7()%' AND pg_catalog.current_setting('server_version_num')::int >= 180000)\n   \
         AND NOT (kind = 'index' AND declared.detail IS NULL AND live.detail NOT LIKE 'CREATE UNIQUE%')",
        rows.join(",\n")
    )
}
