//! Every act that the console offers: what it is called, what it does, what it needs to know.

/// An act of the SQL contract, as a person meets it.
#[derive(Debug)]
pub(super) struct ActForm {
    /// The function.
    pub(super) act: &'static str,
    pub(super) title: &'static str,
    pub(super) does: &'static str,
    pub(super) fields: &'static [Field],
}

/// One argument of it.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) argument: &'static str,
    pub(super) label: &'static str,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// What is acted on: it comes with the address.
    Target,
    Text,
    Choice(&'static [(&'static str, &'static str)]),
    /// A yes to something dangerous, with what it means.
    Consent(&'static str),
}

const OUTBOX_ID: Field = target("p_outbox_id", "Payment");
const EVENT_ID: Field = target("p_event_id", "Event");
const EXECUTION_ID: Field = target("p_id", "Execution");
const INCIDENT: Field = target("p_incident_no", "Contradiction");
const RAIL: Field = target("p_rail_type", "Rail");
const PARTICIPANT: Field = target("p_participant_id", "Participant");
const APP: Field = target("p_app", "App");
const DESPITE_UNKNOWN: Field = Field {
    argument: "p_despite_unknown",
    label: "Although a try's outcome is unknown",
    kind: Kind::Consent(
        "The money may have moved. The reason must say how you know that it has not.",
    ),
};

const fn target(argument: &'static str, label: &'static str) -> Field {
    Field { argument, label, kind: Kind::Target }
}

const RESOLUTION: Field = Field {
    argument: "p_resolution",
    label: "What became of it",
    kind: Kind::Choice(&[
        ("DISPATCHED", "The money moved: dispatched, with the rail's reference"),
        ("FAILED", "The money did not move: failed"),
        ("RETRY", "The money did not move: send it again"),
    ]),
};
const REFERENCE: Field = Field {
    argument: "p_rail_reference",
    label: "The rail's reference (if the money moved)",
    kind: Kind::Text,
};
const RESEND: Field = Field {
    argument: "p_resend_sent",
    label: "Publish it again although it was sent",
    kind: Kind::Consent("Consumers without an inbox act twice."),
};

pub(super) const FORMS: &[ActForm] = &[
    ActForm {
        act: "resolve_outbox",
        title: "Resolve a parked payment",
        does: "You have found out what became of it. The outcome enters the ledger under your name.",
        fields: &[OUTBOX_ID, RESOLUTION, REFERENCE, DESPITE_UNKNOWN],
    },
    ActForm {
        act: "release_outbox",
        title: "Release a parked payment",
        does: "It is given back to the machine, which asks the rail first if the money may have moved.",
        fields: &[OUTBOX_ID, DESPITE_UNKNOWN],
    },
    ActForm {
        act: "redrive_outbox",
        title: "Redrive a failed payment",
        does: "A new item tries it again, in the place of the failed one.",
        fields: &[OUTBOX_ID, DESPITE_UNKNOWN],
    },
    ActForm {
        act: "park_outbox",
        title: "Park a payment",
        does: "It is not sent until a person releases or resolves it.",
        fields: &[OUTBOX_ID],
    },
    ActForm {
        act: "inquire_outbox",
        title: "Ask the rail about a payment",
        does: "A worker asks the rail what became of it. Nothing is sent.",
        fields: &[OUTBOX_ID],
    },
    ActForm {
        act: "skip_outbox_head",
        title: "Skip the head of a FIFO lane",
        does: "What waits behind it goes on. A head that is pending is parked outside the lane.",
        fields: &[PARTICIPANT, RAIL],
    },
    ActForm {
        act: "close_payment_dead_letter",
        title: "Close a failed payment",
        does: "It needs nothing more, and is not listed any more. Nothing is sent.",
        fields: &[OUTBOX_ID],
    },
    ActForm {
        act: "close_payment_incident",
        title: "Close a contradiction",
        does: "You have found out what became of the payment; the reason says it.",
        fields: &[INCIDENT],
    },
    ActForm {
        act: "redrive_event_outbox",
        title: "Redrive an event",
        does: "It is published again, under its own id.",
        fields: &[EVENT_ID, RESEND],
    },
    ActForm {
        act: "skip_event_outbox",
        title: "Skip a failed event",
        does: "Later events of its key go on without it.",
        fields: &[EVENT_ID],
    },
    ActForm {
        act: "close_event_dead_letter",
        title: "Close a failed event",
        does: "It needs nothing more, and is not listed any more.",
        fields: &[EVENT_ID],
    },
    ActForm {
        act: "close_event_incident",
        title: "Close a contradiction",
        does: "You have found out what became of the event; the reason says it.",
        fields: &[INCIDENT],
    },
    ActForm {
        act: "replay_trigger_execution",
        title: "Replay an execution",
        does: "The same script runs again with the same payload, as a new execution.",
        fields: &[EXECUTION_ID],
    },
    ActForm {
        act: "close_trigger_dead_letter",
        title: "Close a failed execution",
        does: "It needs nothing more, and is not listed any more.",
        fields: &[EXECUTION_ID],
    },
    ActForm {
        act: "close_trigger_incident",
        title: "Close a contradiction",
        does: "You have found out what became of it; the reason says it.",
        fields: &[INCIDENT],
    },
    ActForm {
        act: "pause_payment_lane",
        title: "Pause the payment lane",
        does: "No payment is claimed. What is in flight may end.",
        fields: &[],
    },
    ActForm {
        act: "resume_payment_lane",
        title: "Resume the payment lane",
        does: "Payments are claimed again.",
        fields: &[],
    },
    ActForm {
        act: "pause_payment_rail",
        title: "Pause a rail",
        does: "No payment of this rail is claimed. What is in flight may end.",
        fields: &[RAIL],
    },
    ActForm {
        act: "resume_payment_rail",
        title: "Resume a rail",
        does: "Payments of this rail are claimed again.",
        fields: &[RAIL],
    },
    ActForm {
        act: "pause_payment_participant",
        title: "Pause a participant",
        does: "No payment of this participant is claimed. What is in flight may end.",
        fields: &[PARTICIPANT],
    },
    ActForm {
        act: "resume_payment_participant",
        title: "Resume a participant",
        does: "Payments of this participant are claimed again.",
        fields: &[PARTICIPANT],
    },
    ActForm {
        act: "pause_event_lane",
        title: "Pause the event lane",
        does: "No event is claimed. What is in flight may end.",
        fields: &[],
    },
    ActForm {
        act: "resume_event_lane",
        title: "Resume the event lane",
        does: "Events are claimed again.",
        fields: &[],
    },
    ActForm {
        act: "pause_event_topic",
        title: "Pause a topic",
        does: "No event is published to it. What is in flight may end.",
        fields: &[target("p_topic", "Topic")],
    },
    ActForm {
        act: "resume_event_topic",
        title: "Resume a topic",
        does: "Events are published to it again.",
        fields: &[target("p_topic", "Topic")],
    },
    ActForm {
        act: "pause_trigger_lane",
        title: "Pause the trigger lane",
        does: "No script is run. What runs may end.",
        fields: &[],
    },
    ActForm {
        act: "resume_trigger_lane",
        title: "Resume the trigger lane",
        does: "Scripts are run again.",
        fields: &[],
    },
    ActForm {
        act: "pause_app",
        title: "Pause an app",
        does: "No script of it is run. What runs may end.",
        fields: &[APP],
    },
    ActForm {
        act: "resume_app",
        title: "Resume an app",
        does: "Its scripts are run again.",
        fields: &[APP],
    },
    ActForm {
        act: "reset_outbox_destination",
        title: "Try a rail or bus at once",
        does: "Every worker that leaves it alone tries it with its next item.",
        fields: &[target("p_lane", "Lane"), target("p_name", "Rail or bus")],
    },
];

pub(super) fn find(act: &str) -> Option<&'static ActForm> {
    FORMS.iter().find(|form| form.act == act)
}

/// What a function does, in words.
pub(super) fn title(act: &str) -> String {
    find(act)
        .map_or_else(|| super::page::plain(&act.replace('_', " ")), |form| form.title.to_owned())
}
