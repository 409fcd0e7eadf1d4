//! Every bound of this crate, and how they relate.

/// Addresses.
pub(crate) mod address {
    /// How many addresses of one name are tried at most.
    pub const ADDRESSES_TRIED_MAX: usize = 4;
}

/// The HTTP client.
pub(crate) mod http_client {
    /// Nobody may ask to be left alone for longer than this.
    pub const RETRY_AFTER_SECONDS_MAX: u64 = 86_400;
    /// Idle connections are not used after this. The shortest limit common servers have by default is 5 seconds
    /// (Node.js); a request that meets their hanging up is lost, hence unknown, hence an inquiry.
    pub(crate) const IDLE_MS_MAX: u64 = 4_000;
    /// Idle connections kept.
    pub(crate) const IDLE_CONNECTIONS_MAX: usize = 64;
    /// How long a connection may take to come to rest after its last answer.
    pub(crate) const READY_MS_MAX: u64 = 100;
    /// The largest head of an answer.
    pub(crate) const HEAD_BYTES_MAX: usize = 64 << 10;

    const _: () = assert!(READY_MS_MAX < IDLE_MS_MAX);
}

/// Rails over HTTP.
pub(crate) mod rails {
    /// The longest a provider may be waited for.
    pub const TIMEOUT_MS_MAX: u64 = 600_000;
    /// The largest answer that can be allowed.
    pub const RESPONSE_BYTES_MAX: usize = 16 << 20;
    /// The usual limit on connecting.
    pub(crate) const CONNECT_TIMEOUT_MS: u64 = 5_000;
    /// Shorter secrets can be guessed.
    pub(crate) const SECRET_BYTES_MIN: usize = 16;
    /// What the ledger keeps of a provider's message.
    pub const MESSAGE_CHARACTERS_MAX: usize = 500;
    /// What the ledger keeps of a provider's reference.
    pub const REFERENCE_CHARACTERS_MAX: usize = 255;
    /// The longest code that can be mapped; longer ones in answers are unknown.
    pub const CODE_BYTES_MAX: usize = 64;

    const _: () = assert!(CONNECT_TIMEOUT_MS < TIMEOUT_MS_MAX);
}

/// The collector of traces.
pub(crate) mod collector {
    /// The longest it may be waited for.
    pub(crate) const TIMEOUT_MS_MAX: u64 = 60_000;
    /// Nothing of its answer matters but that there is one.
    pub(crate) const RESPONSE_BYTES_MAX: usize = 64 << 10;
}

/// Every bus.
pub(crate) mod buses {
    use std::time::Duration;

    /// How much later than the adapter's own limit the lane's comes: so the adapter's answer, which knows more, is heard.
    pub(crate) const TIMEOUT_MARGIN: Duration = Duration::from_millis(250);
}

/// Buses with a broker.
#[cfg(any(feature = "kafka", feature = "nats", feature = "sns"))]
pub(crate) mod brokers {
    /// The longest a call may be allowed to take.
    pub(crate) const CALL_MS_MAX: u64 = 300_000;
}

/// Signed webhooks.
pub(crate) mod webhooks {
    /// The longest a receiver may be waited for.
    pub const TIMEOUT_MS_MAX: u64 = 60_000;
    /// Messages of one call, at most.
    pub const BATCH_MAX: usize = 100;
    /// The largest answer that can be allowed.
    pub const RESPONSE_BYTES_MAX: usize = 1 << 20;
    pub(crate) const CONNECT_TIMEOUT_MS: u64 = 5_000;
    pub(crate) const NAME_BYTES_MAX: usize = 64;
    /// How far a receiver's clock may be from ours, as the standard's libraries have it.
    pub const TOLERANCE_SECONDS: u64 = 300;
    /// Secrets of one endpoint, at most.
    pub const SECRETS_MAX: usize = 4;
    /// What the standard allows, in bytes.
    pub(crate) const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

    const _: () = assert!(CONNECT_TIMEOUT_MS < TIMEOUT_MS_MAX);
}

/// What setup makes.
pub(crate) mod setup {
    /// The largest maxReceiveCount that SQS takes: what setup gives a queue.
    pub(crate) const RECEIVES_MAX: u32 = 1_000;
    /// The least with which an outage loses nothing: a message in hand is received once more at each restart of its
    /// consumer, and every 12 hours, 28 times until SQS forgets it.
    pub(crate) const RECEIVES_MAX_MIN: u32 = 100;

    const _: () = assert!(RECEIVES_MAX_MIN < RECEIVES_MAX);
}

/// SNS and SQS.
#[cfg(feature = "sns")]
pub(crate) mod sns {
    use std::time::Duration;

