//! The interface of a protocol: one coder for the request, one for the answer.
//!
//! Both are pulled: a coder converts one message at a time, and only when the last one has been
//! taken, so that a small piece with many messages (or one that inflates) is never expanded whole.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, response};
use router_protocol::grpc::{Message, Status};

use super::work::Work;

/// The next result of a request's coder.
#[derive(Debug)]
pub(crate) enum Taken {
    /// A piece for the replica, not empty.
    Piece(Bytes),
    /// Work whose result is a piece; nothing more is taken before it is done.
    Long(Work),
    /// More bytes of the client are needed.
    NeedsMore,
    /// All of the request has been taken.
    End,
}

/// Turns the client's bytes into gRPC frames.
pub(crate) trait RequestCoder: Debug {
    /// Adds the client's next bytes; only after [`RequestCoder::take`] has returned `NeedsMore`,
    /// and not after the last ones.
    fn give(&mut self, bytes: Bytes, is_last: bool);

    /// The next piece for the replica.
    ///
    /// # Errors
    /// The error in the request. The coder cannot be used any more then.
    fn take(&mut self) -> Result<Taken, Status>;

    /// The bytes that no [`RequestCoder::take`] has inspected.
    fn unread_bytes(&self) -> usize;
}

/// Turns the replica's answer into the client's protocol. Nothing is called after its end is in the
/// outbox. That may be before the replica's end: the client has got all that it asked for then.
pub(crate) trait AnswerCoder: Debug {
    /// The head, unless it is the whole answer.
    fn head(&mut self, headers: HeaderMap, outbox: &mut Outbox);

    /// The next bytes of gRPC frames; only after [`AnswerCoder::step`] has returned false.
    fn give(&mut self, bytes: Bytes);

    /// Converts one message; false: nothing is left to convert. With work in the outbox, only
    /// [`AnswerCoder::fail`] may be called before [`AnswerCoder::resume`].
    ///
    /// # Errors
    /// Why the answer cannot be carried: [`AnswerCoder::fail`] must report it.
    fn step(&mut self, outbox: &mut Outbox) -> Result<bool, Status>;

    /// The end of the answer; only after [`AnswerCoder::step`] has returned false. Without a head
    /// before, `trailers` are the whole answer.
    ///
    /// # Errors
    /// Like [`AnswerCoder::step`].
    fn finish(&mut self, trailers: HeaderMap, outbox: &mut Outbox) -> Result<(), Status>;

    /// The work that was in the outbox is done, with this result.
    fn resume(&mut self, made: Message, outbox: &mut Outbox);

    /// Ends the answer with a status of ours, in any state.
    fn fail(&mut self, failure: &Failure<'_>, outbox: &mut Outbox);

    /// The longest time in which a client is sent nothing; `None`: its protocol has no sign of life.
    fn silence_max(&self) -> Option<Duration> {
        None
    }

    /// The client has been sent nothing for that time.
    fn keep_alive(&mut self, _outbox: &mut Outbox) {}
}

/// A status that was made on this side of the replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure<'a> {
    pub status: &'a Status,
    /// Headers that come with it.
    pub headers: &'a HeaderMap,
    /// The mesh has made the status, for a reason other than the request's body: `UNIMPLEMENTED`
    /// then means that the path is not served.
    pub is_of_mesh: bool,
}

/// Output for the client, in this order.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub head: Option<response::Parts>,
    /// Pieces, none empty.
    pub body: VecDeque<Bytes>,
    /// Nothing follows.
    pub is_ended: bool,
    /// The answer is incomplete, and only breaking off the connection can report that.
    pub is_broken: bool,
    /// Must be done before anything follows.
    pub work: Option<Work>,
}

impl Outbox {
    /// Adds a piece of the body, unless it is empty.
    pub(crate) fn push(&mut self, bytes: impl Into<Bytes>) {
        let bytes = bytes.into();
        if !bytes.is_empty() {
            self.body.push_back(bytes);
        }
    }
}
