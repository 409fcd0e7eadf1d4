//! Who may call: signatures of providers, access tokens, and what of a request is never stored.

use serde_json::{Value, json};

use super::{Platform, route, script};
use crate::support::TestDb;
use crate::support::processes::python_or_skip;

/// A client that knows each scheme from its documents: method, url, scheme, secret, seconds ago, whether to change the body.
const SIGN: &str = r#"
import base64, hashlib, hmac, http.client, json, sys, time
port, cases = int(sys.argv[1]), json.loads(sys.argv[2])
for scheme, secret, ago, tampered in cases:
    body = b'{"id":  "evt_1", "amount": 12.50}'
    at = str(int(time.time()) - ago)
    if scheme == 'stripe':
        digest = hmac.new(secret.encode(), at.encode() + b'.' + body, hashlib.sha256).hexdigest()
        headers = {'Stripe-Signature': f't={at},v1={digest}'}
    elif scheme == 'github':
        headers = {'X-Hub-Signature-256': 'sha256=' + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}
    else:
        key = base64.b64decode(secret.removeprefix('whsec_'))
        digest = base64.b64encode(hmac.new(key, b'msg_1.' + at.encode() + b'.' + body, hashlib.sha256).digest()).decode()
        headers = {'webhook-id': 'msg_1', 'webhook-timestamp': at, 'webhook-signature': 'v1,' + digest}
    headers['Content-Type'] = 'application/json'
    client = http.client.HTTPConnection('127.0.0.1', port)
    client.request('POST', '/apps/shop/' + scheme, body.replace(b'12', b'99') if tampered else body, headers)
    answer = client.getresponse()
    print(answer.status, answer.read().decode())
"#;

const STANDARD_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const STRIPE_SECRET: &str = "whsec_test_secret";
const GITHUB_SECRET: &str = "It's a Secret to Everybody";

