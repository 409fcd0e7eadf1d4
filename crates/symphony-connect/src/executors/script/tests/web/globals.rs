//! How the globals are there: as the web's, and none of the host's.

use super::{all_are, each_is};

#[tokio::test]
async fn every_global_is_there_and_the_same_each_time() {
    let names = [
        "crypto",
        "CryptoKey",
        "TextEncoder",
        "TextDecoder",
        "atob",
        "btoa",
        "structuredClone",
        "URL",
        "URLSearchParams",
        "Headers",
        "DOMException",
    ];
    for name in names {
        let same = format!(
            "typeof {name} !== 'undefined' && {name} === globalThis.{name} && '{name}' in globalThis"
        );
        all_are(&[
            (&same, "true"),
            (&format!("Object.keys(globalThis).includes('{name}')"), "false"),
        ])
        .await;
    }
}

#[tokio::test]
async fn a_script_may_put_its_own_in_their_place() {
    each_is(&[
        (
            "globalThis.URL = class { x = 1 }; return [new URL('x').x, typeof URLSearchParams]",
            r#"[1,"function"]"#,
        ),
        ("URL; globalThis.URL = 5; return URL", "5"),
        ("delete globalThis.Headers; return typeof Headers", r#""undefined""#),
        ("const URL = 7; return URL", "7"),
    ])
    .await;
}

/// What a script did to the engine's own objects is its own business: it gets an error or an odd answer, nobody else does.
#[tokio::test]
async fn a_script_that_broke_the_engines_objects_first_breaks_only_its_own() {
    each_is(&[
        ("Object.prototype.get = () => 1; Object.prototype.value = 2; return new URL('http://h').href", r#""http://h/""#),
        ("Array.prototype[Symbol.iterator] = null; JSON.parse = null; try { return new URL('http://h').href } catch (error) { return 'its own' }", r#""its own""#),
        ("String.prototype.toWellFormed = () => ({}); try { new URL('x') } catch {} kv.set('k', 1); return kv.get('k')", "1"),
    ])
    .await;
    each_is(&[("return new URL('http://h').href", r#""http://h/""#)]).await;
}
