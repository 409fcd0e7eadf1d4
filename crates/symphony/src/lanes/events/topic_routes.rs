//! Where events go in this process: a route with the topic it leads to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tokio::sync::Semaphore;

use super::routes::Route;
use super::topic::Topic;
use super::{BusSetup, NoSuchBus};
use crate::domain::limits;
use crate::engine::{Destination, DestinationKind, DestinationLimits};
use crate::event::envelope::Format;

/// A route with the topic it leads to.
pub(super) struct TopicRoute {
    pub(super) definition: Route,
    pub(super) topic: Arc<Topic>,
}

/// Every route with its topic, and the topics; several routes may lead to one.
pub(super) fn resolve(
    buses: Vec<BusSetup>,
    routes: Vec<Route>,
    windows: &Arc<AtomicUsize>,
) -> Result<(Vec<TopicRoute>, Vec<Arc<Topic>>), NoSuchBus> {
    let mut topics: BTreeMap<(String, String), Arc<Topic>> = BTreeMap::new();
    for setup in buses {
        let mut named: Vec<&str> = routes
            .iter()
            .filter(|route| route.bus == setup.name)
            .map(|route| route.topic.as_str())
            .collect();
        named.sort_unstable();
        named.dedup();
        let (own, common) = shares(setup.concurrency_max, named.len());
        let common = Arc::new(Semaphore::new(common));
        for topic in named {
            let name = format!("{}/{topic}", setup.name);
            let name: String = name.chars().take(limits::DESTINATION_CHARACTERS_MAX).collect();
            let limits =
                DestinationLimits { concurrency_max: own, rate: None, breaker: setup.breaker };
            let destination =
                Destination::sharing(DestinationKind::Bus, &name, limits, common.clone());
            let format = Format {
                envelope: setup.look.envelope,
                source: setup.look.source.clone(),
                binding: setup.bus.terms().binding,
            };
            let made = Topic::new(
                setup.bus.clone(),
                topic,
                format,
                Arc::new(destination),
                windows.clone(),
            );
            topics.insert((setup.name.clone(), topic.to_owned()), Arc::new(made));
        }
    }
    let resolved = routes
        .into_iter()
        .map(|route| match topics.get(&(route.bus.clone(), route.topic.clone())) {
            Some(topic) => Ok(TopicRoute { definition: route, topic: topic.clone() }),
            None => Err(NoSuchBus(route.bus)),
        })
        .collect::<Result<_, _>>()?;
    Ok((resolved, topics.into_values().collect()))
}

/// How many of a bus's calls are each topic's own, and how many are whoever's comes first: half of them each. One in
/// trouble can hold its own and the common ones, and never those of the others.
fn shares(concurrency_max: usize, topics: usize) -> (usize, usize) {
    let reserved = concurrency_max / 2;
    let own = reserved.checked_div(topics).unwrap_or(0).max(1);
    let left = concurrency_max.saturating_sub(own.saturating_mul(topics));
    (own, left.max(reserved))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_topic_has_calls_of_its_own_and_half_are_anybodys() {
        //  at once, topics | each one's own, common
        for (concurrency_max, topics, own, common) in [
            (10, 1, 5, 5),
            (10, 2, 2, 6),
            (10, 5, 1, 5),
            (10, 40, 1, 5),
            (1, 1, 1, 0),
            (1, 3, 1, 0),
            (2, 1, 1, 1),
            (3, 2, 1, 1),
            (64, 3, 10, 34),
        ] {
            assert_eq!(
                shares(concurrency_max, topics),
                (own, common),
                "{concurrency_max} {topics}"
            );
        }
    }
}
