//! Frames in transit, and two connected sessions.

mod arena;
mod calls;
mod frames;
mod storm;

use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use http::{HeaderMap, Request};
use router_arena::{ARENA_BYTES_DEFAULT, Arena};

use super::*;

fn call_head(target: &str, headers: &HeaderMap) -> http::request::Parts {
    let mut head = Request::post(format!("http://h:1{target}")).body(()).unwrap();
    *head.headers_mut() = headers.clone();
    head.into_parts().0
}

/// A client and a server, and the bytes in transit between them.
struct Pair {
    client: Session,
    server: Session,
    /// To the server, to the client.
    decoders: [Decoder; 2],
    called: Vec<Called>,
}

impl Pair {
    fn new() -> Self {
        Self {
            client: Session::new(Side::Client),
            server: Session::new(Side::Server),
            decoders: [Decoder::default(), Decoder::default()],
            called: Vec::new(),
        }
    }

    /// Both sides share an arena, and know that they do.
    fn with_arena() -> Self {
        let (here, descriptor) = Arena::create(ARENA_BYTES_DEFAULT).expect("a memfd");
        let there = Arena::open(&descriptor).expect("the arena that was just made");
        let mut pair = Self {
            client: Session::with_arena(Side::Client, Some(here)),
            server: Session::with_arena(Side::Server, Some(there)),
            ..Self::new()
        };
        pair.settle();
        pair
    }

    /// Moves up to `bytes` in one direction.
    fn carry(&mut self, to_server: bool, bytes: usize) {
        let (from, to) = if to_server {
            (&mut self.client, &mut self.server)
        } else {
            (&mut self.server, &mut self.client)
        };
        let outgoing = from.outgoing();
        let mut chunk = outgoing.copy_to_bytes(bytes.min(outgoing.remaining()));
        let decoder = &mut self.decoders[usize::from(!to_server)];
        while let Some(frame) = decoder.decode(&mut chunk).expect("it was written here") {
            self.called.extend(to.on_frame(frame).expect("it was said here"));
        }
    }

    fn settle(&mut self) {
        while self.client.outgoing().has_remaining() || self.server.outgoing().has_remaining() {
            self.carry(true, usize::MAX);
            self.carry(false, usize::MAX);
        }
    }
}

fn cx() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn begin(pair: &mut Pair, body: Option<&[Bytes]>) -> CallId {
    pair.client.call(&call_head("/a", &HeaderMap::new()), body).expect("an open session")
}

/// Like `begin`, but the call has arrived; returns its ids at the client and at the server.
fn begun(pair: &mut Pair, body: Option<&[Bytes]>) -> (CallId, CallId) {
    let here = begin(pair, body);
    pair.settle();
    (here, pair.called.pop().expect("a call").id)
}

/// Takes the part of a body that has arrived, and returns its size and whether it is complete.
fn take(session: &mut Session, id: CallId) -> (usize, bool) {
    let mut came = 0;
    loop {
        match session.poll_data(id, &cx()) {
            Poll::Ready(Some(Ok(piece))) => {
                came += piece.len();
                session.release(id, piece.len());
            }
            Poll::Ready(None) => return (came, true),
            Poll::Ready(Some(Err(cut))) => panic!("{cut:?}"),
            Poll::Pending => return (came, false),
        }
    }
}
