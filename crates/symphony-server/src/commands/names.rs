//! Rails, participants, topics and apps by name: one that does not exist is refused with those that are near.

use symphony::db::{Auditor, DbError};
use symphony::domain::Switch;

use super::nearest;
use super::suggested_command::symphony;
use crate::output::Failure;

/// Refuse a name that a filter found nothing for, if there is nothing of that name: nothing found would look like good news.
pub(super) async fn require_known(reader: &Auditor, filters: &[Switch]) -> Result<(), Failure> {
    for filter in filters {
        match reader.is_known(filter).await {
            Ok(false) => return Err(no_such_name(reader, filter).await?),
            // Whoever may not see all names cannot say that one is missing.
            Ok(true) | Err(DbError::MissingPrivilege { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// There is nothing of that name.
pub(super) async fn no_such_name(reader: &Auditor, target: &Switch) -> Result<Failure, Failure> {
    let (what, given, near) = match target {
        Switch::Rail(name) => {
            ("rail", name, nearest::hint(name, &reader.rail_names().await?, &symphony("rail")))
        }
        Switch::Participant(name) => {
            ("participant", name, nearest::near(name, &reader.participant_names().await?))
        }
        Switch::Topic(name) => ("topic", name, nearest::topics(name, &reader.topic_names().await?)),
        Switch::App(name) => {
            let apps = reader.apps(None, i64::MAX).await?;
            let names: Vec<String> = apps.into_iter().map(|app| app.name).collect();
            ("app", name, nearest::hint(name, &names, &symphony("app list")))
        }
        Switch::Payments | Switch::Events | Switch::Triggers => {
            return Ok(Failure::new("there is no such lane").with_code("P7007"));
        }
    };
    Ok(Failure::new(format!("there is no {what} {given:?}{near}")).with_code("P7007"))
}
