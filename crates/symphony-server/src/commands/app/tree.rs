//! `symphony app tree`: what fired what.

use std::collections::{HashMap, HashSet};
use std::process::ExitCode;

use serde::Serialize;
use symphony::db::{ExecutionRow, TREE_COUNTED_MAX};
use uuid::Uuid;

use super::super::acts::as_operator;
use super::{duration_ms, execution, script_of, took};
use crate::bounds::TREE_ROWS_MAX;
use crate::cli::Global;
use crate::output::{self, Failure};

/// An execution and what it fired.
#[derive(Debug, Serialize)]
pub(super) struct Node {
    id: Uuid,
    source_kind: String,
    script: Option<String>,
    state: String,
    error_code: Option<String>,
    caused_by: Option<String>,
    runs_as: Option<String>,
    duration_ms: Option<i64>,
    #[serde(skip)]
    line: String,
    children: Vec<Node>,
}

pub(super) async fn run(global: &Global, id: Uuid) -> Result<ExitCode, Failure> {
    as_operator(global, async |operator| {
        let reader = operator.reader();
        let named = execution(&reader, id).await?;
        let tree = reader.execution_tree(named.root_execution_id, TREE_ROWS_MAX).await?;
        let (roots, left_out) = (grow(tree.executions), tree.left_out);
        if global.json {
            output::json(&roots)?;
            // What is read by a program stays a list of trees.
            if left_out > 0 {
                output::note(&more(left_out));
            }
        } else {
            let named = (named.id != named.root_execution_id).then_some(id);
            output::print(&render(&roots, left_out, named))?;
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}

/// As people read it; one of it may be pointed at.
pub(super) fn render(roots: &[Node], left_out: i64, named: Option<Uuid>) -> String {
    let mut text = String::new();
    for root in roots {
        draw(root, named, "", "", &mut text);
    }
    if left_out > 0 {
        text.push_str(&more(left_out));
    }
    text
}

fn more(left_out: i64) -> String {
    let so_many = match left_out {
        TREE_COUNTED_MAX => format!("{TREE_COUNTED_MAX} or more"),
        counted => counted.to_string(),
    };
    format!("  {so_many} executions of this tree, the latest, are left out\n")
}

/// From rows in the order they were written. What lost its parent stands beside the root.
pub(super) fn grow(rows: Vec<ExecutionRow>) -> Vec<Node> {
    let known: HashSet<Uuid> = rows.iter().map(|row| row.id).collect();
    let mut children: HashMap<Option<Uuid>, Vec<ExecutionRow>> = HashMap::new();
    for row in rows {
        let parent = row.parent_execution_id.filter(|parent| known.contains(parent));
        children.entry(parent).or_default().push(row);
    }
    nodes(None, &mut children)
}

/// Taken out of the map on the way down, so that it ends whatever the rows say.
fn nodes(
    parent: Option<Uuid>,
    children: &mut HashMap<Option<Uuid>, Vec<ExecutionRow>>,
) -> Vec<Node> {
    children
        .remove(&parent)
        .unwrap_or_default()
        .into_iter()
        .map(|row| Node {
            id: row.id,
            line: line(&row),
            duration_ms: duration_ms(&row),
            children: nodes(Some(row.id), children),
            source_kind: row.source_kind,
            script: row.script_name,
            state: row.state,
            error_code: row.error_code,
            caused_by: row.caused_by,
            runs_as: row.runs_as,
        })
        .collect()
}

fn line(row: &ExecutionRow) -> String {
    let code = output::plain(row.error_code.as_deref().unwrap_or_default());
    let parts = [
        row.source_kind.clone(),
        script_of(row),
        row.state.clone(),
        code,
        took(row),
        row.id.to_string(),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("  ")
}

fn draw(node: &Node, named: Option<Uuid>, branch: &str, below: &str, text: &mut String) {
    text.push_str(branch);
    text.push_str(&node.line);
    // The same for the whole tree.
    if let (true, Some(who)) = (branch.is_empty(), &node.caused_by) {
        text.push_str("  caused by ");
        text.push_str(&output::plain(who));
    }
    if named == Some(node.id) {
        text.push_str("  ← this one");
    }
    text.push('\n');
    let last = node.children.len().saturating_sub(1);
    for (place, child) in node.children.iter().enumerate() {
        let (turn, stem) = if place == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        draw(child, named, &format!("{below}{turn}"), &format!("{below}{stem}"), text);
    }
}
