//! Games with hosts, addresses, methods and headers.

use serde_json::Value;

use super::{STATUS, Served, status_of, with_token};
use crate::api::raw;

#[tokio::test]
async fn a_name_that_leads_to_this_machine_is_not_this_machine() {
    let served = Served::new().await;
    let token = with_token(&served.token("eve", "read").await);
    let foreign = [
        "evil.example",
        "localhost.evil.example:80",
        "127.0.0.1.nip.io",
        "",
        "localhost@evil.example",
        "0.0.0.0",
    ];
    for host in foreign {
        let text =
            format!("GET /v1/status HTTP/1.1\r\nHost: {host}\r\n{token}Connection: close\r\n\r\n");
        let answer = raw(served.api.address(), text.as_bytes()).await;
        assert!(
            answer.starts_with("HTTP/1.1 403") && answer.contains("\"code\":\"HOST\""),
            "{host}: {answer}"
        );
    }
}

#[tokio::test]
async fn no_host_or_two_hosts_are_refused() {
    let served = Served::new().await;
    let token = with_token(&served.token("eve", "read").await);
    for hosts in
        ["", "Host: evil.example\r\nHost: localhost\r\n", "X-Forwarded-Host: localhost\r\n"]
    {
        let text = format!("GET /v1/status HTTP/1.1\r\n{hosts}{token}Connection: close\r\n\r\n");
        let status = status_of(&served, &text).await;
        assert!([400, 403].contains(&status), "{hosts}: {status}");
    }
}

#[tokio::test]
async fn an_address_that_names_another_host_is_not_served_as_ours() {
    let served = Served::new().await;
    let token = with_token(&served.token("eve", "read").await);
    let text = format!(
        "GET http://evil.example/v1/status HTTP/1.1\r\nHost: evil.example\r\n{token}Connection: close\r\n\r\n"
    );
    assert_eq!(status_of(&served, &text).await, 403);
}

#[tokio::test]
async fn no_path_climbs_or_is_spelled_another_way() {
    let served = Served::new().await;
    let token = served.token("eve", "read,operate").await;
    for path in [
        "/v1/../v1/status",
        "//v1/status",
        "/v1/status/",
        "/V1/STATUS",
        "/v1/./status",
        "/v1%2fstatus",
        "/v1/status%00",
        "/v1/status;x=1",
        "/manage/apps",
        "/v1/payments/..%2f..%2fetc%2fpasswd",
        "/etc/passwd",
    ] {
        let (found, problem) = served.ask(&token, &format!("GET {path}"), &Value::Null).await;
        assert_eq!(found, 404, "{path}: {problem}");
    }
}

#[tokio::test]
async fn what_cannot_be_an_id_is_refused_and_not_looked_for() {
    let served = Served::new().await;
    let token = served.token("eve", "read").await;
    for (path, status) in [
        ("/v1/payments/%00", 422),
        ("/v1/payments/%ff", 422),
        ("/v1/payments/%27%20OR%201%3D1--", 404),
        ("/v1/events/x", 422),
        ("/v1/executions/x", 422),
        ("/v1/executions?before=x", 422),
        ("/v1/approvals/-1", 404),
        ("/v1/approvals/99999999999999999999", 422),
        ("/v1/approvals?limit=-1", 422),
        ("/v1/approvals?unknown=1", 422),
        ("/v1/approvals?limit=1&limit=2", 422),
        ("/v1/dead-letters/payments?after=%00", 422),
    ] {
        let (found, problem) = served.ask(&token, &format!("GET {path}"), &Value::Null).await;
        assert_eq!(found, status, "{path}: {problem}");
    }
}

