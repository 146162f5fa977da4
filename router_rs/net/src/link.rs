//! State that the two ends of a call share: the task on the I/O thread, and the user of the call in
//! Python.
//!
//! `Event`s go to Python through an `EventSink`. `Command`s go to the task's inbox, from any
//! thread; waking the task is a separate step. Bytes in flight are counted in both directions, so
//! that each side can wait for the other: neither direction holds more than `CREDIT_BYTES` plus one
//! message.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Instant;

use http::{HeaderValue, StatusCode};
use router_dispatch::Reservation;
use router_io::{BriefMutex, IoThread, Recipient, Work};
use router_protocol::grpc::{Encoding, Message, Status};

use crate::file_part::FilePart;

/// Bytes that may be in flight in one direction before the writer has to wait. 64 KiB holds a
/// turn's worth of small messages and is a quarter of the HTTP/2 stream window (design decision 2).
pub const CREDIT_BYTES: usize = 64 * 1024;

/// User metadata in order, ready for a header block.
pub type MetadataBlock = http::HeaderMap;

/// Why a server call ended before its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReason {
    /// The client reset the stream or its connection went away.
    Client,
    /// The deadline passed; `DEADLINE_EXCEEDED` has been answered.
    Deadline,
    /// The server stops; `UNAVAILABLE` has been answered.
    Shutdown,
}

/// Events of a call, as its user receives them.
#[derive(Debug)]
pub enum Event {
    Message(Message),
    HalfClose,
    Cancel(CancelReason),
    Writable,
    InitialMetadata,
    /// The client call is over; the message is that of a unary response.
    Done(Option<Message>),
    /// A place at a replica, or why there is none.
    Chosen(Result<Arc<Reservation>, Status>),
    /// The channel's connectivity has changed.
    State(u8),
}

/// Receives the events of calls; implemented by the bridge. Never blocks.
pub trait EventSink: Send + Sync + std::fmt::Debug {
    fn push(&self, token: u64, event: Event);
}

/// Requests of a call's user to its task.
#[derive(Debug)]
pub enum Command {
    /// Server: the whole answer of a unary call.
    Reply(Message),
    /// Server: the content type of the answer, instead of the request's; before its headers.
    ContentType(HeaderValue),
    /// Server: response headers; the encoding that messages may use.
    InitialMetadata(MetadataBlock, Encoding),
    /// One message; compressed with the call's encoding, if it has one and this may be.
    Message { payload: Message, may_compress: bool },
    /// Server: work on a plain HTTP request has begun, which its router has asked to be told.
    TellStart,
    /// Server: the whole answer to a plain HTTP request.
    Respond { status: StatusCode, headers: http::HeaderMap, body: Message },
    /// Server: the head of an answer to a plain HTTP request; messages are pieces of its body.
    StartResponse { status: StatusCode, headers: http::HeaderMap },
    /// Server: a part of a file, as a piece of the body of an answer to a plain HTTP request.
    File(FilePart),
    /// Server: the end. A last message may come with it.
    Finish { status: Status, metadata: MetadataBlock, message: Option<Message> },
    /// Client: no more messages follow.
    HalfClose,
    /// Client: reset the stream; no `Done` follows.
    Cancel,
    /// Receive credit was returned (see `Link::take`); the task must read on.
    Resume,
    /// Server: user code has ended after a cancellation.
    Release,
    /// The server is stopped: answer `UNAVAILABLE` unless an answer is on its way.
    Shutdown,
}

#[derive(Debug, Default)]
struct Inbox {
    commands: VecDeque<Command>,
    waker: Option<Waker>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Link {
    pub token: u64,
    pub deadline: Option<Instant>,
    sink: Arc<dyn EventSink>,
    thread: IoThread,
    inbox: BriefMutex<Inbox>,
    unsent_bytes: AtomicUsize,
    unread_bytes: AtomicUsize,
    is_writer_waiting: AtomicBool,
    is_ended: AtomicBool,
}

/// Something with a link, to which commands can be delivered; its thread wakes the link's task.
pub trait Mailbox: Recipient {
    fn link(&self) -> &Link;
}

/// Leaves a command for a call, from any thread; returns its I/O thread, which has to be woken.
pub fn post(mailbox: Arc<impl Mailbox + 'static>, command: Command) -> IoThread {
    let link = mailbox.link();
    let thread = link.thread().clone();
    // If a command was waiting already, a look is queued, and it will take all commands.
    if link.put(command) {
        thread.queue(Work::Look(mailbox));
    }
    thread
}

impl Link {
    pub fn new(
        token: u64,
        deadline: Option<Instant>,
        sink: Arc<dyn EventSink>,
        thread: IoThread,
    ) -> Self {
        Self {
            token,
            deadline,
            sink,
            thread,
            inbox: BriefMutex::default(),
            unsent_bytes: AtomicUsize::new(0),
            unread_bytes: AtomicUsize::new(0),
            is_writer_waiting: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
        }
    }

    pub fn thread(&self) -> &IoThread {
        &self.thread
    }

    // === the user's side (any thread) ===

    /// Puts a command into the inbox, where a task that runs for another reason finds it, too.
    /// Returns whether it is the only one.
    fn put(&self, command: Command) -> bool {
        let mut inbox = self.inbox.lock();
        inbox.commands.push_back(command);
        inbox.commands.len() == 1
    }

