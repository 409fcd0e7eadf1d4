//! `URL` against the data of web-platform-tests, all of it.

use std::collections::BTreeSet;

use symphony::lanes::triggers::executor::Executor as _;

use super::{executor, in_words, request};

/// See `wpt/LICENSE.md`.
const CASES: &str = include_str!("wpt/urltestdata.json");

/// The crate `url` keeps a host of `file:` that the standard drops before a drive's letter, drops empty parts of a path of
/// `file:` that it keeps, and writes no `/.` before a path of two slashes. No script fetches any of these.
const OTHERWISE: &[&str] = &[
    "/ | file://h/C:/a/b",
    "/..//localhost//pig | file://lion/",
    "/////mouse | file:///elephant",
    "////one/two | file:///",
    "//localhost//pig | file://lion/",
    "/C:/ | file://host/",
    "/c:/foo/bar | file://host/path",
    "C|\n/ | file://host/dir/file",
    "C| | file://host/D:/dir1/dir2/file",
    "C| | file://host/dir/file",
    "C|# | file://host/dir/file",
    "C|/ | file://host/",
    "C|/ | file://host/dir/file",
    "C|? | file://host/dir/file",
    "C|\\ | file://host/dir/file",
    "\\/localhost//pig | file://lion/",
    "file:.//p | ",
    "file:/.//p | ",
    "file:///.// | file:////",
    "file:////foo | ",
    "file:////one/two | file:///",
    "file://1.2.3.4/C:/ | ",
    "file://[1::8]/C:/ | ",
    "file://\\/localhost//cat | ",
    "file://example.net/C:/ | ",
    "file://localhost////foo | ",
    "file://localhost//a//../..// | ",
    "file://localhost//a//../..//foo | ",
    "file://spider/// | ",
    "file:/C:/ | file://host/",
    "file:C:/ | file://host/",
    "file:\\\\// | ",
    "file:\\\\\\\\ | ",
    "file:\\\\\\\\#guppy | ",
    "file:\\\\\\\\?fox | ",
    "file:\\\\localhost// | ",
];

#[tokio::test]
async fn urls_are_what_the_web_platform_tests_say() {
    let source = format!(
        "const cases = {CASES};
        const PARTS = ['href', 'origin', 'protocol', 'username', 'password', 'host', 'hostname', 'port', 'pathname', 'search', 'hash'];
        const fails = ({{ input, base, failure, ...expected }}) => {{
            let url;
            try {{ url = base === null ? new URL(input) : new URL(input, base) }}
            catch {{ return !failure }}
            return failure || PARTS.some((part) => part in expected && url[part] !== expected[part]);
        }};
        const urls = cases.filter((each) => typeof each === 'object');
        export default () => [urls.length, urls.filter(fails).map(({{ input, base }}) => `${{input}} | ${{base ?? ''}}`.toWellFormed())]"
    );
    let told = in_words(&executor().run(&request(&source)).await);
    let (cases, otherwise): (usize, BTreeSet<String>) =
        serde_json::from_str(&told).unwrap_or_else(|_| panic!("{told}"));
    assert!(cases > 800, "{cases}");
    let known: BTreeSet<String> = OTHERWISE.iter().map(|case| (*case).to_owned()).collect();
    assert_eq!(otherwise, known, "what is right now leaves the list");
}
