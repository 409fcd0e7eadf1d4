//! A fuzzer that reads only the served document: no server error, and no answer that the document does not name.

use std::path::PathBuf;
use std::process::Command;

use symphony_server::config::ApiSection;
use symphony_server::http_server::HttpServerSettings;

use super::Served;

/// The fuzzer, in a Python of its own beside the builds.
fn schemathesis() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/schemathesis");
    let program = folder.join("bin/schemathesis");
    if !program.exists() {
        let venv = Command::new("python3").args(["-m", "venv"]).arg(&folder).status().unwrap();
        assert!(venv.success(), "python3 -m venv");
        let pip = folder.join("bin/pip");
        let installed =
            Command::new(pip).args(["install", "--quiet", "schemathesis==4.*"]).status().unwrap();
        assert!(installed.success(), "pip install schemathesis");
    }
    program
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the long form: it installs schemathesis from PyPI and runs for a minute"]
async fn a_fuzzer_of_the_served_document_finds_no_server_error_and_no_undocumented_answer() {
    let section = ApiSection { rate_per_second: 100_000, ..ApiSection::at("127.0.0.1:0") };
    let served = Served::with(&section, HttpServerSettings::default()).await;
    let token = served.token("eve", "ingest,operate,approve,audit").await;
    let url = format!("http://localhost:{}/openapi.json", served.api.address().port());
    let run = tokio::task::spawn_blocking(move || {
        Command::new(schemathesis())
            .args(["run", &url, "--max-examples", "30", "--no-color", "-H"])
            .arg(format!("Authorization: Bearer {token}"))
            .args([
                "--checks",
                "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
            ])
            .output()
            .unwrap()
    })
    .await
    .unwrap();
    let told = String::from_utf8_lossy(&run.stdout).into_owned();
    println!("{told}");
    assert!(run.status.success(), "{told}");
}