    /// Counts a message that the user is about to queue.
    pub fn begin_write(&self, size: usize) {
        self.unsent_bytes.fetch_add(size, Ordering::AcqRel);
    }

    /// Whether the user may write on; if not, a `Writable` event will follow.
    pub fn is_writable(&self) -> bool {
        if self.is_ended() || self.unsent_bytes.load(Ordering::Acquire) < CREDIT_BYTES {
            return true;
        }
        // Set the flag first and check afterwards: the task does it in the opposite order, both
        // when bytes are sent and when the call ends.
        self.is_writer_waiting.store(true, Ordering::SeqCst);
        if self.unsent_bytes.load(Ordering::SeqCst) < CREDIT_BYTES
            || self.is_ended.load(Ordering::SeqCst)
        {
            // If the task took the flag meanwhile, its event is under way, which does no harm.
            return self.is_writer_waiting.swap(false, Ordering::SeqCst);
        }
        false
    }

    /// Returns receive credit; true when the task waits for it and must get `Command::Resume`.
    pub fn take(&self, size: usize) -> bool {
        let before = self.unread_bytes.fetch_sub(size, Ordering::AcqRel);
        debug_assert!(before >= size, "credit returned twice");
        before >= CREDIT_BYTES && before - size < CREDIT_BYTES
    }

    /// The call is over on the wire: nothing more can be sent or will be received.
    pub fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    // === the task's side (its I/O thread) ===

    /// Puts a command into the inbox and wakes the task.
    pub fn deliver(&self, command: Command) {
        self.put(command);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        // In a statement of its own: the waker must not run under the lock.
        let waker = self.inbox.lock().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes the next command. If there is none, registers the task to be woken for the next one.
    pub fn next_command(&self, context: &Context<'_>) -> Option<Command> {
        let mut inbox = self.inbox.lock();
        let command = inbox.commands.pop_front();
        if command.is_none() && !inbox.waker.as_ref().is_some_and(|w| w.will_wake(context.waker()))
        {
            inbox.waker = Some(context.waker().clone());
        }
        command
    }

    pub fn push(&self, event: Event) {
        self.sink.push(self.token, event);
    }

    /// Whether the task may push another message.
    pub fn has_receive_credit(&self) -> bool {
        self.unread_bytes.load(Ordering::Acquire) < CREDIT_BYTES
    }

    /// Counts and pushes a message of a stream.
    pub fn push_message(&self, message: Message) {
        self.unread_bytes.fetch_add(message.len(), Ordering::AcqRel);
        self.push(Event::Message(message));
    }

    /// Counts bytes of a message that HTTP/2 has accepted.
    pub fn sent(&self, size: usize) {
        let before = self.unsent_bytes.fetch_sub(size, Ordering::SeqCst);
        if before >= CREDIT_BYTES
            && before - size < CREDIT_BYTES
            && self.is_writer_waiting.swap(false, Ordering::SeqCst)
        {
            self.push(Event::Writable);
        }
    }

    /// Marks the end; a waiting writer is released. True the first time.
    pub fn end(&self) -> bool {
        let is_first = !self.is_ended.swap(true, Ordering::SeqCst);
        if is_first && self.is_writer_waiting.swap(false, Ordering::SeqCst) {
            self.push(Event::Writable);
        }
        is_first
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::mpsc;
    use std::task::Poll;
    use std::time::Duration;

    use router_io::IoThreads;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[derive(Debug)]
    struct Nobody;

    impl EventSink for Nobody {
        fn push(&self, _token: u64, _event: Event) {}
    }

    struct Call {
        link: Link,
        looks: AtomicUsize,
    }

    impl Recipient for Call {
        fn look(&self) {
            self.looks.fetch_add(1, Ordering::SeqCst);
            self.link.wake();
        }
    }

    impl Mailbox for Call {
        fn link(&self) -> &Link {
            &self.link
        }
    }

    fn call(threads: &IoThreads) -> Arc<Call> {
        let link = Link::new(1, None, Arc::new(Nobody), threads.next().clone());
        Arc::new(Call { link, looks: AtomicUsize::new(0) })
    }

    #[test]
    fn commands_that_wait_together_are_looked_for_once() {
        let threads = IoThreads::start("test", 1).unwrap();
        let call = call(&threads);
        for _ in 0..3 {
            post(call.clone(), Command::Resume);
        }
        let (done, looked) = mpsc::channel();
        // It comes after what was queued before.
        call.link.thread().run(move || done.send(()).unwrap());
        looked.recv_timeout(PATIENCE).unwrap();
        assert_eq!(1, call.looks.load(Ordering::SeqCst));
    }

    #[test]
    fn no_command_is_left_while_others_are_taken() {
        const COMMANDS: usize = 20_000;
        let threads = IoThreads::start("test", 1).unwrap();
        let call = call(&threads);
        let (done, taken) = mpsc::channel();
        let reader = call.clone();
        call.link.thread().run(move || {
            tokio::task::spawn_local(async move {
                let mut count = 0;
                poll_fn(|context| {
                    while reader.link.next_command(context).is_some() {
                        count += 1;
                    }
                    if count == 2 * COMMANDS { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                done.send(()).unwrap();
            });
        });
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..COMMANDS {
                        post(call.clone(), Command::Resume).wake_for_work();
                    }
                });
            }
        });
        taken.recv_timeout(PATIENCE).expect("all are taken");
    }
}
