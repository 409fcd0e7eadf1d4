//! The schema an installation lives in.
//!
//! Every SQL text of this project says `symphony.`, so that what is read is what runs by default. For an installation in
//! another schema the name is put in here, and nowhere else.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};

use crate::FieldError;

/// Where everything is installed unless somebody says otherwise.
const DEFAULT: &str = "symphony";
/// Channels carry the name and a word of up to 22 characters, and PostgreSQL keeps 63 bytes of both.
const LENGTH_MAX: usize = 40;

/// The schema of one installation: `symphony` by default. Two installations in one database have one each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schema(Option<Arc<str>>);

/// Reserved words, which would need quotes everywhere.
const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "authorization",
    "between",
    "bigint",
    "binary",
    "bit",
    "boolean",
    "both",
    "case",
    "cast",
    "char",
    "character",
    "check",
    "coalesce",
    "collate",
    "collation",
    "column",
    "concurrently",
    "constraint",
    "create",
    "cross",
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "dec",
    "decimal",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "exists",
    "extract",
    "false",
    "fetch",
    "float",
    "for",
    "foreign",
    "freeze",
    "from",
    "full",
    "grant",
    "greatest",
    "group",
    "grouping",
    "having",
    "ilike",
    "in",
    "initially",
    "inner",
    "inout",
    "int",
    "integer",
    "intersect",
    "interval",
    "into",
    "is",
    "isnull",
    "join",
    "lateral",
    "leading",
    "least",
    "left",
    "like",
    "limit",
    "localtime",
    "localtimestamp",
    "national",
    "natural",
    "nchar",
    "none",
    "normalize",
    "not",
    "notnull",
    "null",
    "nullif",
    "numeric",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "out",
    "outer",
    "overlaps",
    "overlay",
    "placing",
    "position",
    "precision",
    "primary",
    "real",
    "references",
    "returning",
    "right",
    "row",
    "select",
    "session_user",
    "setof",
    "similar",
    "smallint",
    "some",
    "substring",
    "symmetric",
    "system_user",
    "table",
    "tablesample",
    "then",
    "time",
    "timestamp",
    "to",
    "trailing",
    "treat",
    "trim",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "values",
    "varchar",
    "variadic",
    "verbose",
    "when",
    "where",
    "window",
    "with",
    "xmlattributes",
    "xmlconcat",
    "xmlelement",
    "xmlexists",
    "xmlforest",
    "xmlnamespaces",
    "xmlparse",
    "xmlpi",
    "xmlroot",
    "xmlserialize",
    "xmltable",
    "information_schema",
    "json",
    "json_array",
    "json_arrayagg",
    "json_exists",
    "json_object",
    "json_objectagg",
    "json_query",
    "json_scalar",
    "json_serialize",
    "json_table",
    "json_value",
    "merge_action",
];

impl Schema {
    /// A schema of this name.
    ///
    /// # Errors
    /// A name that would need quotes, or that PostgreSQL keeps for itself.
    pub fn new(name: &str) -> Result<Self, FieldError> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let good = name.len() <= LENGTH_MAX
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(plain)
            && !name.starts_with("pg_")
            && !RESERVED.contains(&name);
        if !good {
            return Err(FieldError::new(
                "schema",
                format!(
                    "is {name:?}: it must be of 1 to {LENGTH_MAX} lower-case letters, digits and underscores, begin with \
                     a letter, and be neither a word of SQL nor begin with pg_"
                ),
            ));
        }
        Ok(Self((name != DEFAULT).then(|| Arc::from(name))))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.as_deref().unwrap_or(DEFAULT)
    }

    /// Whether others may create objects in it: then it is neither ours nor dropped.
    #[cfg(feature = "admin")]
    pub(crate) fn is_shared(&self) -> bool {
        self.name() == "public"
    }

    /// The channel on which this installation tells something. `symphony` has the names of the contract; any other schema
    /// puts its own before them.
    pub fn channel(&self, name: &str) -> String {
        match &self.0 {
            None => name.to_owned(),
            Some(schema) => format!("{schema}.{name}"),
        }
    }

    /// A command of the program that leads to this installation: `symphony migrate`, `symphony --schema billing migrate`.
    pub fn command(&self, words: &str) -> String {
        match &self.0 {
            None => format!("symphony {words}"),
            Some(schema) => format!("symphony --schema {schema} {words}"),
        }
    }

    /// A statement, for this schema.
    pub(crate) fn statement(&self, sql: SqlStr) -> SqlStr {
        match self.text(sql.as_str()) {
            Cow::Borrowed(_) => sql,
            // Our own text with a name that needs no quotes.
            Cow::Owned(text) => AssertSqlSafe(text).into_sql_str(),
        }
    }

    /// The same of a text that is written down.
    #[cfg(feature = "admin")]
    pub(crate) fn sql(&self, statement: &'static str) -> SqlStr {
        self.statement(statement.into_sql_str())
    }

    /// Any of our SQL, for this schema. These spellings stand for it: `symphony.` before a name, `SCHEMA symphony`,
    /// `"symphony"` and `'symphony'::`.
    pub fn text<'a>(&self, sql: &'a str) -> Cow<'a, str> {
        let Some(schema) = &self.0 else { return Cow::Borrowed(sql) };
        let mut text = String::with_capacity(sql.len());
        let mut rest = sql;
        while let Some((before, after)) = rest.split_once(DEFAULT) {
            text.push_str(before);
            text.push_str(if is_schema(&text, after) { schema } else { DEFAULT });
            rest = after;
        }
        text.push_str(rest);
        Cow::Owned(text)
    }
}

