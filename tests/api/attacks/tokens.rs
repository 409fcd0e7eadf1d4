//! Tokens that are missing, foreign, bent, expired or revoked.

use futures_util::future::join_all;
use serde_json::Value;
use symphony_server::config::ApiSection;
use symphony_server::http_server::HttpServerSettings;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use super::{STATUS, Served, with_token};

/// Each of these header lines is refused alike, and told nothing but that.
async fn refused(served: &Served, headers: &[String]) {
    for headers in headers {
        let (status, problem) = served.ask_with(headers, STATUS, &Value::Null).await;
        let told = (status, problem["code"].as_str());
        assert_eq!(told, (401, Some("UNAUTHENTICATED")), "{headers}: {problem}");
    }
}

#[tokio::test]
async fn a_missing_token_is_refused() {
    let served = Served::new().await;
    let lines =
        ["", "Authorization: \r\n", "Authorization: Bearer\r\n", "Authorization: Bearer \r\n"];
    refused(&served, &lines.map(str::to_owned)).await;
}

#[tokio::test]
async fn a_token_that_nobody_made_is_refused() {
    let served = Served::new().await;
    refused(&served, &[with_token(&format!("symphony_{}", "0".repeat(64)))]).await;
}

#[tokio::test]
async fn a_token_of_another_installation_is_refused() {
    let (here, elsewhere) = (Served::new().await, Served::new().await);
    let foreign = elsewhere.token("eve", "read,operate").await;
    refused(&here, &[with_token(&foreign)]).await;
    assert_eq!(elsewhere.ask(&foreign, STATUS, &Value::Null).await.0, 200);
}

#[tokio::test]
async fn a_token_cut_short_or_made_longer_or_in_capitals_is_refused() {
    let served = Served::new().await;
    let good = served.token("eve", "read").await;
    let bent = [
        good[..good.len() - 1].to_owned(),
        format!("{good}x"),
        good.to_uppercase(),
        format!(" {good}"),
    ];
    refused(&served, &bent.map(|token| with_token(&token))).await;
    assert_eq!(served.ask(&good, STATUS, &Value::Null).await.0, 200);
}

#[tokio::test]
async fn the_hash_that_the_database_keeps_is_no_token() {
    let served = Served::new().await;
    served.token("eve", "read").await;
    let hash: String = served.db.one("SELECT encode(token_hash, 'hex') FROM api_tokens").await;
    refused(&served, &[with_token(&format!("symphony_{hash}"))]).await;
}

#[tokio::test]
async fn sql_in_a_token_is_refused_unasked() {
    let served = Served::new().await;
    let good = served.token("eve", "read").await;
    let bent = ["' OR '1'='1", "'; DROP TABLE api_tokens; --", "%00"];
    refused(&served, &bent.map(|more| with_token(&format!("{good}{more}")))).await;
}

#[tokio::test]
async fn a_token_anywhere_but_in_its_header_is_none() {
    let served = Served::new().await;
    let good = served.token("eve", "read").await;
    let lines = [
        format!("X-Authorization: Bearer {good}\r\n"),
        format!("Proxy-Authorization: Bearer {good}\r\n"),
        format!("Cookie: token={good}\r\n"),
        format!("Authorization: Basic {good}\r\n"),
        format!("Authorization: {good}\r\n"),
    ];
    refused(&served, &lines).await;
    let (status, _) = served.ask_with("", &format!("{STATUS}?token={good}"), &Value::Null).await;
    assert_eq!(status, 401, "addresses are logged by whoever stands between");
}

#[tokio::test]
async fn two_tokens_in_one_request_are_refused() {
    let served = Served::new().await;
    let (one, other) = (served.token("eve", "read").await, served.token("ann", "operate").await);
    refused(
        &served,
        &[with_token(&one) + &with_token(&other), with_token(&one) + &with_token(&one)],
    )
    .await;
}

#[tokio::test]
async fn a_revoked_token_is_refused_from_the_next_request_on() {
    let served = Served::new().await;
    let made = served.token_command("create --name a --person eve --scope read").await;
    let token = made["token"].as_str().unwrap().to_owned();
    assert_eq!(served.ask(&token, STATUS, &Value::Null).await.0, 200);
    let id = made["token_id"].as_str().unwrap();
    served.token_command(&format!("revoke {id} --reason lost")).await;
    served.refuses(&token, STATUS, &Value::Null, 401, "UNAUTHENTICATED").await;
}

