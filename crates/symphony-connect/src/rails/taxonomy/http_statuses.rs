//! What a status of HTTP says about money, when the answer carries no code of its own (RFC 9110).
//!
//! Asked of each: can the transfer have been executed although this status came back? If so, it is not here.
//!
//! Left out, hence unknown:
//! - 203, 204, 205, 206, 207, 208, 226: a success without, or with only part of, the evidence.
//! - 3xx: not followed. 303 is what many servers answer *after* executing.
//! - 402: every provider means something else by it.
//! - 404, 410: a wrong address, an unknown account, or a gateway that lost its route after passing it on.
//! - 406: the request may be done, and only its answer cannot be written as asked.
//! - 408: meant for a request that never arrived whole, but gateways also use it when the server behind is slow.
//! - 409, 412, 423, 428: another request with this key is known; that one may have been executed.
//! - 499 and 5xx, 501 and 503 included: a gateway answers for a server whose work nobody saw the end of. A
//!   provider that promises "503 means not executed" can be mapped: `codes = { "http:503" = "retryable" }`.

use symphony::lanes::payments::rail::Verdict;

pub(super) const GROUPS: &[(Verdict, &[&str])] = &[
    // Not 202: it says taken, not done, and RFC 9110 calls it noncommittal. A provider that means "surely" says so
    // with a code in the body, or is given `"http:202" = "accepted"`.
    (Verdict::Accepted, &["http:200", "http:201"]),
    // 400 and 422: read and rejected as such; the same bytes will be rejected again. (A provider may answer 422
    // to a key it knows with *another* body; ours is the same on every try.) 413: not even read.
    (Verdict::Refused, &["http:400", "http:413", "http:422"]),
    // Turned away before anything was looked at, for a reason that passes or that a person repairs:
    // 401 and 403 credentials (checked first, or they would be worth nothing), 405 and 415 a wrong address or
    // setting of ours, 421 a connection to the wrong server, 425 a server that will not risk a replay
    // (RFC 8470), 429 too many requests (RFC 6585). Refusing would fail every payment while a key is renewed.
    (
        Verdict::Retryable,
        &["http:401", "http:403", "http:405", "http:415", "http:421", "http:425", "http:429"],
    ),
];
