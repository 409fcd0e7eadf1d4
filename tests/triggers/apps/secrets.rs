//! Secrets from end to end: set from a shell, read by a script, and found nowhere else.

use serde_json::json;

use super::{Platform, request, request_with, route, script};
use crate::support::TestDb;
use crate::support::folder::Folder;
use crate::support::shell::{Told, dana_with};

const CANARY: &str = "sk_live_canary/7f3b\"quoted";

struct Keys {
    folder: Folder,
}

impl Keys {
    fn new() -> Self {
        let folder = Folder::new();
        folder.write("a.key", &"0a".repeat(32));
        folder.write("b.key", &"0b".repeat(32));
        Self { folder }
    }

    /// Settings of `[triggers]`: the key, and the one before it.
    fn settings(&self, current: &str, previous: Option<&str>) -> String {
        let path = |key: &str| self.folder.0.join(key).display().to_string();
        let mut text = format!("secrets_key = {{ file = '{}' }}\n", path(current));
        if let Some(previous) = previous {
            text += &format!("secrets_previous_key = {{ file = '{}' }}\n", path(previous));
        }
        text
    }

    async fn secret(&self, db: &TestDb, line: &str, input: &str) -> Told {
        let config = format!("[triggers]\n{}", self.settings("a.key", None));
        let config = self.folder.write("symphony.toml", &config);
        dana_with(db, &format!("app secret {line} --config {}", config.display()), &[], input).await
    }
}

/// Whether any row of any table has it, in any spelling of it.
pub(super) async fn is_kept(db: &TestDb, text: &str) -> Vec<String> {
    let tables: Vec<String> = db
        .one("SELECT array_agg(relname::text) FROM pg_class WHERE relnamespace = 'symphony'::regnamespace AND relkind = 'r'")
        .await;
    assert!(tables.len() > 40);
    let mut found = Vec::new();
    for table in tables {
        let rows = format!("{table} t WHERE position('{text}' IN t::text) > 0");
        if db.count(&rows).await > 0 {
            found.push(table);
        }
    }
    found
}

