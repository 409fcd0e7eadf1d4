//! Compiling without running: what is refused, where, and what a script is stored with.

use std::collections::BTreeMap;
use std::sync::Arc;

use symphony::lanes::triggers::executor::{Executor as _, Request};

use super::{executor, in_words, request};
use crate::executors::script::{Compiled, compile};

/// Compile the first of these files, with the others beside it.
fn compiled(files: &[(&str, &str)]) -> Result<Compiled, String> {
    let all: BTreeMap<String, String> =
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    let (file, source) = files[0];
    let read = move |path: &str| Ok(all.get(path).cloned());
    compile(file, source, Box::new(read)).map_err(|defect| defect.to_string())
}

/// Run the first of these files as it would have been pushed.
async fn run(files: &[(&str, &str)]) -> (String, Vec<String>) {
    let Compiled { source, modules } = compiled(files).unwrap();
    let pushed =
        Request { file: files[0].0.into(), modules: Arc::new(modules), ..request(&source) };
    let execution = executor().run(&pushed).await;
    let logs = execution.logs.iter().map(|line| format!("{}: {}", line.level, line.message));
    (in_words(&execution), logs.collect())
}

const HANDLER: &str = "export default () => 1";

#[test]
fn what_cannot_be_compiled_is_refused_with_file_line_column_and_the_line() {
    for (files, told) in [
        (
            &[("scripts/a.js", "// one\nexport default function () {\n  const = 5;\n}")][..],
            "scripts/a.js:3:9: variable name expected, in `const = 5;`",
        ),
        (
            &[
                ("a.js", "import { total } from './lib/money.js';\nexport default total"),
                ("lib/money.js", "\nexport const total = ("),
            ],
            "lib/money.js:2:",
        ),
        (
            &[("a.js", "export default 1;\nimport x from './no.js'")],
            "a.js:2:15: \"./no.js\" cannot be imported: there is no such file in the app, in `import x from './no.js'`",
        ),
        (
            &[("a.js", "import fs from \"node:fs\"; export default fs")],
            "a.js:1:16: \"node:fs\" cannot be imported: a script imports files of its app",
        ),
        (
            &[("a.js", "import x from '../../etc/passwd'; export default x")],
            "a.js:1:15: \"../../etc/passwd\" cannot be imported: a script imports files",
        ),
        (
            &[
                ("a.js", "import {\n  nope } from './b.js';\nexport default nope"),
                ("b.js", "export const yes = 1"),
            ],
            "a.js:2:3: b.js exports no nope, in `nope } from './b.js';`",
        ),
        (
            &[("a.js", "export const handler = 1")],
            "a.js: the script has no handler: write export default",
        ),
        (&[("a.js", "")], "a.js: the script has no handler"),
        (&[("a.js", "\0")], "a.js: has a NUL character"),
        (&[("../a.js", HANDLER)], "../a.js: must be a path inside the app"),
    ] {
        let refusal = compiled(files).unwrap_err();
        assert!(refusal.starts_with(told), "{files:?}: {refusal}");
    }
    let deep = format!("export default {}1", "(".repeat(200_000));
    assert!(compiled(&[("deep.js", &deep)]).unwrap_err().starts_with("deep.js"));
}

#[test]
fn nothing_is_run_and_only_what_is_imported_is_kept() {
    let ends = "for (;;) {}";
    let files = [
        ("scripts/a.js", "import { b } from '../lib/b.js'; throw b; export default () => b"),
        ("lib/b.js", "import './c.js'; for (;;) {} export const b = 1"),
        ("lib/c.js", "import { b } from './b.js'; import '../scripts/a.js'; for (;;) {}"),
        ("lib/unused.js", ends),
    ];
    let compiled = compiled(&files).unwrap();
    assert_eq!(compiled.source, files[0].1);
    assert_eq!(compiled.modules.keys().collect::<Vec<_>>(), ["lib/b.js", "lib/c.js"]);
}

#[tokio::test]
async fn what_was_pushed_together_runs_together() {
    let (told, _) = run(&[
        ("scripts/a.js", "import total, { tax as rate } from '../lib/money.js'; export default () => total(100) + rate"),
        ("lib/money.js", "import { tax } from './tax.js'; export { tax }; export default (n) => n * (1 + tax)"),
        ("lib/tax.js", "export const tax = 0.5"),
    ])
    .await;
    assert_eq!(told, "150.5");
    let (told, _) = run(&[
        ("a.js", "import './b.js'; export default async () => (await import('./b.js')).b"),
        ("b.js", "export const b = 'again'"),
    ])
    .await;
    assert_eq!(told, "\"again\"");
}

#[tokio::test]
async fn an_error_is_told_with_its_stack_in_the_files_as_they_were_written() {
    let (told, logs) = run(&[
        ("scripts/a.js", "import { charge } from '../lib/money.js';\n\nexport default function order() {\n  charge(5);\n}"),
        ("lib/money.js", "export function charge(n) {\n  throw new RangeError('no ' + n);\n}"),
    ])
    .await;
    assert_eq!(told, "SCRIPT_ERROR RangeError: no 5 (lib/money.js, line 2)");
    assert_eq!(
        logs,
        [
            "error: RangeError: no 5\n    at charge (lib/money.js:2:32)\n    at order (scripts/a.js:4:3)"
        ]
    );
}