#[tokio::test]
async fn an_expired_token_is_refused() {
    let served = Served::new().await;
    let token = served.token("eve", "read").await;
    assert_eq!(served.ask(&token, STATUS, &Value::Null).await.0, 200);
    served.db.sql("UPDATE api_tokens SET created_at = created_at - INTERVAL '2 years', expires_at = clock_timestamp() - INTERVAL '1 second'").await;
    served.refuses(&token, STATUS, &Value::Null, 401, "UNAUTHENTICATED").await;
}

#[tokio::test]
async fn one_token_cannot_take_the_servers_time_from_others() {
    let section = ApiSection { rate_per_second: 5, ..ApiSection::at("127.0.0.1:0") };
    let served = Served::with(&section, HttpServerSettings::default()).await;
    let (one, other) = (served.token("eve", "read").await, served.token("ann", "read").await);
    let mut limited = 0;
    for _ in 0..20 {
        limited += usize::from(served.ask(&one, STATUS, &Value::Null).await.0 == 429);
    }
    assert!(limited > 0, "of 20 at once some are too many");
    assert_eq!(served.ask(&other, STATUS, &Value::Null).await.0, 200, "others go on");
}

#[tokio::test]
async fn guessing_tokens_cannot_keep_the_database_busy() {
    let served = Served::new().await;
    let known = served.token("ann", "read").await;
    assert_eq!(served.ask(&known, STATUS, &Value::Null).await.0, 200);
    let statuses = guesses(&served, "127.0.0.1", |_| String::new()).await;
    let expected = statuses.iter().all(|status| [401, 429].contains(status));
    assert!(statuses.contains(&429) && expected, "{statuses:?}");
    assert_eq!(
        served.ask(&known, STATUS, &Value::Null).await.0,
        200,
        "known tokens have a rate of their own"
    );
}

/// The status of a request from this address of the machine.
async fn status_from(served: &Served, from: &str, token: &str, headers: &str) -> u16 {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
    let mut stream = socket.connect(served.api.address()).await.unwrap();
    let text = format!(
        "{STATUS} HTTP/1.1\r\nHost: localhost\r\n{}{headers}Connection: close\r\n\r\n",
        with_token(token)
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// What sixty guesses at once are told.
async fn guesses(served: &Served, from: &str, headers: impl Fn(usize) -> String) -> Vec<u16> {
    let all = (0..60).map(|n| (format!("symphony_{n:064x}"), headers(n)));
    let all: Vec<_> = all.collect();
    let asked = all.iter().map(|(guess, headers)| status_from(served, from, guess, headers));
    join_all(asked).await
}

#[tokio::test]
async fn whoever_guesses_tokens_keeps_nobody_at_another_address_out() {
    let served = Served::new().await;
    // Without a proxy anybody could write this.
    let statuses =
        guesses(&served, "127.0.0.2", |n| format!("X-Forwarded-For: 203.0.113.{n}\r\n")).await;
    assert!(statuses.contains(&429), "{statuses:?}");
    // The process has never seen this token.
    let token = served.token("ann", "read").await;
    assert_eq!(status_from(&served, "127.0.0.1", &token, "").await, 200);
}

#[tokio::test]
async fn behind_a_proxy_guesses_count_for_the_address_that_the_proxy_has_seen() {
    let section = ApiSection { behind_proxy: true, ..ApiSection::at("127.0.0.1:0") };
    let served = Served::with(&section, HttpServerSettings::default()).await;
    // All but the last address are the client's own words.
    let seen = |n| format!("X-Forwarded-For: 10.0.0.{n}, 203.0.113.7\r\n");
    let statuses = guesses(&served, "127.0.0.1", seen).await;
    assert!(statuses.contains(&429), "{statuses:?}");
    let token = served.token("ann", "read").await;
    let elsewhere = "X-Forwarded-For: 203.0.113.8\r\n";
    assert_eq!(status_from(&served, "127.0.0.1", &token, elsewhere).await, 200);
}
