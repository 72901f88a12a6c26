//! A peer on a bare socket: what it does needs no runtime, so it also acts while this one is
//! paused.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use ttrpc_keepalive::wire::{Decoded, Decoder, Flags, Frame, MessageType, encode_response, pong};

use super::text;

pub(crate) struct BarePeer {
    socket: UnixStream,
    decoder: Decoder,
}

impl BarePeer {
    /// A connected pair: the stream for the connection under test, and its peer.
    pub(crate) fn pair() -> (tokio::net::UnixStream, Self) {
        let (here, there) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        there.set_nonblocking(true).unwrap();
        let here = tokio::net::UnixStream::from_std(here).unwrap();
        let peer = Self {
            socket: there,
            decoder: Decoder::new(),
        };
        (here, peer)
    }

    /// Takes what the kernel holds for it: complete frames, and how many bytes there were.
    pub(crate) fn drain(&mut self) -> (Vec<Frame>, usize) {
        let (mut frames, mut count) = (Vec::new(), 0);
        let mut chunk = vec![0; 64 << 10];
        loop {
            let read = match self.socket.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            };
            count += read;
            let mut input = &chunk[..read];
            while let Some(decoded) = self.decoder.decode(&mut input).unwrap() {
                match decoded {
                    Decoded::Frame(frame) => frames.push(frame),
                    other => panic!("{other:?}"),
                }
            }
        }
        (frames, count)
    }

    /// Takes at most this many bytes.
    pub(crate) fn take(&mut self, most: usize) -> usize {
        let mut chunk = vec![0; most];
        self.socket.read(&mut chunk).unwrap_or(0)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// Answers the PINGs and calls among what the kernel holds for it.
    pub(crate) fn answer(&mut self) {
        for frame in self.drain().0 {
            let id = frame.header.stream_id;
            match frame.header.message_type {
                MessageType::PING => self.send(&pong(id, Flags::NONE, &frame.payload)),
                MessageType::REQUEST => self.send(&encode_response(id, &text("hello")).unwrap()),
                other => panic!("{other:?}"),
            }
        }
    }
}