#[tokio::test]
async fn a_signed_route_runs_for_whoever_has_the_secret_and_writes_nothing_for_others() {
    python_or_skip!();
    let db = TestDb::new().await;
    let signed = |scheme: &str| {
        json!({"method": "POST", "path": format!("/{scheme}"), "script": "take", "auth": "hmac", "signature": scheme,
               "secret": scheme})
    };
    let mut routes: Vec<Value> = ["standard-webhooks", "stripe", "github"].map(signed).into();
    routes.push(json!({"method": "POST", "path": "/other", "script": "take", "auth": "hmac", "signature": "stripe",
                       "secret": "absent"}));
    let take = script(
        "take",
        "export default r => ({ caller: r.payload.caller, amount: r.payload.body.amount })",
    );
    db.push("shop", &json!({"scripts": [take], "routes": routes})).await;
    let folder = crate::support::folder::Folder::new();
    let mut settings = "[triggers.secrets.shop]\n".to_owned();
    for (name, secret) in [
        ("standard-webhooks", STANDARD_SECRET),
        ("stripe", STRIPE_SECRET),
        ("github", GITHUB_SECRET),
    ] {
        let file = folder.write(name, &format!("{secret}\n"));
        settings.push_str(&format!("{name} = {{ file = '{}' }}\n", file.display()));
    }
    let platform = Platform::start_with(&db, &settings).await;
    let good = [
        ("standard-webhooks", STANDARD_SECRET, 0, false),
        ("stripe", STRIPE_SECRET, 0, false),
        ("github", GITHUB_SECRET, 0, false),
    ];
    for (said, (scheme, ..)) in sign(&platform, &good).await.iter().zip(good) {
        let expected = format!(
            "200 {{\"caller\":{{\"kind\":\"webhook\",\"name\":\"shop/{scheme}\"}},\"amount\":12.5}}"
        );
        assert_eq!(said, &expected);
    }
    let written = "SELECT (SELECT count(*) FROM trigger_outbox_pending) + (SELECT count(*) FROM trigger_outbox_executions)";
    assert_eq!(db.one::<i64>(written).await, 3);
    let bad = [
        ("standard-webhooks", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX", 0, false),
        ("standard-webhooks", STANDARD_SECRET, 0, true),
        ("standard-webhooks", STANDARD_SECRET, 400, false),
        ("stripe", "whsec_another", 0, false),
        ("stripe", STRIPE_SECRET, 0, true),
        ("stripe", STRIPE_SECRET, 400, false),
        ("stripe", STRIPE_SECRET, -400, false),
        ("github", "another", 0, false),
        ("github", GITHUB_SECRET, 0, true),
        ("other", STANDARD_SECRET, 0, false),
    ];
    for (said, (scheme, _, ago, _)) in sign(&platform, &bad).await.iter().zip(bad) {
        let (status, code) = match (scheme, ago) {
            ("other", _) => (503, "SECRET_MISSING"),
            (_, 0) => (401, "SIGNATURE_REFUSED"),
            _ => (401, "SIGNATURE_OUT_OF_TIME"),
        };
        assert_eq!(
            said,
            &format!("{status} {{\"error\":\"{code}\",\"executionId\":null}}"),
            "{scheme} {ago}"
        );
    }
    assert_eq!(db.one::<i64>(written).await, 3, "nothing is written for whoever is refused");
    let caused: Vec<String> = db
        .one("SELECT array_agg(p.kind || ' ' || p.name ORDER BY p.name) FROM trigger_outbox_executions e \
                JOIN principals p ON p.principal_id = e.origin_principal")
        .await;
    assert_eq!(
        caused,
        ["webhook shop/github", "webhook shop/standard-webhooks", "webhook shop/stripe"]
    );
    let kept: i64 = db
        .one("SELECT count(*) FROM trigger_outbox_executions WHERE payload::text ~* 'webhook-signature|stripe-signature|hub-signature'")
        .await;
    assert_eq!(kept, 0, "a signature that is stored could be sent once more");
    platform.stop().await;
}

#[tokio::test]
async fn a_script_that_notes_the_ids_of_deliveries_takes_a_copy_once() {
    python_or_skip!();
    let db = TestDb::new().await;
    // As APPS.md has it.
    let once = script(
        "once",
        "export default ({ payload }) => {
            const id = payload.headers['webhook-id'] ?? payload.body.id;
            if (!kv.setIfAbsent(`delivery/${id}`, true, { ttlSeconds: 7 * 86400 })) return { status: 200, body: 'known' };
            kv.increment('paid');
            return { status: 200, body: 'taken' };
        }",
    );
    let signed = |scheme: &str| {
        json!({"method": "POST", "path": format!("/{scheme}"), "script": "once", "auth": "hmac", "signature": scheme,
               "secret": scheme})
    };
    let routes = ["standard-webhooks", "stripe"].map(signed);
    db.push("shop", &json!({"scripts": [once], "routes": routes})).await;
    let folder = crate::support::folder::Folder::new();
    let mut settings = "[triggers.secrets.shop]\n".to_owned();
    for (name, secret) in [("standard-webhooks", STANDARD_SECRET), ("stripe", STRIPE_SECRET)] {
        let file = folder.write(name, secret);
        settings.push_str(&format!("{name} = {{ file = '{}' }}\n", file.display()));
    }
    let platform = Platform::start_with(&db, &settings).await;
    let webhook = ("standard-webhooks", STANDARD_SECRET, 0, false);
    let stripe = ("stripe", STRIPE_SECRET, 0, false);
    let said = sign(&platform, &[webhook, webhook, stripe, stripe]).await;
    assert_eq!(said, ["200 taken", "200 known", "200 taken", "200 known"]);
    assert_eq!(db.entry("shop", "paid").await.as_deref(), Some("2"));
    platform.stop().await;
}

