//! Extracts frames from the input.

use bytes::{Buf, Bytes, BytesMut};

use crate::errors::Malformed;
use crate::frame::{CallId, Frame, Kind, PREFIX_BYTES, Place};

/// Extracts frames from a byte stream, however that is split. Pieces are returned as they come,
/// other frames once they are complete.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The beginning of a frame whose rest has not come.
    begun: BytesMut,
    /// The piece that is being received.
    piece: Option<Coming>,
}

#[derive(Clone, Copy, Debug)]
struct Coming {
    id: CallId,
    missing: usize,
    is_final: bool,
}

/// The first bytes of a frame.
#[derive(Clone, Copy, Debug)]
struct Prefix {
    length: usize,
    kind: Kind,
    id: CallId,
}

impl Decoder {
    /// Takes the next frame out of `chunk`, or all of `chunk`.
    ///
    /// # Errors
    /// The bytes are not a frame; decoding cannot continue then.
    pub fn decode(&mut self, chunk: &mut Bytes) -> Result<Option<Frame>, Malformed> {
        if let Some(piece) = self.piece.filter(|_| !chunk.is_empty()) {
            return Ok(Some(self.go_on(piece, chunk)));
        }
        if !self.begun.is_empty() {
            return self.complete(chunk);
        }
        let Some(prefix) = Prefix::read(chunk)? else { return Ok(self.keep(chunk)) };
        if prefix.is_piece() {
            chunk.advance(PREFIX_BYTES);
            return Ok(self.begin_piece(prefix, chunk));
        }
        let end = PREFIX_BYTES + prefix.length;
        if chunk.len() < end {
            return Ok(self.keep(chunk));
        }
        let payload = chunk.slice(PREFIX_BYTES..end);
        chunk.advance(end);
        prefix.frame(payload).map(Some)
    }

    fn keep(&mut self, chunk: &mut Bytes) -> Option<Frame> {
        self.begun.extend_from_slice(chunk);
        chunk.clear();
        None
    }

    /// Adds to the frame that has begun, but no more than belongs to it.
    fn complete(&mut self, chunk: &mut Bytes) -> Result<Option<Frame>, Malformed> {
        self.fill(PREFIX_BYTES, chunk);
        let Some(prefix) = Prefix::read(&self.begun)? else { return Ok(None) };
        if prefix.is_piece() {
            self.begun.clear();
            return Ok(self.begin_piece(prefix, chunk));
        }
        let end = PREFIX_BYTES + prefix.length;
        self.fill(end, chunk);
        if self.begun.len() < end {
            return Ok(None);
        }
        let frame = std::mem::take(&mut self.begun).freeze();
        prefix.frame(frame.slice(PREFIX_BYTES..)).map(Some)
    }

    fn fill(&mut self, end: usize, chunk: &mut Bytes) {
        let missing = end.saturating_sub(self.begun.len()).min(chunk.len());
        self.begun.extend_from_slice(&chunk[..missing]);
        chunk.advance(missing);
    }

    fn begin_piece(&mut self, prefix: Prefix, chunk: &mut Bytes) -> Option<Frame> {
        let is_final = prefix.kind == Kind::Final;
        let coming = Coming { id: prefix.id, missing: prefix.length, is_final };
        if prefix.length > 0 && chunk.is_empty() {
            self.piece = Some(coming);
            return None;
        }
        Some(self.go_on(coming, chunk))
    }

    fn go_on(&mut self, mut piece: Coming, chunk: &mut Bytes) -> Frame {
        let bytes = chunk.split_to(piece.missing.min(chunk.len()));
        piece.missing -= bytes.len();
        let is_over = piece.missing == 0;
        self.piece = (!is_over).then_some(piece);
        Frame::Piece { id: piece.id, bytes, is_final: is_over && piece.is_final }
    }
}

fn number(payload: &[u8]) -> Result<u32, Malformed> {
    let bytes = payload.try_into().map_err(|_| Malformed("a number has four bytes"));
    bytes.map(u32::from_be_bytes)
}

// === impl Place ===

impl Place {
    fn read(payload: &[u8]) -> Result<Self, Malformed> {
        let (first_block, bytes) = payload.split_at(payload.len() / 2);
        Ok(Self { first_block: number(first_block)?, bytes: number(bytes)? })
    }
}

// === impl Prefix ===

impl Prefix {
    /// `None`: it is incomplete.
    fn read(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        let Some(bytes) = bytes.get(..PREFIX_BYTES) else { return Ok(None) };
        let number = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let kind = Kind::of(bytes[4]).ok_or(Malformed("an unknown kind"))?;
        let length = number(0) as usize;
        if !kind.may_have(length) {
            return Err(Malformed("a frame of its kind is not as long"));
        }
        let id = CallId { serial: number(5), place: number(9) };
        Ok(Some(Self { length, kind, id }))
    }

    fn is_piece(self) -> bool {
        matches!(self.kind, Kind::Piece | Kind::Final)
    }

    fn frame(self, payload: Bytes) -> Result<Frame, Malformed> {
        let id = self.id;
        Ok(match self.kind {
            Kind::Call => Frame::Call { id, payload },
            Kind::Begin => Frame::Begin { id, payload },
            Kind::Whole => Frame::Whole { id, payload },
            Kind::Head => Frame::Head { id, payload },
            Kind::Trailers => Frame::Trailers { id, payload },
            Kind::Reset => Frame::Reset { id, code: number(&payload)? },
            Kind::Credit => Frame::Credit { id, bytes: number(&payload)? },
            Kind::Last => Frame::Last,
            Kind::Ping => Frame::Ping,
            Kind::Pong => Frame::Pong,
            Kind::Mapped => Frame::Mapped,
            Kind::Started => Frame::Started { id },
            Kind::Lent => Frame::Lent { id, place: Place::read(&payload)?, is_final: false },
            Kind::LentFinal => Frame::Lent { id, place: Place::read(&payload)?, is_final: true },
            Kind::Piece => Frame::Piece { id, bytes: payload, is_final: false },
            Kind::Final => Frame::Piece { id, bytes: payload, is_final: true },
        })
    }
}
