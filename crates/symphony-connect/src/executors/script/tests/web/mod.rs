//! The globals of the web, against the published vectors and the rules of their standards.

mod crypto;
mod encoding;
mod globals;
mod headers_and_clones;
mod requests;
mod url;
mod wpt;

use symphony::lanes::triggers::executor::Executor as _;

use super::{executor, in_words, request};

/// Each body of an async handler returns this JSON.
async fn each_is(cases: &[(&str, &str)]) {
    let executor = executor();
    for (body, expected) in cases {
        let source = format!("export default async (request) => {{ {body} }}");
        let told = in_words(&executor.run(&request(&source)).await);
        assert_eq!(told, *expected, "{body}");
    }
}

/// Each expression is this JSON; all of them in one run.
async fn all_are(cases: &[(&str, &str)]) {
    let made = cases.iter().map(|(expression, _)| {
        format!("() => {{ try {{ return {expression} }} catch (error) {{ return error.name }} }}")
    });
    let made: Vec<String> = made.collect();
    let source = format!(
        "export default () => [{}].map((each) => JSON.stringify(each()) ?? 'undefined')",
        made.join(",\n")
    );
    let told = in_words(&executor().run(&request(&source)).await);
    let told: Vec<String> = serde_json::from_str(&told).unwrap_or_else(|_| panic!("{told}"));
    for ((expression, expected), told) in cases.iter().zip(told) {
        assert_eq!(told, *expected, "{expression}");
    }
}