#[tokio::test]
async fn dates_that_postgresql_cannot_store_are_refused_and_not_called_an_outage() {
    let served = Served::new().await;
    let token = served.token("eve", "read").await;
    for path in [
        "/v1/dead-letters/payments?since=-9999-01-01T00:00:00Z",
        "/v1/dead-letters/events?until=-9999-01-01T00:00:00Z",
        "/v1/dead-letters/triggers?since=-9999-01-01T00:00:00Z",
    ] {
        let (found, problem) = served.ask(&token, &format!("GET {path}"), &Value::Null).await;
        assert_eq!((found, problem["code"].as_str()), (422, Some("P7005")), "{path}: {problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("beyond what PostgreSQL can store"), "{path}: {detail}");
    }
}

#[tokio::test]
async fn a_page_is_never_longer_than_its_limit_whatever_is_asked_for() {
    let served = Served::new().await;
    let token = served.token("eve", "read").await;
    for limit in ["0", "1000000", "4294967295"] {
        let (found, page) =
            served.ask(&token, &format!("GET /v1/approvals?limit={limit}"), &Value::Null).await;
        let is_empty = page["items"].as_array().is_some_and(Vec::is_empty);
        assert!(found == 200 && is_empty, "{limit}: {page}");
    }
    let (found, _) = served.ask(&token, "GET /v1/approvals?limit=4294967296", &Value::Null).await;
    assert_eq!(found, 422);
}

#[tokio::test]
async fn another_method_is_refused() {
    let served = Served::new().await;
    let token = served.token("eve", "read,operate").await;
    for line in [
        "DELETE /v1/status",
        "POST /v1/status",
        "TRACE /v1/status",
        "OPTIONS /v1/status",
        "PUT /v1/payments",
        "GET /v1/acts/park_outbox",
        "PATCH /openapi.json",
        "POST /metrics",
        "GRAB /v1/status",
    ] {
        let (found, problem) = served.ask(&token, line, &Value::Null).await;
        assert_eq!(found, 405, "{line}: {problem}");
    }
}

#[tokio::test]
async fn headers_that_override_elsewhere_do_nothing_here() {
    let served = Served::new().await;
    let token = with_token(&served.token("eve", "read").await);
    for header in [
        "X-HTTP-Method-Override: DELETE",
        "X-Original-URL: /v1/apps",
        "X-Rewrite-URL: /v1/apps",
        "X-Forwarded-For: 127.0.0.1",
        "X-Symphony-Actor: root",
        "Forwarded: host=localhost;proto=https",
    ] {
        let (status, told) =
            served.ask_with(&format!("{token}{header}\r\n"), STATUS, &Value::Null).await;
        assert!(status == 200 && told[0]["lane"] == "payments", "{header}: {told}");
    }
}

#[tokio::test]
async fn lengths_that_disagree_smuggle_no_second_request() {
    let served = Served::new().await;
    let token = with_token(&served.token("eve", "read,operate").await);
    let second =
        format!("GET /v1/status HTTP/1.1\r\nHost: localhost\r\n{token}Connection: close\r\n\r\n");
    for lengths in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: +5\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    ] {
        let text = format!(
            "POST /v1/acts/park_outbox HTTP/1.1\r\nHost: localhost\r\n{token}Content-Type: application/json\r\n{lengths}\r\n0\r\n\r\n{second}"
        );
        let answer = raw(served.api.address(), text.as_bytes()).await;
        assert!(
            answer.starts_with("HTTP/1.1 4") && !answer.contains("HTTP/1.1 200"),
            "{lengths}: {answer}"
        );
    }
}

#[tokio::test]
async fn bent_and_folded_headers_are_refused() {
    let served = Served::new().await;
    let token = served.token("eve", "read").await;
    for lines in [
        format!("Authorization : Bearer {token}\r\n"),
        format!("Authorization: Bearer\r\n {token}\r\n"),
        format!("X: a\0b\r\nAuthorization: Bearer {token}\r\n"),
        format!("Authorization: Bearer {token}\r\nX\u{7f}: y\r\n"),
    ] {
        let text = format!(
            "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n{lines}Connection: close\r\n\r\n"
        );
        let status = status_of(&served, &text).await;
        assert!([400, 401].contains(&status), "{lines:?}: {status}");
    }
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let served = Served::new().await;
    let long = "x".repeat(1024 * 1024);
    let many = "X-Y: y\r\n".repeat(5_000);
    for (line, headers) in [
        ("/v1/status".to_owned(), many),
        (format!("/v1/{long}"), String::new()),
        ("/v1/status".to_owned(), format!("X: {long}\r\n")),
    ] {
        let text =
            format!("GET {line} HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\n\r\n");
        let status = status_of(&served, &text).await;
        // Whoever goes on sending after the refusal may find the connection reset.
        assert!([0, 414, 431].contains(&status), "{status}");
    }
    let token = served.token("eve", "read").await;
    assert_eq!(served.ask(&token, STATUS, &Value::Null).await.0, 200);
}

#[tokio::test]
async fn a_page_of_another_origin_may_not_read_an_answer() {
    let served = Served::new().await;
    let token = with_token(&served.token("eve", "read").await);
    for line in ["GET", "OPTIONS"] {
        let text = format!(
            "{line} /v1/status HTTP/1.1\r\nHost: localhost\r\n{token}Origin: https://evil.example\r\nAccess-Control-Request-Method: GET\r\nConnection: close\r\n\r\n"
        );
        let answer = raw(served.api.address(), text.as_bytes()).await.to_lowercase();
        assert!(!answer.contains("access-control-allow"), "{answer}");
    }
}
