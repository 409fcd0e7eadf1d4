//! `symphony token`: access tokens of the HTTP API.

use std::process::ExitCode;

use chrono::SecondsFormat;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use symphony::db::{NewToken, Role, TokenAdmin, TokenRow};
use symphony::domain::Act;

use super::acts;
use super::suggested_command::symphony;
use crate::api::new_secret;
use crate::bounds::TOKENS_LISTED_MAX;
use crate::cli::{Global, Token, TokenCreate};
use crate::output::{self, Failure};
use crate::server::Server;

pub(super) async fn run(global: &Global, what: &Token) -> Result<ExitCode, Failure> {
    let server = Server::open(global).await?;
    let result = match server.database_as(Role::TokenAdmin).await {
        Ok(database) => act(global, what, &database.token_admin()).await,
        Err(failure) => Err(failure),
    };
    server.close().await?;
    result
}

async fn act(global: &Global, what: &Token, admin: &TokenAdmin) -> Result<ExitCode, Failure> {
    match what {
        Token::Create(options) => create(global, options, admin).await,
        Token::List => {
            let tokens = admin.list(TOKENS_LISTED_MAX).await?;
            if global.json {
                output::json(&tokens)?;
            } else if tokens.is_empty() {
                output::print(&format!(
                    "there is no token: {}\n",
                    symphony("token create --help")
                ))?;
            } else {
                output::print(&table(&tokens))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Token::Revoke { id, reason, actor } => {
            let act = Act {
                actor: acts::actor(actor.as_ref())?,
                reason: reason.clone(),
                dry_run: false,
                despite_unknown: false,
            };
            let revoked = admin.revoke(*id, &act).await.map_err(acts::in_options)?;
            if global.json {
                output::json(&revoked)?;
            } else {
                output::print(&format!("revoked {} ({id})\n", output::plain(&revoked.name)))?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn create(
    global: &Global,
    options: &TokenCreate,
    admin: &TokenAdmin,
) -> Result<ExitCode, Failure> {
    let secret = new_secret()?;
    let scopes: Vec<String> = options.scope.iter().map(|scope| scope.word().to_owned()).collect();
    let created = admin
        .create(NewToken {
            name: &options.name,
            person: &options.person,
            scopes: &scopes,
            hash: Sha256::digest(secret.as_bytes()).as_slice(),
            actor: &acts::actor(options.actor.as_ref())?,
            expires_in_seconds: i32::from(options.expires_in_days) * 86_400,
        })
        .await
        .map_err(|error| {
            acts::in_options(error).reworded(&[("p_name", "--name"), ("p_person", "--person")])
        })?;
    if global.json {
        output::json(&json!({
            "token": secret, "token_id": created.token_id, "expires_at": created.expires_at,
            "scopes": scopes, "person": options.person, "name": options.name,
        }))?;
    } else {
        let until = created.expires_at.to_rfc3339_opts(SecondsFormat::Secs, true);
        output::note(&format!("good until {until}; it is not shown again"));
        output::print_verbatim(&format!("{secret}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Nothing for one that was revoked already.
fn revoke_command(token: &TokenRow) -> String {
    if token.revoked_at.is_some() {
        return String::new();
    }
    symphony(&format!("token revoke {} --reason WHY", token.token_id))
}

fn table(tokens: &[TokenRow]) -> String {
    output::table(
        [
            output::short("name"),
            output::short("person"),
            "scopes".into(),
            output::states("state"),
            output::whole("expires"),
            output::id("token"),
            output::command("revoke"),
        ],
        tokens.iter().map(|token| {
            [
                token.name.clone(),
                token.person.clone(),
                token.scopes.join(", "),
                token.state.clone(),
                token.expires_at.to_rfc3339_opts(SecondsFormat::Secs, true),
                token.token_id.to_string(),
                revoke_command(token),
            ]
        }),
    )
}