/// Whether the word between the two is the schema's name.
fn is_schema(before: &str, after: &str) -> bool {
    let part_of_a_word = |c: char| c.is_alphanumeric() || "_-/.$".contains(c);
    if before.ends_with(part_of_a_word) {
        return false;
    }
    let qualifies = after
        .strip_prefix('.')
        .is_some_and(|name| name.starts_with(|c: char| c.is_ascii_lowercase() || c == '%'));
    let is_named = (before.ends_with("SCHEMA ") || before.ends_with("schema "))
        && !after.starts_with(part_of_a_word);
    let is_quoted = before.ends_with('"') && after.starts_with('"');
    let is_cast = before.ends_with('\'') && after.starts_with("'::");
    qualifies || is_named || is_quoted || is_cast
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Schema {
    type Err = FieldError;

    fn from_str(name: &str) -> Result<Self, FieldError> {
        Self::new(name)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_would_need_quotes_is_refused() {
        for name in
            ["", "Symphony", "1st", "_x", "a-b", "a b", "a\"b", "pg_x", "user", "order", "é"]
        {
            assert!(Schema::new(name).is_err(), "{name}");
        }
        assert!(Schema::new(&"a".repeat(41)).is_err());
        for name in ["symphony", "public", "billing_outbox", "s2"] {
            assert_eq!(Schema::new(name).unwrap().name(), name);
        }
    }

    #[test]
    fn only_the_schema_is_replaced() {
        let other = Schema::new("billing").unwrap();
        for (written, expected) in [
            ("SELECT * FROM symphony.apps", "SELECT * FROM billing.apps"),
            ("nextval('symphony.position')", "nextval('billing.position')"),
            ("CREATE SCHEMA symphony;", "CREATE SCHEMA billing;"),
            ("search_path = pg_catalog, \"symphony\"", "search_path = pg_catalog, \"billing\""),
            ("'symphony'::regnamespace", "'billing'::regnamespace"),
            ("OWNER symphony_control", "OWNER symphony_control"),
            ("FROM symphony.symphony_schema", "FROM billing.symphony_schema"),
            ("run `symphony migrate`. symphony. x", "run `symphony migrate`. symphony. x"),
            ("$default$symphony$default$", "$default$symphony$default$"),
            ("f(x, 'symphony', y)", "f(x, 'symphony', y)"),
            ("github.com/symphony.git", "github.com/symphony.git"),
        ] {
            assert_eq!(other.text(written), expected);
            assert_eq!(Schema::default().text(written), written);
        }
    }

    #[test]
    fn the_default_schema_has_the_contracts_channels() {
        assert_eq!(Schema::default().channel("outbox_pending"), "outbox_pending");
        let other = Schema::new("billing").unwrap();
        assert_eq!(other.channel("outbox_pending"), "billing.outbox_pending");
        assert!(LENGTH_MAX + ".trigger_outbox_pending".len() <= 63);
    }
}
