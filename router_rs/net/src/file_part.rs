//! A part of a file as a piece of an answer: read when the client has room for it, on a thread that
//! may wait, into the memory that the peer shares if it shares some.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use router_arena::{ARENA_BYTES_DEFAULT, BLOCKS, Reserved};
use router_io::{Readers, RegularFile};
use rustix::buffer::spare_capacity;
use rustix::io::pread;
use tokio::sync::oneshot;

/// The most that is read at once. As much as one frame of the wire may carry.
const READ_BYTES_MAX: usize = router_wire::CREDIT_BYTES_INITIAL;

/// See the module's documentation. It has the file until it is dropped, or the read that was begun
/// has ended.
#[derive(Debug)]
pub struct FilePart {
    file: Holder,
    offset: u64,
    left: u64,
}

#[derive(Debug)]
enum Holder {
    Here(RegularFile),
    Reader(oneshot::Receiver<Read>),
    /// Nothing more can be read.
    Nobody,
}

/// The result of a read on another thread.
#[derive(Debug)]
struct Read {
    file: RegularFile,
    piece: io::Result<FilePiece>,
}

/// Bytes of a file, in memory.
#[derive(Debug)]
pub(crate) enum FilePiece {
    Lent(Reserved),
    Own(Bytes),
}

impl FilePart {
    /// `length` bytes from `offset` on.
    pub fn new(file: RegularFile, offset: u64, length: u64) -> Self {
        Self { file: Holder::Here(file), offset, left: length }
    }

    /// How many bytes are still to be sent.
    pub fn left(&self) -> usize {
        usize::try_from(self.left).unwrap_or(usize::MAX)
    }

    /// How many bytes to read next; 0: a read is under way, or all was read.
    pub(crate) fn wanted(&self) -> usize {
        if matches!(self.file, Holder::Here(_)) { self.left().min(READ_BYTES_MAX) } else { 0 }
    }

    /// Begins to read the next `bytes`, into `reserved` if there is some for as many.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn begin(
        &mut self,
        bytes: usize,
        reserved: Option<Reserved>,
        readers: &Readers,
    ) -> io::Result<()> {
        let Holder::Here(file) = std::mem::replace(&mut self.file, Holder::Nobody) else {
            return Err(lost());
        };
        let offset = self.offset;
        let (sender, receiver) = oneshot::channel();
        self.file = Holder::Reader(receiver);
        readers.run(move || {
            let piece = read(&file, offset, bytes, reserved);
            let _nobody_waits = sender.send(Read { file, piece });
        })
    }

    /// Waits for the read that was begun.
    ///
    /// # Errors
    /// The file has become shorter, or cannot be read.
    pub(crate) fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<FilePiece>> {
        let Holder::Reader(reader) = &mut self.file else { return Poll::Ready(Err(lost())) };
        let read = ready!(Pin::new(reader).poll(context));
        self.file = Holder::Nobody;
        let Read { file, piece } = read.map_err(|_| lost())?;
        let piece = piece?;
        let bytes = piece.len() as u64;
        (self.offset, self.left) = (self.offset + bytes, self.left - bytes);
        self.file = Holder::Here(file);
        Poll::Ready(Ok(piece))
    }
}

impl FilePiece {
    pub(crate) fn len(&self) -> usize {
        match self {
            FilePiece::Lent(reserved) => reserved.bytes(),
            FilePiece::Own(bytes) => bytes.len(),
        }
    }
}

/// How many of the `wanted` bytes to read where there is room for `room`: whole blocks of shared
/// memory of the default size, as long as there is room for one.
pub(crate) fn worth_reading(wanted: usize, room: usize) -> usize {
    const BLOCK: usize = ARENA_BYTES_DEFAULT / (2 * BLOCKS);
    if wanted <= room {
        wanted
    } else if room < BLOCK {
        room
    } else {
        room - room % BLOCK
    }
}

fn read(
    file: &RegularFile,
    offset: u64,
    bytes: usize,
    reserved: Option<Reserved>,
) -> io::Result<FilePiece> {
    let (count, piece) = if let Some(mut reserved) = reserved {
        (reserved.read(file, offset)?, FilePiece::Lent(reserved))
    } else {
        let own = read_own(file, offset, bytes)?;
        (own.len(), FilePiece::Own(own.into()))
    };
    if count < bytes {
        let text = format!("the file ends at {}, it has become shorter", offset + count as u64);
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
    }
    Ok(piece)
}

fn read_own(file: &RegularFile, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut content = Vec::with_capacity(bytes);
    while content.len() < bytes {
        let at = offset + content.len() as u64;
        match pread(file, spare_capacity(&mut content), at) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    content.truncate(bytes);
    Ok(content)
}

fn lost() -> io::Error {
    io::Error::other("the file could not be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_read_whole_where_there_is_room() {
        let kib = 1024;
        for (wanted, room, read) in [
            (10, 256 * kib, 10),
            (256 * kib, 256 * kib, 256 * kib),
            (256 * kib, 200 * kib, 192 * kib),
            (256 * kib, 64 * kib, 64 * kib),
            (256 * kib, 3, 3),
        ] {
            assert_eq!(read, worth_reading(wanted, room), "{wanted}, {room}");
        }
    }
}
