//! What happens in one run: settings, then operations. All times are in milliseconds.

use super::choices::Choices;
use super::link::End;

/// How an end watches its peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    pub(crate) mode: Mode,
    pub(crate) timeout: u64,
    pub(crate) while_idle: bool,
    pub(crate) reports: bool,
    pub(crate) write_stall: Option<u64>,
    pub(crate) assumes: bool,
    pub(crate) by_receipts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Off,
    OnDemand,
    Every(u64),
}

/// What the transports of a seed can do. Times are in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Traits {
    pub(crate) delay: u64,
    pub(crate) capacity: usize,
    /// The most bytes that one read or write moves.
    pub(crate) piece: usize,
    /// How many of a hundred writes are refused though there is room.
    pub(crate) refusals: u64,
    /// Whether a look is answered.
    pub(crate) looks: bool,
    pub(crate) try_send: bool,
    pub(crate) shortcut: bool,
    /// Whether what is unread can be told.
    pub(crate) receipts: bool,
    /// Whether the server knows no PING: it reads them, and that is all.
    pub(crate) old: bool,
    /// Whether a read may find nothing first although bytes are there.
    pub(crate) stale: bool,
}

/// How a break looks to those who read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// All that was written arrives before the end.
    Clean,
    /// What is under way is lost, wherever a frame is cut by that.
    Torn,
    Reset,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The least time that passes at once, and so the error of every time that is measured.
    pub(crate) quantum: u64,
    pub(crate) traits: Traits,
    pub(crate) client: Watch,
    pub(crate) server: Watch,
    pub(crate) inline: bool,
    pub(crate) limits: Limits,
    /// Which end takes its turn first in each step.
    pub(crate) first: End,
    /// The end that nobody plays: what it sends is chosen by a fuzzer.
    pub(crate) absent: Option<End>,
    pub(crate) operations: Vec<Operation>,
    pub(crate) finale: Finale,
}

/// `None` is the default of the crate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) calls: Option<usize>,
    pub(crate) outbox: Option<usize>,
    pub(crate) client_stream: Option<usize>,
    pub(crate) late: Option<usize>,
    pub(crate) handlers: Option<usize>,
    pub(crate) waiting: Option<usize>,
    pub(crate) server_stream: Option<usize>,
    pub(crate) owed: Option<usize>,
}

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Wait(u64),
    Call(Ask),
    Probe(u64),
    /// Somebody waits for the connection's end.
    Closed,
    /// The future of one of the last calls is dropped.
    Drop(usize),
    /// It is not polled for so long.
    Hold(usize, u64),
    CloseClient,
    Abort(When),
    Shutdown(u64),
    /// As by SIGSTOP and, so much later, SIGCONT.
    Stop(End, u64),
    PauseLink(End, u64),
    BlockLink(End, u64),
    Flood(End, u64),
    Break(Break),
    /// Bytes to the other end that this one never wrote.
    #[allow(dead_code, reason = "only the fuzz target sends nonsense")]
    Raw(End, Vec<u8>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    Now,
    WithinRead,
    WithinWrite,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) timeout: Option<u64>,
    pub(crate) answer: Answer,
    /// Of a message, in bytes.
    pub(crate) size: usize,
    /// Messages of a stream, each way that has some.
    pub(crate) messages: u64,
    /// Between two of them.
    pub(crate) gap: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Say,
    /// Has a soft deadline.
    Soft,
    /// Is cut at its deadline.
    Cut,
    Down,
    Up,
    Both,
}

impl Method {
    pub(crate) fn is_unary(self) -> bool {
        matches!(self, Self::Say | Self::Soft | Self::Cut)
    }
}

/// What a handler does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    AtOnce,
    After(u64),
    Never,
    Panic,
    Refuse,
}

/// How it ends, if it has not ended before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finale {
    Close,
    Abort,
    Shutdown(u64),
    Break,
}

fn watch(choices: &mut Choices) -> Watch {
    let every = Mode::Every(choices.pick(&[100, 50, 300, 1000]));
    Watch {
        mode: choices.pick(&[every, Mode::OnDemand, every, Mode::Off]),
        timeout: choices.pick(&[200, 100, 500, 1000]),
        while_idle: choices.percent(60),
        reports: choices.percent(20),
        write_stall: choices.pick(&[None, None, None, None, Some(100), Some(400)]),
        assumes: choices.percent(20),
        by_receipts: choices.percent(40),
    }
}

