//! Base64 in pieces, each of which may end anywhere or with its own padding.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use router_protocol::grpc::{Code, Status};

/// Characters that belong together.
const GROUP: usize = 4;

/// Encodes one piece, padded, so that it can be decoded without the next one.
pub(super) fn encode(bytes: &[u8]) -> Bytes {
    STANDARD.encode(bytes).into()
}

/// Decodes base64. A padded group may be followed by others: senders encode piece by piece.
#[derive(Debug, Default)]
pub(super) struct TextDecoder {
    /// Characters of an incomplete group.
    partial: [u8; GROUP],
    partial_count: usize,
}

impl TextDecoder {
    /// Decodes all complete groups.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for invalid base64. The decoder cannot be used any more then.
    pub(super) fn decode(&mut self, piece: &[u8]) -> Result<Bytes, Status> {
        let mut decoded = BytesMut::with_capacity((piece.len() / GROUP + 1) * 3);
        let mut rest = piece;
        if self.partial_count > 0 {
            let take = rest.len().min(GROUP - self.partial_count);
            self.partial[self.partial_count..self.partial_count + take]
                .copy_from_slice(&rest[..take]);
            self.partial_count += take;
            rest = &rest[take..];
            if self.partial_count < GROUP {
                return Ok(Bytes::new());
            }
            self.partial_count = 0;
            decode_group(&self.partial, &mut decoded)?;
        }
        let (whole, partial) = rest.split_at(rest.len() - rest.len() % GROUP);
        decode_whole(whole, &mut decoded)?;
        self.partial[..partial.len()].copy_from_slice(partial);
        self.partial_count = partial.len();
        Ok(decoded.freeze())
    }

    /// The text ends here.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: in the middle of a group.
    pub(super) fn finish(&self) -> Result<(), Status> {
        if self.partial_count == 0 {
            return Ok(());
        }
        let text = format!(
            "malformed body: the base64 ends after {} of the {GROUP} characters of a group",
            self.partial_count
        );
        Err(Status::new(Code::InvalidArgument, text))
    }
}

/// Decodes whole groups: at once without padding, and from padding to padding otherwise.
fn decode_whole(mut groups: &[u8], decoded: &mut BytesMut) -> Result<(), Status> {
    while !groups.is_empty() {
        let padding = groups.iter().position(|byte| *byte == b'=');
        let end = padding.map_or(groups.len(), |at| (at / GROUP + 1) * GROUP);
        let (part, rest) = groups.split_at(end);
        decode_group(part, decoded)?;
        groups = rest;
    }
    Ok(())
}

fn decode_group(group: &[u8], decoded: &mut BytesMut) -> Result<(), Status> {
    let bytes = STANDARD.decode(group).map_err(|error| {
        Status::new(Code::InvalidArgument, format!("malformed body: no base64: {error}"))
    })?;
    decoded.extend_from_slice(&bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(pieces: &[&[u8]]) -> Result<Vec<u8>, Status> {
        let mut decoder = TextDecoder::default();
        let mut all = Vec::new();
        for piece in pieces {
            all.extend_from_slice(&decoder.decode(piece)?);
        }
        decoder.finish().map(|()| all)
    }

    proptest! {
        #[test]
        fn any_cutting_of_padded_pieces_gives_the_same_bytes(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..8),
            cuts in prop::collection::vec(1_usize..9, 1..40),
        ) {
            let wire: Vec<u8> = pieces.iter().flat_map(|piece| encode(piece)).collect();
            let mut rest = &wire[..];
            let mut cut_pieces = Vec::new();
            for cut in cuts.into_iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                cut_pieces.push(piece);
                rest = after;
            }
            prop_assert_eq!(pieces.concat(), decode(&cut_pieces).unwrap());
        }
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        for wire in ["AAA", "A", "AAAA=", "AA=A", "====", "AA\u{e9}A", "AAB=", "-_-_", "AAAA\r\n"] {
            let error = decode(&[wire.as_bytes()]).unwrap_err();
            assert_eq!(Code::InvalidArgument, error.code, "{wire:?}");
        }
    }
}