    /// SNS's limit on one message with its attributes, and on all messages of one call together.
    pub(crate) const MESSAGE_BYTES_MAX: usize = 256 * 1024;
    /// SNS takes no more in one call.
    pub(crate) const BATCH_MAX: usize = 10;
    /// How long a call waits to be filled: less than one takes.
    pub(crate) const FILL_WITHIN: Duration = Duration::from_millis(10);
    /// SNS's, not to be changed.
    pub(crate) const DEDUP_WINDOW: Duration = Duration::from_mins(5);
    /// The longest SQS keeps a message, in seconds.
    pub(crate) const RETENTION_SECONDS: u32 = 1_209_600;
    /// Administrative calls are slower than a publish.
    pub(crate) const ADMINISTRATION_TIMEOUT: Duration = Duration::from_secs(30);
    /// SQS hides a message for at most this long after it was received, however often that is extended.
    pub(crate) const VISIBILITY_MAX: Duration = Duration::from_hours(12);
    /// How long a message may stay in hand; one more visibility still fits.
    pub(crate) const HELD_TIME_MAX: Duration = Duration::from_hours(11);
    /// Messages in hand of one process; SQS allows 20,000 of a FIFO queue.
    pub(crate) const HELD_MAX: usize = 1_000;
    const _: () = assert!(HELD_TIME_MAX.as_secs() < VISIBILITY_MAX.as_secs());
}

/// JetStream.
#[cfg(feature = "nats")]
pub(crate) mod nats {
    use std::time::Duration;

    /// Subjects remembered that we may not publish to.
    pub(crate) const DENIALS_MAX: usize = 1_000;
    /// Of one call; they go out side by side over one connection.
    pub(crate) const BATCH_MAX: usize = 50;
    /// How long the server may take for one answer.
    pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
    /// Messages in hand of one process.
    pub(crate) const HELD_MAX: usize = 1_000;
    /// How long the server gathers what is there: an acknowledgement may free more, but what it has is waited for.
    pub(crate) const GATHER_TIMEOUT: Duration = Duration::from_millis(100);
}

/// Kafka.
#[cfg(feature = "kafka")]
pub(crate) mod kafka {
    use std::time::Duration;

    /// Messages of one call; the producer packs them as it likes.
    pub(crate) const BATCH_MAX: usize = 100;
    /// How often the producer itself tries again, within a call's time, before a broker's reason is told.
    pub(crate) const SEND_RETRIES: u32 = 3;
    /// Administrative calls are slower than a publish.
    pub(crate) const ADMINISTRATION_TIMEOUT: Duration = Duration::from_secs(30);
    /// How long the cluster may take for one answer to a consumer, or for a dead letter.
    pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
    /// How often a consumer asks for records and for news of its group, and notes what is done.
    pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(100);
    /// How often what is done is committed.
    pub(crate) const COMMIT_INTERVAL: Duration = Duration::from_millis(200);
    /// How long a consumer may take to commit and to leave its group.
    pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
    /// How long a group may take to give a new member its partitions, and a partition to say how far it goes.
    pub(crate) const SETTLE_TIMEOUT: Duration = Duration::from_secs(20);
    /// Nothing is hidden by time: so often the loop looks whether what it has in hand is still its own.
    pub(crate) const LOOK_INTERVAL: Duration = Duration::from_secs(3);
    /// Records fetched and not handed out.
    pub(crate) const FETCHED_MAX: usize = 500;
    /// Records in hand: what failed waits there, and what is behind it in its key. When so many wait, all other keys
    /// do.
    pub(crate) const HELD_MAX: usize = 10_000;
    /// Records behind one that is not done, whose offset therefore cannot be committed.
    pub(crate) const UNCOMMITTED_MAX: usize = 100_000;
    /// The largest token.
    pub(crate) const TOKEN_BYTES_MAX: u64 = 64 << 10;
    /// How long the command that prints a token may take.
    pub(crate) const TOKEN_COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
    /// When a token that does not say when it expires is asked for again.
    pub(crate) const TOKEN_LIFETIME: Duration = Duration::from_mins(5);

    const _: () = assert!(TOKEN_COMMAND_TIMEOUT.as_secs() < TOKEN_LIFETIME.as_secs());
    const _: () = assert!(FETCHED_MAX <= HELD_MAX && HELD_MAX < UNCOMMITTED_MAX);
}

/// Scripts, wherever they run.
pub(crate) mod executors {
    /// The longest key, in characters: what the database takes.
    pub const KEY_CHARACTERS_MAX: usize = 512;
    /// The longest name of a queue or topic, in characters.
    pub const NAME_CHARACTERS_MAX: usize = 255;
    /// The longest message of a failure, in characters.
    pub(crate) const MESSAGE_CHARACTERS_MAX: usize = 500;
    /// The longest stack of an error, in characters.
    #[cfg(feature = "scripts")]
    pub(crate) const STACK_CHARACTERS_MAX: usize = 4_000;
    /// URLs whose connections are kept.
    pub(crate) const ENDPOINTS_KEPT_MAX: usize = 256;
}

