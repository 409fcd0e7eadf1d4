//! Every table of every lane, declared once. What looks at all of them reads this list: `symphony doctor` for bloat,
//! `symphony guard`, the house rules. A test compares it with the live catalog.

use TableKind::{History, Hot, Ledger, Settings};

/// What a table is for, and so how it is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableKind {
    /// Updated or emptied all the time: dead rows make it slow.
    Hot,
    /// Only grows: triggers refuse UPDATE, DELETE and TRUNCATE.
    Ledger,
    /// Grows, and is emptied by retention or with what it belongs to.
    History,
    /// Changed by operators, pushes or a worker's start.
    Settings,
}

/// One table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// Its name, without the schema.
    pub name: &'static str,
    /// payments, events or triggers; `None` if all of them share it.
    pub lane: Option<&'static str>,
    /// What it is for.
    pub kind: TableKind,
}

impl Table {
    /// Whether the name alone says that it is ours. `apps` or `routes` may be anybody's.
    pub fn has_distinctive_name(&self) -> bool {
        self.name.contains('_')
    }
}

/// The tables of one kind.
pub fn of_kind(kind: TableKind) -> Vec<&'static str> {
    ALL.iter().filter(|table| table.kind == kind).map(|table| table.name).collect()
}

const fn shared(name: &'static str, kind: TableKind) -> Table {
    Table { name, lane: None, kind }
}

const fn payments(name: &'static str, kind: TableKind) -> Table {
    Table { name, lane: Some("payments"), kind }
}

const fn events(name: &'static str, kind: TableKind) -> Table {
    Table { name, lane: Some("events"), kind }
}

const fn triggers(name: &'static str, kind: TableKind) -> Table {
    Table { name, lane: Some("triggers"), kind }
}

/// All of them.
pub const ALL: &[Table] = &[
    shared("symphony_schema", Settings),
    shared("symphony_installation", Settings),
    shared("symphony_witnesses", Hot),
    shared("outbox_hint_leaders", Hot),
    shared("outbox_destinations", Hot),
    shared("outbox_destination_resets", Settings),
    shared("outbox_shared_figures", Hot),
    shared("api_tokens", Settings),
    shared("principals", History),
    shared("outbox_approval_requests", Ledger),
    shared("outbox_approval_decisions", Ledger),
    shared("outbox_approved_acts", Hot),
    payments("participant_outbox_sequences", Hot),
    payments("payment_outbox_instructions", Ledger),
    payments("payment_outbox_pending", Hot),
    payments("payment_outbox_attempts", Ledger),
    payments("payment_outbox_events", Ledger),
    payments("payment_outbox_rails", Settings),
    payments("payment_outbox_endpoints", Settings),
    payments("payment_outbox_rail_permits", Hot),
    payments("payment_outbox_paused_participants", Settings),
    payments("payment_outbox_blocked_lanes", Hot),
    payments("payment_outbox_workers", Hot),
    payments("payment_outbox_settings", Settings),
    events("event_outbox_keys", History),
    events("event_outbox_identities", Ledger),
    events("event_outbox_log", Ledger),
    events("event_outbox_cursors", Hot),
    events("event_outbox_blocked", Hot),
    events("event_outbox_waiting", Hot),
    events("event_outbox_attempts", Ledger),
    events("event_outbox_events", Ledger),
    events("event_outbox_topics", Settings),
    events("event_outbox_settings", Settings),
    events("event_inbox", History),
    events("event_inbox_keys", History),
    triggers("apps", Settings),
    triggers("app_pushes", Settings),
    triggers("app_secrets", Settings),
    triggers("scripts", Settings),
    triggers("routes", Settings),
    triggers("triggers", Settings),
    triggers("topics", Settings),
    triggers("queues", Settings),
    triggers("mail_addresses", Settings),
    triggers("mail_grants", Settings),
    triggers("mail_counts", Hot),
    triggers("trigger_retention", Settings),
    triggers("trigger_cron", Hot),
    triggers("kv_entries", Hot),
    triggers("queue_messages", Hot),
    triggers("trigger_outbox_pending", Hot),
    triggers("trigger_outbox_attempts", Ledger),
    triggers("trigger_outbox_events", Ledger),
    triggers("trigger_outbox_executions", History),
    triggers("trigger_outbox_settings", Settings),
];
