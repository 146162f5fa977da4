//! Messages as sequences of pieces, which are sorted, or one of which is removed. The values in
//! them stay the same, bit by bit.

use std::collections::HashMap;

use prost::encoding::{WireType, encode_key, encode_varint};
use prost_reflect::MessageDescriptor;

use super::field::{Field, Shape};
use super::raw::{Raw, Reader, Unwritten, wrong};

/// One field with its key, as it was sent.
#[derive(Clone, Copy)]
struct Piece<'a> {
    number: u32,
    raw: Raw<'a>,
    bytes: &'a [u8],
}

/// Calls `take` for each piece of a message.
fn each<'a>(bytes: &'a [u8], mut take: impl FnMut(Piece<'a>)) -> Result<(), Unwritten> {
    let mut reader = Reader(bytes);
    while !reader.is_empty() {
        let behind = reader.0;
        let (number, raw) = reader.field()?;
        take(Piece { number, raw, bytes: &behind[..behind.len() - reader.0.len()] });
    }
    Ok(())
}

/// The same message as every encoder would write it: known fields in the order of numbers, one
/// member of a oneof, and each single submessage once.
pub(super) fn ordered(descriptor: &MessageDescriptor, bytes: &[u8]) -> Result<Vec<u8>, Unwritten> {
    let mut pieces = Vec::new();
    each(bytes, |piece| {
        let field = Field::numbered(descriptor, piece.number);
        if field.is_some_and(|field| field.takes(piece.raw)) {
            pieces.push(piece);
        }
    })?;
    let mut pieces = without_superseded(descriptor, pieces);
    pieces.sort_by_key(|piece| piece.number);
    let mut out = Vec::with_capacity(bytes.len());
    for run in pieces.chunk_by(|one, other| one.number == other.number) {
        let Some(field) = Field::numbered(descriptor, run[0].number) else { continue };
        let is_message = field.shape() == Shape::Single && field.kind().as_message().is_some();
        if is_message && run.len() > 1 {
            put_merged(run, &mut out)?;
        } else {
            out.extend(run.iter().flat_map(|piece| piece.bytes));
        }
    }
    Ok(out)
}

/// Keeps of each oneof only the member that was set last, from where it was last set.
fn without_superseded<'a>(
    descriptor: &MessageDescriptor,
    mut pieces: Vec<Piece<'a>>,
) -> Vec<Piece<'a>> {
    /// The members of a oneof found so far, scanning from the end.
    struct Met {
        number: u32,
        is_over: bool,
    }
    let mut oneofs = HashMap::<String, Met>::new();
    pieces.reverse();
    pieces.retain(|piece| {
        let oneof = Field::numbered(descriptor, piece.number).and_then(|field| field.oneof());
        let Some(oneof) = oneof else { return true };
        let first = Met { number: piece.number, is_over: false };
        let met = oneofs.entry(oneof.name().to_owned()).or_insert(first);
        met.is_over |= met.number != piece.number;
        !met.is_over
    });
    pieces.reverse();
    pieces
}

/// Repeated occurrences of a submessage are merged.
fn put_merged(run: &[Piece<'_>], out: &mut Vec<u8>) -> Result<(), Unwritten> {
    let parts = run.iter().map(|piece| match piece.raw {
        Raw::Bytes(bytes) | Raw::Group(bytes) => Ok(bytes),
        _ => Err(wrong("invalid wire type")),
    });
    let merged = parts.collect::<Result<Vec<_>, _>>()?.concat();
    put_message(run[0].number, &merged, out);
    Ok(())
}

pub(super) fn put_message(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// The message without the field at a path of numbers.
pub(super) fn without(bytes: &[u8], path: &[u32]) -> Result<Vec<u8>, Unwritten> {
    let Some((first, rest)) = path.split_first() else { return Ok(bytes.to_vec()) };
    let mut out = Vec::with_capacity(bytes.len());
    let mut edited = Ok(());
    each(bytes, |piece| match piece.raw {
        _ if piece.number != *first => out.extend_from_slice(piece.bytes),
        _ if rest.is_empty() => {}
        Raw::Bytes(inner) => match without(inner, rest) {
            Ok(inner) => put_message(piece.number, &inner, &mut out),
            Err(error) => edited = Err(error),
        },
        Raw::Group(inner) => match without(inner, rest) {
            Ok(inner) => {
                encode_key(piece.number, WireType::StartGroup, &mut out);
                out.extend_from_slice(&inner);
                encode_key(piece.number, WireType::EndGroup, &mut out);
            }
            Err(error) => edited = Err(error),
        },
        _ => edited = Err(wrong("invalid wire type")),
    })?;
    edited.map(|()| out)
}

/// The parts of a field's message, one after the other, which together are the message.
pub(super) fn inside(bytes: &[u8], number: u32) -> Result<Vec<u8>, Unwritten> {
    let mut out = Vec::new();
    each(bytes, |piece| match piece.raw {
        Raw::Bytes(part) | Raw::Group(part) if piece.number == number => {
            out.extend_from_slice(part);
        }
        _ => {}
    })?;
    Ok(out)
}