/// Scripts in QuickJS.
#[cfg(feature = "scripts")]
pub(crate) mod scripts {
    use std::time::Duration;

    /// What a thread's stack has besides the script's share: for the engine beyond its own check, and the host's calls.
    pub(crate) const STACK_BESIDES_BYTES: usize = 1 << 20;
    /// Apps remembered before those without a run are forgotten.
    pub(crate) const APPS_REMEMBERED_MAX: usize = 1_024;
    /// Keys that `kv.list` gives at most.
    pub const KEYS_LISTED_MAX: u32 = 1_000;
    /// How long an entry with an end is there at most: as `write_kv` has it.
    pub(crate) const TTL_SECONDS_MAX: u32 = 999_999_999;
    /// Reads of one run that are compared at its end. A run with more of them has asked for too much.
    pub(crate) const READS_MAX: usize = 10_000;
    /// Secrets that one run asks for.
    pub(crate) const SECRETS_PER_RUN_MAX: u32 = 100;
    /// Frames of a stack that are told.
    pub(crate) const STACK_FRAMES_MAX: usize = 20;
    /// Files that one script imports, in all: as `manifest_defect` has it.
    pub(crate) const MODULES_MAX: usize = 100;
    /// What compiling a script of 1 MiB, with what it imports, may take.
    pub(crate) const COMPILE_MEMORY_BYTES_MAX: usize = 512 << 20;
    /// How deep a script may be nested: as much as it may call.
    pub(crate) const COMPILE_STACK_BYTES: usize = 512 << 10;
    /// What is shown of a line that cannot be compiled.
    pub(crate) const DEFECT_LINE_CHARACTERS_MAX: usize = 120;
    /// What `crypto.getRandomValues` gives at once, as the standard has it.
    pub(crate) const RANDOM_BYTES_MAX: usize = 65_536;
    /// Texts of one run that are decoded in pieces at the same time.
    pub(crate) const TEXT_STREAMS_MAX: usize = 100;
    /// CPU time of a run before it takes turns with other long ones.
    pub(crate) const CPU_BUDGET_MICROS_MAX: u32 = 10_000;
    /// A few times what a short run takes.
    pub(crate) const CPU_BUDGET_MICROS_MIN: u32 = 1_250;
    /// How long a turn lasts, if the engine asks in time.
    pub(crate) const TURN_LENGTH: Duration = Duration::from_millis(5);
    /// So long after the last short run, long ones no longer pause between turns.
    pub(crate) const SHORT_RUNS_GONE_AFTER: Duration = Duration::from_millis(20);
    /// A turn that lasts longer counts as over.
    pub(crate) const TURN_MAX: Duration = Duration::from_millis(100);
    /// How often whoever waits for a turn asks whether anybody still wants to know.
    pub(crate) const WANTED_CHECK_INTERVAL: Duration = Duration::from_millis(50);

    /// How long after its time is up a run that still runs is stuck.
    pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(1);
    /// Runs of one app that do not come back before it gets no more threads.
    pub(crate) const STUCK_PER_APP_MAX: usize = 4;

    const _: () = assert!(CPU_BUDGET_MICROS_MIN < CPU_BUDGET_MICROS_MAX);
    const _: () = assert!(TURN_LENGTH.as_millis() < TURN_MAX.as_millis());
    const _: () = assert!(WANTED_CHECK_INTERVAL.as_millis() < TURN_MAX.as_millis());
}

/// Mail that comes in.
#[cfg(feature = "email")]
pub(crate) mod smtp {
    use std::time::Duration;

    /// RFC 5321, section 4.5.3.1; with angle brackets 256.
    pub(crate) const PATH_BYTES_MAX: usize = 254;
    pub(crate) const LOCAL_PART_BYTES_MAX: usize = 64;
    pub(crate) const READ_BYTES: usize = 16 << 10;
    /// A message that grows asks for room in such steps.
    pub(crate) const ROOM_STEP_BYTES: usize = 16 << 10;
    /// How long, and how much, is read from a client that is being sent away, so that it gets to see why.
    pub(crate) const LINGER: Duration = Duration::from_secs(1);
    pub(crate) const LINGER_BYTES_MAX: usize = 4 << 20;
    /// RFC 5321 says 512; the parameters of `MAIL` and addresses in UTF-8 need more.
    pub(crate) const COMMAND_BYTES_MAX: usize = 1_024;
    /// A message that passed so many servers goes round in circles (RFC 5321, section 6.3).
    pub(crate) const HOPS_MAX: usize = 100;
    /// A message that is too large is read to its end, so that the client is told and not cut off; up to so many times
    /// the limit.
    pub(crate) const OVERSIZE_FACTOR: usize = 4;