#[tokio::test]
async fn a_script_reads_its_secret_and_nothing_else_ever_shows_it() {
    let db = TestDb::new().await;
    let keys = Keys::new();
    let scripts = [
        ("uses", "export default async () => {
            const key = await crypto.subtle.importKey('raw', new TextEncoder().encode(secrets.api), { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
            const signed = new Uint8Array(await crypto.subtle.sign('HMAC', key, new Uint8Array(1)));
            console.log('using', secrets.api, { key: secrets.api }, btoa(secrets.api));
            return { status: 200, body: { length: secrets.api.length, bytes: signed.length } }; }"),
        ("throws", "export default () => { throw new Error('cannot use ' + secrets.api) }"),
        ("answers", "export default () => ({ status: 200, body: { key: secrets.api } })"),
        ("keeps", "export default () => { kv.set('kept', { key: secrets.api }); return 1 }"),
        ("sends", "export default () => { queue.send('jobs', 'Bearer ' + secrets.api); return 1 }"),
        ("other", "export default () => secrets.nobody"),
        ("writes", "export default () => { 'use strict'; secrets.api = 'x' }"),
    ];
    let manifest = json!({
        "scripts": scripts.map(|(name, source)| script(name, source)),
        "routes": scripts.map(|(name, _)| route("GET", &format!("/{name}"), name)),
        "queues": ["jobs"],
    });
    db.push("shop", &manifest).await;
    let mut told = String::new();
    for line in [
        "set shop api --reason r",
        "set shop api --reason the␣new␣account --yes",
        "list shop",
        "list shop --json",
    ] {
        let said = keys.secret(&db, line, &format!("{CANARY}\n")).await;
        assert!(said.ok, "{line}: {}", said.error);
        told += &(said.output + &said.error);
    }
    assert!(told.contains("set secret api of app shop: it is new"), "{told}");
    let platform = Platform::start_with(&db, &keys.settings("a.key", None)).await;
    for (path, status, expected) in [
        ("uses", 200, format!("{{\"length\":{},\"bytes\":32}}", CANARY.len())),
        ("throws", 500, "SCRIPT_ERROR".into()),
        ("answers", 500, "SECRET_IN_OUTPUT".into()),
        ("keeps", 500, "SECRET_IN_OUTPUT".into()),
        ("sends", 500, "SECRET_IN_OUTPUT".into()),
        ("other", 500, "SCRIPT_ERROR".into()),
        ("writes", 500, "SCRIPT_ERROR".into()),
    ] {
        let answer =
            request(platform.http(), "GET", &format!("/apps/shop/{path}"), "").await.unwrap();
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(answer.body.contains(&expected), "{path}: {}", answer.body);
        told += &answer.body;
    }
    let said = |script: &str| {
        format!(
            "SELECT error_message FROM trigger_outbox_executions WHERE script_name = '{script}'"
        )
    };
    assert_eq!(db.one::<String>(&said("throws")).await, "Error: cannot use [secret api] (line 1)");
    assert_eq!(
        db.one::<String>(&said("answers")).await,
        "the value of secret api is in the answer: leave it out"
    );
    let missing: String = db.one(&said("other")).await;
    assert!(
        missing.contains(
            "secrets: app shop has no secret nobody: symphony app secret set shop nobody --reason WHY"
        ),
        "{missing}"
    );
    let logs: String =
        db.one("SELECT logs::text FROM trigger_outbox_executions WHERE script_name = 'uses'").await;
    assert_eq!(logs.matches("[secret api]").count(), 3, "{logs}");
    assert_eq!((db.count("kv_entries").await, db.count("queue_messages").await), (0, 0));
    for (spelling, of) in [
        (CANARY, "as it is"),
        ("sk_live_canary", "its beginning"),
        ("c2tfbGl2ZV9jYW5hcnkv", "in base64"),
    ] {
        assert_eq!(is_kept(&db, spelling).await, Vec::<String>::new(), "{of}");
        assert!(!told.contains(spelling), "{of}: {told}");
    }
    let known: Vec<String> = db.one("SELECT array_agg(event_type || ' ' || actor || ' ' || reason || ' ' || details::text) FROM trigger_outbox_events WHERE event_type LIKE 'SECRET%'").await;
    assert_eq!(known, [r#"SECRET_SET dana the new account {"app": "shop", "secret": "api"}"#]);
    platform.stop().await;
}

/// What scripts do with a secret `k` on its way to somebody.
const SPELLINGS: &[&str] = &[
    "k",
    "encodeURIComponent(k)",
    "encodeURI(k)",
    "encodeURIComponent(k).replace(/%../g, (hex) => hex.toLowerCase())",
    "new URLSearchParams({ key: k }).toString()",
    "new URL('https://example.com/?key=' + k).href",
    "'Basic ' + btoa('api:' + k)",
    "'Basic ' + btoa(k + ':')",
    "'Basic ' + btoa('a:' + k)",
    "'Basic ' + btoa(k)",
    "btoa('api:' + k).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')",
    "new TextEncoder().encode('x' + k).toBase64()",
    "new TextEncoder().encode(k).toHex()",
    "new TextEncoder().encode(k).toHex().toUpperCase()",
    "JSON.stringify({ k })",
];

#[tokio::test]
async fn a_secret_in_an_ordinary_spelling_is_neither_logged_nor_answered_nor_kept() {
    let db = TestDb::new().await;
    let keys = Keys::new();
    let secret = r#"sk_live-canary.7~f3b (q)/??>>"d"~~~"#;
    let spellings = SPELLINGS.join(", (k) => ");
    let use_it = format!(
        "const spellings = [(k) => {spellings}];
         export default ({{ payload }}) => {{
            const written = spellings[payload.params.n](secrets.api);
            switch (payload.params.way) {{
                case 'log': log('about to send', written, {{ written }}); return 'said';
                case 'throw': throw new Error('refused: ' + written);
                case 'answer': return {{ status: 200, body: {{ written }} }};
                case 'bytes': return {{ status: 200, body: new TextEncoder().encode(written) }};
                case 'keep': kv.set('kept', {{ written }}); return 1;
                default: queue.send('jobs', written); return 1;
            }}
         }};"
    );
    let manifest = json!({
        "scripts": [script("use", &use_it)], "queues": ["jobs"],
        "routes": [route("GET", "/{way}/{n}", "use")],
    });
    db.push("shop", &manifest).await;
    assert!(keys.secret(&db, "set shop api --reason r --yes", secret).await.ok);
    let platform = Platform::start_with(&db, &keys.settings("a.key", None)).await;
    for (n, spelling) in SPELLINGS.iter().enumerate() {
        for (way, expected) in [
            ("log", "said"),
            ("throw", "SCRIPT_ERROR"),
            ("answer", "SECRET_IN_OUTPUT"),
            ("keep", "SECRET_IN_OUTPUT"),
            ("send", "SECRET_IN_OUTPUT"),
        ] {
            let line = format!("/apps/shop/{way}/{n}");
            let told = request(platform.http(), "GET", &line, "").await.unwrap();
            assert!(told.body.contains(expected), "{way} {spelling}: {}", told.body);
        }
    }
    // Bytes are answered in base64, which is what is looked at.
    let told = request(platform.http(), "GET", "/apps/shop/bytes/0", "").await.unwrap();
    assert!(told.body.contains("SECRET_IN_OUTPUT"), "{}", told.body);
    let logs: Vec<String> = db
        .one("SELECT array_agg(logs::text) FROM trigger_outbox_executions WHERE payload #>> '{params,way}' = 'log'")
        .await;
    assert_eq!(logs.len(), SPELLINGS.len());
    for said in logs {
        assert_eq!(said.matches("[secret api]").count(), 2, "{said}");
    }
    for fragment in ["canary", "63616e617279", "63616E617279", "Y2FuYXJ5", "NhbmFye", "jYW5hcn"] {
        assert_eq!(is_kept(&db, fragment).await, Vec::<String>::new(), "{fragment}");
    }
    platform.stop().await;
}

#[tokio::test]
async fn a_key_is_changed_while_the_old_one_still_opens_and_a_row_that_was_moved_does_not() {
    let db = TestDb::new().await;
    let keys = Keys::new();
    let read = "export default () => ({ status: 200, body: secrets.api.length })";
    for app in ["shop", "other"] {
        let manifest =
            json!({"scripts": [script("read", read)], "routes": [route("GET", "/read", "read")]});
        db.push(app, &manifest).await;
    }
    assert!(keys.secret(&db, "set shop api --reason r --yes", CANARY).await.ok);
    let error = async |settings: &str, app: &str| {
        let platform = Platform::start_with(&db, settings).await;
        let answer =
            request(platform.http(), "GET", &format!("/apps/{app}/read"), "").await.unwrap();
        platform.stop().await;
        if answer.status == 200 {
            return answer.body;
        }
        let last = "SELECT error_message FROM trigger_outbox_executions ORDER BY completed_at DESC LIMIT 1";
        db.one::<String>(last).await
    };
    let length = CANARY.len().to_string();
    assert_eq!(error(&keys.settings("a.key", None), "shop").await, length);
    assert_eq!(error(&keys.settings("b.key", Some("a.key")), "shop").await, length);
    let said = error(&keys.settings("b.key", None), "shop").await;
    assert!(
        said.contains("secret api is sealed with key ") && said.contains("which is not here"),
        "{said}"
    );
    let said = error("", "shop").await;
    assert!(said.contains("secrets: there is no key for secrets here: name it in symphony.toml as triggers.secrets_key"), "{said}");
    db.sql("INSERT INTO app_secrets (app_id, name, key_id, sealed, set_by) SELECT (SELECT id FROM apps WHERE name = 'other'), name, key_id, sealed, set_by FROM app_secrets").await;
    let said = error(&keys.settings("a.key", None), "other").await;
    assert!(
        said.contains("secret api does not open: it was changed, or belongs elsewhere"),
        "{said}"
    );
}

#[tokio::test]
async fn a_secret_is_refused_in_one_line_that_does_not_repeat_it() {
    let db = TestDb::new().await;
    let keys = Keys::new();
    db.push("shop", &json!({})).await;
    let file = keys.folder.write("secret.txt", "from a file\r\n");
    let line = format!("set shop file --from-file {} --reason r --yes", file.display());
    assert!(keys.secret(&db, &line, "").await.ok);
    for (line, input, expected) in [
        (
            "set shop api --reason r --yes",
            "tiny",
            "the secret in standard input must be 8 to 16384 bytes",
        ),
        (
            "set shop api --reason r --yes",
            "nul\0nul\0nul",
            "the secret in standard input must be text",
        ),
        (
            "set shop 9 --reason r --yes",
            CANARY,
            "the name must be letters, digits, hyphens and underscores",
        ),
        ("set nobody api --reason r --yes", CANARY, "there is no app nobody [P7007"),
        (
            "set shop api --from-file /nowhere --reason r",
            "",
            "the secret in /nowhere cannot be read",
        ),
        ("delete shop api --reason r --yes", "", "app shop has no such secret [P7007"),
        ("set shop api value --reason r", "", "unexpected argument 'value'"),
    ] {
        let told = keys.secret(&db, line, input).await;
        assert!(!told.ok && told.error.contains(expected), "{line}: {}", told.error);
        assert!(input.is_empty() || !told.error.contains(input), "{line}: {}", told.error);
    }
    let told = dana_with(&db, "app secret set shop api --reason r", &[], CANARY).await;
    assert!(
        told.error.contains(
            "there is no key for secrets here: name it in symphony.toml as triggers.secrets_key"
        ),
        "{}",
        told.error
    );
    let told = keys.secret(&db, "delete shop file --reason r --yes", "").await;
    assert_eq!(
        told.output,
        "deleted secret file of app shop: scripts that read it fail from now on\n"
    );
    assert_eq!(keys.secret(&db, "list shop", "").await.output, "app shop has no secret\n");
}

#[tokio::test]
async fn a_signed_route_finds_its_secret_there_after_the_configurations() {
    let db = TestDb::new().await;
    let keys = Keys::new();
    let mut signed = route("POST", "/hook", "take");
    let fields = json!({"auth": "hmac", "signature": "github", "secret": "hook"});
    signed.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let take = script("take", "export default () => 1");
    db.push("shop", &json!({"scripts": [take], "routes": [signed]})).await;
    // GitHub's own example of its documentation.
    let headers = "X-Hub-Signature-256: sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17\r\n";
    let secret = "It's a Secret to Everybody";
    let post = async |settings: &str| {
        let platform = Platform::start_with(&db, settings).await;
        let line = "POST /apps/shop/hook";
        let answer = request_with(platform.http(), line, headers, "Hello, World!").await.unwrap();
        platform.stop().await;
        answer.status
    };
    let key = keys.settings("a.key", None);
    assert_eq!(post(&key).await, 503, "nobody has set it");
    assert!(keys.secret(&db, "set shop hook --reason r --yes", secret).await.ok);
    assert_eq!(post(&key).await, 200);
    assert_eq!(post("").await, 503, "no key");
    let other = keys.folder.write("other", "another secret");
    let configured =
        format!("{key}[triggers.secrets.shop]\nhook = {{ file = '{}' }}\n", other.display());
    assert_eq!(post(&configured).await, 401, "the configuration's comes first");
}

#[tokio::test]
async fn a_rollback_lets_what_is_in_flight_keep_its_version_while_requests_run() {
    let db = TestDb::new().await;
    let version = |n: i32| {
        json!({
            "scripts": [script("say", &format!("export default () => ({{ status: 200, body: {n} }})")),
                        script("job", &format!("export default () => kv.set('job', {n})"))],
            "routes": [route("GET", "/say", "say")], "queues": ["jobs"],
            "triggers": [super::trigger("job", "queue", "jobs", "job")],
        })
    };
    db.push("shop", &version(1)).await;
    db.push("shop", &version(2)).await;
    db.send("shop", "jobs", &json!({})).await;
    let leased = db.claim_item("before").await;
    let platform = Platform::start(&db).await;
    let address = platform.http();
    let asking = tokio::spawn(async move {
        let mut said = Vec::new();
        loop {
            let answer = request(address, "GET", "/apps/shop/say", "").await.unwrap();
            assert_eq!(answer.status, 200, "{}", answer.body);
            let is_back = answer.body == "1";
            said.push(answer.body);
            if is_back {
                return said;
            }
        }
    });
    crate::support::until("somebody was answered", async || {
        db.count("trigger_outbox_executions WHERE source_kind = 'http'").await > 0
    })
    .await;
    let back = "SELECT restored_version FROM rollback_app('shop', 'dana', 'it was better')";
    assert_eq!(db.one_as::<i32>("symphony_operator", back).await, 1);
    let said = asking.await.unwrap();
    assert!(said.len() > 1 && said[..said.len() - 1].iter().all(|body| body == "2"), "{said:?}");
    db.expire_items().await;
    crate::support::until("the job has run", async || db.is_idle().await).await;
    assert_eq!(db.entry("shop", "job").await.as_deref(), Some("2"), "it was written for version 2");
    assert_eq!(db.execution(leased.id).await["script_version"], json!(2));
    platform.stop().await;
}
