//! ISO 20022: external payment transaction statuses and external status reasons, read as an answer to our own
//! instruction (`pain.002`, `pacs.002`).
//!
//! A status is final or it is on its way. On its way, hence left out and unknown, so that the lane asks again:
//! - RCVD, PDNG, ACTC, ACCP, ACFC, ACFW, PATC, ACWC, ACPD, ACSP, PRES and the payee checks (RCVC, RV…): any of
//!   them may still be followed by RJCT. ACSP reads "accepted for execution", and is still followed by it.
//! - ACWP, BLCK: settled between the banks but not posted; it may be posted, blocked or returned.
//! - ACIS: a cheque was issued; nobody has cashed it.
//!
//! A reason is here if its meaning can only be "not executed, and not going to be". Left out:
//! - Duplicates (AM05, DUPL, DU01…DU05, AB12, DS15, TKSG, RF01): the *other* copy may have been paid.
//! - Timeouts, aborts and outages (AB01…AB11, ED06, FF10, FF11, NOAS, TA01, DS18, DS24): whoever says so does
//!   not know what the party behind did. Schemes in which they are final can be mapped.
//! - Returns and recalls (FOCR, MD06, FR01, RUTA, AM09, FRAD, CUST, S…): the money was away; AM07: it is frozen.
//! - Information (AC15, CH19, DT06, DS01…DS07, G000…G006, RR08, TS01): not a refusal at all.
//! - NARR: the reason is prose.
//! - Request-to-pay, mandates and direct debits: not our direction.

use symphony::lanes::payments::rail::Verdict;

pub(super) const GROUPS: &[(Verdict, &[&str])] = &[
    // Settlement completed, on the debtor's or the creditor's side.
    (Verdict::Accepted, &["ACSC", "ACCC"]),
    // Rejected; cancelled before execution. A bank may reject the second copy of a payment that it did execute
    // and say so in the reason only: where the reason is a field of its own, configure `reason_pointer`.
    (Verdict::Refused, &["RJCT", "CANC"]),
    // Accounts: wrong, closed, blocked, of the wrong kind or currency.
    (
        Verdict::Refused,
        &[
            "AC01", "AC02", "AC03", "AC04", "AC05", "AC06", "AC07", "AC08", "AC09", "AC10", "AC11",
            "AC12", "AC13", "AC14", "AC16", "NOCM",
        ],
    ),
    // Agents and what they permit.
    (
        Verdict::Refused,
        &[
            "AG01", "AG02", "AG03", "AG04", "AG05", "AG06", "AG07", "AG08", "AG10", "AG11", "AG12",
            "AGNT", "CNOR", "DNOR", "ED01", "RC01", "RC02", "RC03", "RC04", "RC05", "RC06", "RC07",
            "RC08", "RC09", "RC10", "RC11", "RC13", "RC15", "RC16",
        ],
    ),
    // Amounts, currencies, limits and control sums.
    (
        Verdict::Refused,
        &[
            "AM01", "AM02", "AM03", "AM04", "AM06", "AM10", "AM11", "AM12", "AM13", "AM14", "AM15",
            "AM16", "AM17", "AM18", "AM19", "AM20", "AM21", "AM23", "CH20", "CURR", "SL15", "SL16",
        ],
    ),
    // Parties.
    (
        Verdict::Refused,
        &[
            "BE01", "BE04", "BE05", "BE06", "BE07", "BE08", "BE09", "BE10", "BE11", "BE12", "BE13",
            "BE14", "BE15", "BE16", "BE17", "BE18", "BE19", "BE20", "BE21", "BE22", "BE23", "MD07",
            "SL17", "SL18", "UCRD",
        ],
    ),
    // Dates, and too late for them.
    (Verdict::Refused, &["CH03", "CH04", "DT01", "DT02", "DT03", "DT04", "DT05", "EDNA", "TM01"]),
    // Form and contents of the message.
    (
        Verdict::Refused,
        &[
            "CERI", "CH07", "CH15", "CH16", "CH17", "CH21", "ERIN", "FF01", "FF02", "FF03", "FF04",
            "FF05", "FF06", "FF07", "FF08", "INDT", "MINF", "NERI", "TD02", "TD03",
        ],
    ),
    // Regulation, tax and remittance information.
    (
        Verdict::Refused,
        &["RR01", "RR02", "RR03", "RR04", "RR05", "RR06", "RR07", "RR09", "RR10", "RR11", "RR12"],
    ),
    // Refused without a reason given, by the customer or by the agent.
    (Verdict::Refused, &["MS02", "MS03"]),
];
