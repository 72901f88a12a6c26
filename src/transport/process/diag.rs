//! The kernel's table of unix sockets: which one is the other end of another. It is what `ss -x` shows
//! (`linux/netlink.h`, `linux/unix_diag.h`), asked for one socket, or for those that listen.

use std::io::{self, ErrorKind, Read, Write};

use byteorder::{ByteOrder, NativeEndian};
use socket2::{Domain, Protocol, Socket, Type};

/// Where the other end of a connection is. Sockets go by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherEnd {
    Held(u32),
    /// Nobody has accepted it. It waits at this listener, if that is seen from here.
    Queued(Option<u32>),
    Closed,
}

const AF_NETLINK: i32 = 16;
const NETLINK_SOCK_DIAG: i32 = 4;

const AF_UNIX: u8 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const SOCK_DIAG_BY_FAMILY: u16 = 20;

const UDIAG_SHOW_PEER: u32 = 4;
const UDIAG_SHOW_ICONS: u32 = 8;
const UNIX_DIAG_PEER: u16 = 2;
const UNIX_DIAG_ICONS: u16 = 3;
const UNIX_DIAG_SHUTDOWN: u16 = 6;

const ANY_STATE: u32 = u32::MAX;
const LISTENING: u32 = 1 << 10;

/// The header of each message, and what a request and an answer have behind it.
const HEADER: usize = 16;
const REQUEST: usize = HEADER + 24;
const ANSWER: usize = HEADER + 16;

/// As much as the kernel says at once.
const ANSWERS: usize = 32 << 10;

/// Where the other end of the socket with this number is.
pub(super) fn other_end(socket: u32) -> io::Result<OtherEnd> {
    let (mut peer, mut closed) = (None, false);
    ask(
        NLM_F_REQUEST,
        ANY_STATE,
        socket,
        UDIAG_SHOW_PEER,
        |answer| {
            for (kind, value) in answer.attributes() {
                match kind {
                    UNIX_DIAG_PEER => peer = value.get(..4).map(NativeEndian::read_u32),
                    // Nothing will be received any more.
                    UNIX_DIAG_SHUTDOWN => closed = value.first().is_some_and(|ways| ways & 1 != 0),
                    _ => {}
                }
            }
        },
    )?;
    Ok(match peer.filter(|peer| *peer != 0) {
        Some(peer) => OtherEnd::Held(peer),
        // One that no process has in its hands, or has any more, has no number.
        None if closed => OtherEnd::Closed,
        None => OtherEnd::Queued(listener_of(socket)?),
    })
}

/// The listener in whose queue this connection waits.
fn listener_of(socket: u32) -> io::Result<Option<u32>> {
    let mut listener = None;
    let flags = NLM_F_REQUEST | NLM_F_DUMP;
    ask(flags, LISTENING, 0, UDIAG_SHOW_ICONS, |answer| {
        let queues = answer
            .attributes()
            .filter(|(kind, _)| *kind == UNIX_DIAG_ICONS);
        let mut waiting = queues.flat_map(|(_, queue)| queue.chunks_exact(4));
        if waiting.any(|waiting| NativeEndian::read_u32(waiting) == socket) {
            listener = answer.socket();
        }
    })?;
    Ok(listener)
}

/// Asks for one socket, or for all in these states, and shows each answer.
fn ask(
    flags: u16,
    states: u32,
    socket: u32,
    show: u32,
    mut take: impl FnMut(Answer<'_>),
) -> io::Result<()> {
    let kernel = Protocol::from(NETLINK_SOCK_DIAG);
    let mut kernel = Socket::new(Domain::from(AF_NETLINK), Type::RAW, Some(kernel))?;
    // What it answers is there when it has taken the request: there is nothing to wait for.
    kernel.set_nonblocking(true)?;
    kernel.write_all(&request(flags, states, socket, show))?;
    let mut buffer = vec![0; ANSWERS];
    loop {
        let read = kernel.read(&mut buffer)?;
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            let (length, kind) = header(rest).ok_or(ErrorKind::InvalidData)?;
            let message = rest.get(..length).ok_or(ErrorKind::InvalidData)?;
            match kind {
                SOCK_DIAG_BY_FAMILY => take(Answer(message)),
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => return Err(ErrorKind::NotFound.into()),
                _ => {}
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        if flags & NLM_F_DUMP == 0 {
            return Ok(());
        }
    }
}

fn request(flags: u16, states: u32, socket: u32, show: u32) -> [u8; REQUEST] {
    let mut bytes = [0; REQUEST];
    NativeEndian::write_u32(&mut bytes[0..], 40); // its length
    NativeEndian::write_u16(&mut bytes[4..], SOCK_DIAG_BY_FAMILY);
    NativeEndian::write_u16(&mut bytes[6..], flags);
    bytes[HEADER] = AF_UNIX;
    NativeEndian::write_u32(&mut bytes[HEADER + 4..], states);
    NativeEndian::write_u32(&mut bytes[HEADER + 8..], socket);
    NativeEndian::write_u32(&mut bytes[HEADER + 12..], show);
    bytes[HEADER + 16..].fill(0xff); // no cookie: whatever has that number
    bytes
}

/// The length of a message, which is at least that of a header, and its type.
fn header(message: &[u8]) -> Option<(usize, u16)> {
    let length = message.get(..4).map(NativeEndian::read_u32)?;
    let kind = message.get(4..6).map(NativeEndian::read_u16)?;
    let length = usize::try_from(length).ok()?;
    (length >= HEADER).then_some((length, kind))
}

struct Answer<'a>(&'a [u8]);

impl<'a> Answer<'a> {
    fn socket(&self) -> Option<u32> {
        let number = self.0.get(HEADER + 4..HEADER + 8);
        number.map(NativeEndian::read_u32)
    }

    fn attributes(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        let mut rest = self.0.get(ANSWER..).unwrap_or_default();
        std::iter::from_fn(move || {
            let length = usize::from(rest.get(..2).map(NativeEndian::read_u16)?);
            let kind = rest.get(2..4).map(NativeEndian::read_u16)?;
            let value = rest.get(4..length)?;
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            Some((kind, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_off_or_makes_no_sense_ends_an_answer() {
        let mut message = vec![0; ANSWER];
        message.extend([8, 0, 2, 0, 1, 2, 3, 4, 5, 0, 6, 0, 3]);
        for length in 0..=message.len() {
            for number in [0, 1, 3, 4, 5, 255] {
                let mut odd = message[..length].to_vec();
                for at in 0..odd.len() {
                    odd[at] = number;
                    assert!(Answer(&odd).attributes().count() <= 2);
                    let _ = header(&odd);
                }
            }
        }
        let told: Vec<_> = Answer(&message).attributes().collect();
        if cfg!(target_endian = "little") {
            assert_eq!(told, [(2, &[1, 2, 3, 4][..]), (6, &[3][..])]);
        }
    }
}