fn ask(choices: &mut Choices) -> Ask {
    use Method::{Both, Cut, Down, Say, Soft, Up};
    let answer = choices.below(100);
    Ask {
        method: choices.pick(&[Say, Say, Say, Soft, Cut, Down, Up, Both]),
        timeout: match choices.below(4) {
            0 => None,
            _ => Some(choices.pick(&[200, 80, 400, 1000, 2000])),
        },
        answer: match answer {
            0..55 => Answer::AtOnce,
            55..80 => Answer::After(choices.pick(&[5, 50, 300, 900])),
            80..88 => Answer::Never,
            88..94 => Answer::Panic,
            _ => Answer::Refuse,
        },
        size: choices.pick(&[10, 0, 10, 300, 300, 5000, 5000, 60_000]),
        messages: choices.pick(&[3, 0, 1, 3, 10, 40]),
        gap: choices.pick(&[0, 0, 1, 20, 100]),
    }
}

pub(crate) fn operation(choices: &mut Choices) -> Operation {
    let end = choices.pick(&[End::Server, End::Client]);
    let long = choices.pick(&[20, 5, 20, 60, 150, 400, 1500, 4000]) + choices.below(10);
    match choices.below(100) {
        0..38 => Operation::Call(ask(choices)),
        38..60 => Operation::Wait(choices.pick(&[5, 0, 1, 2, 10, 30, 100, 300, 1000])),
        60..66 => Operation::Drop(choices.size(4)),
        66..71 => Operation::Hold(choices.size(4), long),
        71..75 => Operation::Probe(choices.pick(&[100, 20, 300])),
        75..77 => Operation::Closed,
        77..83 => Operation::Stop(end, long),
        83..87 => Operation::PauseLink(end, long),
        87..91 => Operation::BlockLink(end, long),
        91..94 => Operation::Flood(end, choices.pick(&[3, 1, 30, 200])),
        94 => Operation::CloseClient,
        95..97 => Operation::Abort(choices.pick(&[When::WithinRead, When::WithinWrite, When::Now])),
        97 => Operation::Shutdown(choices.pick(&[300, 0, 50, 1000])),
        _ => Operation::Break(choices.pick(&[Break::Clean, Break::Torn, Break::Reset])),
    }
}

impl Plan {
    /// One in which nothing happens.
    pub(crate) fn settings(choices: &mut Choices) -> Self {
        let some = |choices: &mut Choices, values: &[usize]| {
            choices.percent(15).then(|| choices.pick(values))
        };
        let limits = Limits {
            calls: some(choices, &[1, 2, 5]),
            outbox: some(choices, &[100, 5000, 70_000]),
            client_stream: some(choices, &[100, 20_000]),
            late: some(choices, &[1, 3]),
            handlers: some(choices, &[1, 2]),
            waiting: some(choices, &[1, 2]),
            server_stream: some(choices, &[100, 20_000]),
            owed: some(choices, &[100, 20_000]),
        };
        let mut client = watch(choices);
        let old = choices.percent(30);
        // It would be convicted although it is well.
        client.assumes &= !old;
        Self {
            quantum: choices.pick(&[5, 5, 2, 1]),
            traits: Traits {
                delay: choices.pick(&[0, 1, 3, 10]),
                capacity: choices.pick(&[200_000, 200_000, 10_000, 3000, 100]),
                piece: choices.pick(&[200_000, 200_000, 10_000, 500, 50]),
                refusals: choices.pick(&[0, 0, 5, 30]),
                looks: choices.percent(50),
                try_send: choices.percent(50),
                shortcut: choices.percent(60),
                receipts: choices.percent(60),
                old,
                stale: choices.percent(30),
            },
            client,
            server: watch(choices),
            inline: choices.percent(40),
            limits,
            first: choices.pick(&[End::Client, End::Server]),
            absent: None,
            operations: Vec::new(),
            finale: match choices.below(4) {
                0 => Finale::Close,
                1 => Finale::Abort,
                2 => Finale::Shutdown(choices.pick(&[500, 0, 100])),
                _ => Finale::Break,
            },
        }
    }
}