    const _: () = assert!(LOCAL_PART_BYTES_MAX < PATH_BYTES_MAX);
    const _: () = assert!(PATH_BYTES_MAX < COMMAND_BYTES_MAX);
}

/// Messages as scripts read them.
#[cfg(feature = "email")]
pub(crate) mod mime {
    /// Attachments are given with their contents if all of them together are not larger.
    pub const ATTACHMENTS_BYTES_MAX: usize = 512 << 10;
    /// Larger messages are not looked at.
    pub(crate) const MESSAGE_BYTES_MAX: usize = 64 << 20;
    pub(crate) const HEAD_BYTES_MAX: usize = 256 << 10;
    pub(crate) const HEADERS_MAX: usize = 200;
    pub(crate) const HEADER_BYTES_MAX: usize = 4 << 10;
    pub(crate) const HEADERS_BYTES_MAX: usize = 64 << 10;
    pub(crate) const ADDRESSES_MAX: usize = 100;
    pub(crate) const SHORT_BYTES_MAX: usize = 1_000;
    /// What comes out may be twice what came in, and so much more: a hundred names and checksums of tiny parts.
    pub(crate) const ALLOWANCE_BYTES: usize = 64 << 10;
    /// Multiparts within multiparts. A deeper one is an attachment.
    pub(crate) const DEPTH_MAX: usize = 8;
    pub(crate) const PARTS_MAX: usize = 100;
    /// A part's own headers. What has more is taken for a part without.
    pub(crate) const PART_HEAD_BYTES_MAX: usize = 16 << 10;

    const _: () = assert!(HEADER_BYTES_MAX < HEADERS_BYTES_MAX);
    const _: () = assert!(HEADERS_BYTES_MAX < HEAD_BYTES_MAX);
    const _: () = assert!(PART_HEAD_BYTES_MAX < HEAD_BYTES_MAX);
    const _: () = assert!(HEAD_BYTES_MAX < MESSAGE_BYTES_MAX);
    const _: () = assert!(ATTACHMENTS_BYTES_MAX < MESSAGE_BYTES_MAX);
}

/// Mail that goes out.
#[cfg(any(feature = "email", feature = "scripts"))]
#[cfg_attr(not(feature = "email"), allow(dead_code, unreachable_pub))]
pub(crate) mod mail {
    use std::time::Duration;

    /// Recipients of one message.
    pub const RECIPIENTS_MAX: usize = 50;
    /// Attachments of one message: as `outbound_email` has it.
    pub(crate) const ATTACHMENTS_MAX: usize = 10;
    /// All of them together, before they are written in base64.
    pub(crate) const ATTACHMENTS_BYTES_MAX: usize = 512 << 10;
    pub(crate) const ATTACHMENT_NAME_CHARACTERS_MAX: usize = 200;
    /// The longest a relay may be waited for.
    pub(crate) const TIMEOUT_MS_MAX: u64 = 600_000;
    pub(crate) const CONNECT_TIMEOUT_MS: u64 = 5_000;
    pub(crate) const SUBJECT_BYTES_MAX: usize = 1_000;
    pub(crate) const NAME_BYTES_MAX: usize = 200;
    pub(crate) const ADDRESS_BYTES_MAX: usize = 254;
    pub(crate) const MESSAGE_ID_BYTES_MAX: usize = 200;
    /// Of a line of quoted-printable text, and of one with encoded words (RFC 2045 and 2047).
    pub(crate) const LINE_BYTES_MAX: usize = 76;
    /// Of a header's value that is written as it is: `Subject: ` stands before it.
    pub(crate) const VALUE_BYTES_MAX: usize = 66;
    /// Of an encoded word, before it is encoded: 39 bytes become 52, `=?UTF-8?B?` and `?=` are 12, `Subject: ` is 9.
    pub(crate) const WORD_BYTES_MAX: usize = 39;
    pub(crate) const REPLY_BYTES_MAX: usize = 16 << 10;
    pub(crate) const MESSAGE_CHARACTERS_MAX: usize = 200;
    /// The message is taken or not: how it says goodbye changes nothing.
    pub(crate) const QUIT_TIMEOUT: Duration = Duration::from_millis(500);

    const _: () = assert!(CONNECT_TIMEOUT_MS < TIMEOUT_MS_MAX);
    const _: () = assert!("Subject: ".len() + VALUE_BYTES_MAX < LINE_BYTES_MAX);
    const _: () =
        assert!("Subject: =?UTF-8?B??=".len() + WORD_BYTES_MAX.div_ceil(3) * 4 < LINE_BYTES_MAX);
}

/// Where consumers receive from.
pub(crate) mod sources {
    use std::time::Duration;

    /// How long the program may take to accept a connection. It is on this machine.
    pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
}