async fn sign(platform: &Platform, cases: &[(&str, &str, i64, bool)]) -> Vec<String> {
    let port = platform.http().port().to_string();
    let cases = serde_json::to_string(cases).unwrap();
    let mut python = tokio::process::Command::new("python3");
    let sent = python.args(["-c", SIGN, &port, &cases]).output().await.unwrap();
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    String::from_utf8(sent.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// A token of ann's with one scope.
async fn token(db: &TestDb, scope: &str) -> String {
    // Six letters at most: their bytes are a number.
    let number = scope.bytes().fold(0_u64, |number, byte| number * 256 + u64::from(byte));
    let secret = format!("symphony_{number:064x}");
    db.sql(&format!(
        "SELECT create_api_token('{scope}s', 'ann', '{{{scope}}}', sha256(convert_to('{secret}', 'UTF8')), 'root')"
    ))
    .await;
    secret
}

#[tokio::test]
async fn a_route_of_tokens_runs_for_those_who_may_call_and_stores_no_credentials() {
    let db = TestDb::new().await;
    let who = script(
        "who",
        "export default r => { kv.set('seen', 1); return { ...r.payload.caller, headers: r.payload.headers }; }",
    );
    let mut routed = route("GET", "/who", "who");
    routed["auth"] = json!("token");
    let fired = script("seen", "export default () => null");
    let watch = super::trigger("watch", "kv", "seen", "seen");
    db.push("shop", &json!({"scripts": [who, fired], "routes": [routed], "triggers": [watch]}))
        .await;
    let (call, read) = (token(&db, "call").await, token(&db, "read").await);
    let settings = "headers_not_stored = ['x-api-key']";
    let platform = Platform::start_with(&db, settings).await;
    let ask = async |line: &str, headers: &str| {
        super::request_with(platform.http(), line, headers, "").await.unwrap()
    };
    for (headers, status, code) in [
        (String::new(), 401, "UNAUTHENTICATED"),
        (format!("Authorization: Bearer symphony_{:064x}\r\n", 1), 401, "UNAUTHENTICATED"),
        (format!("Authorization: Bearer {read}\r\n"), 403, "SCOPE_MISSING"),
    ] {
        let answer = ask("GET /apps/shop/who", &headers).await;
        assert_eq!(
            (answer.status, answer.json()["error"].as_str()),
            (status, Some(code)),
            "{headers}"
        );
    }
    assert_eq!(db.count("trigger_outbox_executions").await, 0);
    let headers = format!(
        "Authorization: Bearer {call}\r\nCookie: session=hush\r\nProxy-Authorization: hush\r\nX-Api-Key: hush\r\nX-Seen: 1\r\n"
    );
    let answer = ask("GET /apps/shop/who", &headers).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(
        (&answer.json()["kind"], &answer.json()["name"]),
        (&json!("token"), &json!("ann/calls"))
    );
    assert_eq!(answer.json()["headers"]["x-seen"], "1");
    crate::support::until("everything has run", async || db.is_idle().await).await;
    let stored = "SELECT count(*) FROM trigger_outbox_executions e WHERE e::text ~* 'hush|bearer|symphony_0'";
    assert_eq!(db.one::<i64>(stored).await, 0);
    let caused: Vec<String> = db
        .one("SELECT array_agg(e.source_kind || ' ' || p.kind || ' ' || p.name ORDER BY e.source_kind) \
                FROM trigger_outbox_executions e JOIN principals p ON p.principal_id = e.origin_principal")
        .await;
    assert_eq!(caused, ["http token ann/calls", "kv token ann/calls"], "also of what it fired");
    platform.stop().await;
}

#[tokio::test]
async fn headers_that_are_never_stored_reach_the_script_beside_its_client_and_nothing_else() {
    let db = TestDb::new().await;
    let who = script(
        "who",
        "export default (request) => {
            const { headers, cookies, payload } = request;
            const long = (name) => headers.get(name)?.length ?? null;
            log('asked with', [...headers], cookies, request);
            kv.set('seen', { ...request, cookies: Object.keys(cookies) });
            const told = { cookies: Object.keys(cookies), sid: cookies.sid?.length ?? null, key: long('x-api-key') };
            return { status: 200, body: { ...told, authorization: long('authorization'), names: payload.headersNotStored ?? [] } };
        }",
    );
    let with = |name: &str, body: &str| {
        script(name, &format!("export default ({{ headers, cookies }}) => {{ {body} }}"))
    };
    let scripts = [
        who,
        with("answers", "return { status: 200, body: headers.get('authorization').slice(6) }"),
        with("keeps", "kv.set('key', headers.get('x-api-key'))"),
        with("throws", "throw new Error(`${headers.get('authorization')} and ${cookies.sid}`)"),
        with(
            "refreshes",
            "return { status: 200, headers: { 'set-cookie': 'lang=' + cookies.lang }, body: cookies.lang }",
        ),
    ];
    let mut routes: Vec<Value> = ["who", "answers", "keeps", "throws", "refreshes"]
        .map(|name| route("GET", &format!("/{name}"), name))
        .into();
    for (path, field, value) in [("/token", "auth", "token"), ("/later", "mode", "async")] {
        let mut special = route("GET", path, "who");
        special[field] = json!(value);
        special["attempts"] = json!(1);
        routes.push(special);
    }
    db.push("shop", &json!({"scripts": scripts, "routes": routes})).await;
    let call = token(&db, "call").await;
    let platform = Platform::start_with(&db, "headers_not_stored = ['x-api-key']").await;
    let given = "Authorization: Basic canary-credentials\r\nCookie: sid=canary-7f3b; lang=de; sid=b\r\nX-Api-Key: canary-key\r\n";
    let ask = async |path: &str, headers: &str| {
        let line = format!("GET /apps/shop/{path}");
        super::request_with(platform.http(), &line, headers, "").await.unwrap()
    };
    let names = ["authorization", "cookie", "x-api-key"];
    assert_eq!(
        ask("who", given).await.json(),
        json!({"cookies": ["sid", "lang"], "sid": 11, "key": 10, "authorization": 24, "names": names})
    );
    assert_eq!(
        ask("who", "").await.json(),
        json!({"cookies": [], "sid": null, "key": null, "authorization": null, "names": []})
    );
    let bearer = format!("Authorization: Bearer {call}\r\nCookie: sid=canary-7f3b\r\n");
    assert_eq!(
        ask("token", &bearer).await.json(),
        json!({"cookies": ["sid"], "sid": 11, "key": null, "authorization": null, "names": ["cookie"]}),
        "a token is its holder's"
    );
    for (path, status, body) in [
        ("answers", 500, "SECRET_IN_OUTPUT"),
        ("keeps", 500, "SECRET_IN_OUTPUT"),
        ("throws", 500, "SCRIPT_ERROR"),
        ("refreshes", 200, "de"),
    ] {
        let told = ask(path, given).await;
        assert!(told.status == status && told.body.contains(body), "{path}: {}", told.body);
    }
    // Where nobody waits beside the run, a stranger is not made of whoever has a cookie.
    assert_eq!(ask("later", given).await.status, 202);
    let first = "SELECT id::text FROM trigger_outbox_executions WHERE script_name = 'who' ORDER BY created_at LIMIT 1";
    let first: String = db.one(first).await;
    let replay = format!("SELECT replay_id FROM replay_trigger_execution('{first}', 'dana', 'r')");
    db.one_as::<uuid::Uuid>("symphony_operator", &replay).await;
    crate::support::until("both have run", async || db.is_idle().await).await;
    let failed: Vec<String> = db
        .one("SELECT array_agg(error_message) FROM trigger_outbox_executions WHERE script_name = 'who' AND state = 'FAILED'")
        .await;
    assert_eq!(failed.len(), 2, "{failed:?}");
    for problem in failed {
        assert!(problem.contains("the Cookie header is not stored"), "{problem}");
    }
    assert_eq!(super::secrets::is_kept(&db, "canary").await, Vec::<String>::new());
    platform.stop().await;
}

#[tokio::test]
async fn status_and_mail_are_for_those_who_have_a_token_unless_the_operator_says_otherwise() {
    let db = TestDb::new().await;
    let mut mine = route("POST", "/mine", "run");
    (mine["auth"], mine["mode"]) = (json!("token"), json!("async"));
    let mut public = route("POST", "/public", "run");
    public["mode"] = json!("async");
    db.push(
        "shop",
        &json!({
            "scripts": [script("run", "export default () => null")],
            "routes": [mine, public],
            "triggers": [super::trigger("in", "email", "shop@example.com", "run")],
        }),
    )
    .await;
    let (call, read, ingest) =
        (token(&db, "call").await, token(&db, "read").await, token(&db, "ingest").await);
    let platform = Platform::start_with(&db, "status_auth = 'token'\nmail_auth = 'token'").await;
    let ask = async |line: &str, token: &str, body: &str| {
        let headers = if token.is_empty() {
            String::new()
        } else {
            format!("Authorization: Bearer {token}\r\n")
        };
        super::request_with(platform.http(), line, &headers, body).await.unwrap()
    };
    let of = async |line: &str, token: &str| {
        let answer = ask(line, token, "").await;
        assert_eq!(answer.status, 202, "{}", answer.body);
        format!("GET {}", answer.json()["statusUrl"].as_str().unwrap())
    };
    let (mine, public) =
        (of("POST /apps/shop/mine", &call).await, of("POST /apps/shop/public", "").await);
    for (line, token, status) in [
        (&mine, "", 401),
        (&public, "", 401),
        (&mine, &*call, 200),
        (&public, &*call, 404),
        (&mine, &*read, 200),
        (&public, &*read, 200),
    ] {
        assert_eq!(ask(line, token, "").await.status, status, "{line} {token}");
    }
    let mail = "From: kim@client.example\r\nAuthentication-Results: mx; dmarc=pass header.from=client.example\r\n\r\nhello\r\n";
    for (token, status) in [("", 401), (&*call, 403), (&*ingest, 204)] {
        assert_eq!(ask("POST /mail/shop@example.com", token, mail).await.status, status, "{token}");
    }
    crate::support::until("everything has run", async || db.is_idle().await).await;
    let caused: String = db
        .one("SELECT p.kind || ' ' || p.name FROM trigger_outbox_executions e \
                JOIN principals p ON p.principal_id = e.origin_principal WHERE e.source_kind = 'email'")
        .await;
    assert_eq!(
        caused, "token ann/ingests",
        "no server in front is named whose word about senders counts"
    );
    platform.stop().await;
}

#[tokio::test]
async fn a_verified_sender_caused_what_its_mail_fires() {
    let db = TestDb::new().await;
    db.push("shop", &json!({
        "scripts": [script("run", "export default r => ({ from: r.payload.mail.verifiedSender })")],
        "triggers": [super::trigger("in", "email", "shop@example.com", "run")],
    }))
    .await;
    let ingest = token(&db, "ingest").await;
    let settings = "mail_auth = 'token'\nstatus_auth = 'token'\n[triggers.email]\nlisten = 'off'\nauthserv_id = 'mx.example.com'\n";
    let platform = Platform::start_with_mail(&db, settings).await;
    let headers = format!("Authorization: Bearer {ingest}\r\n");
    let mail = "Authentication-Results: mx.example.com; dkim=pass header.d=client.example\r\nFrom: Kim <kim@client.example>\r\n\r\nhello\r\n";
    let handed =
        super::request_with(platform.http(), "POST /mail/shop@example.com", &headers, mail).await;
    assert_eq!(handed.unwrap().status, 204);
    crate::support::until("everything has run", async || db.is_idle().await).await;
    let caused: String = db
        .one("SELECT p.kind || ' ' || p.name || ' ' || (e.result->>'from') FROM trigger_outbox_executions e \
                JOIN principals p ON p.principal_id = e.origin_principal")
        .await;
    assert_eq!(caused, "mail kim@client.example kim@client.example");
    platform.stop().await;
}
