//! The engine and the payment lane against a real database, with rails whose answers the test decides.

mod bank;
mod figures;
mod half_dead;
mod inquiries;
mod outages;
mod suspended;
mod unknown_outcomes;
mod working;
