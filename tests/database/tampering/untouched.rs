//! Where nobody has tampered, `symphony doctor` finds nothing to complain of, whoever asks.

use sqlx::{ConnectOptions as _, Connection as _};

use super::{ROLES, on, server};
use crate::support::{run, unique};

#[tokio::test]
async fn doctor_is_content_with_an_installation_by_the_readmes_admin_who_is_no_superuser() {
    let _roles = ROLES.read().await;
    let (admin, name) = (unique("admin"), unique("untouched"));
    let mut connection = server().await.connect().await.unwrap();
    run(&mut connection, &format!("CREATE ROLE {admin} LOGIN CREATEROLE PASSWORD 'x'"))
        .await
        .unwrap();
    run(&mut connection, &format!("CREATE DATABASE {name}")).await.unwrap();
    run(&mut connection, &format!("GRANT CREATE ON DATABASE {name} TO {admin}")).await.unwrap();
    // The roles are here already; who makes them has this by itself from 16 on.
    if connection.server_version_num().unwrap() >= 160_000 {
        let grant = format!(
            "GRANT symphony_control TO {admin} WITH ADMIN OPTION, INHERIT FALSE, SET FALSE"
        );
        run(&mut connection, &grant).await.unwrap();
    }
    connection.close().await.unwrap();
    let admin = server().await.clone().database(&name).username(&admin).password("x");
    for line in ["migrate", "migrate --check", "doctor", "doctor --deep"] {
        let told = on(&admin, line).await;
        assert!(told.ok, "{line}: {}{}", told.output, told.error);
        assert!(
            !told.output.lines().any(|line| line.starts_with("FAIL")),
            "{line}: {}",
            told.output
        );
    }
}
