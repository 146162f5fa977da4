//! Writes strings in JSON.

use super::raw::{Written, wrong};

pub(super) fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    std::io::Write::write_fmt(out, text).expect("invariant: a Vec has room");
}

pub(super) fn write_string(bytes: &[u8], out: &mut Vec<u8>) -> Written {
    let text = std::str::from_utf8(bytes);
    write_text(text.map_err(|_| wrong("a string is not UTF-8"))?, out);
    Ok(())
}

pub(super) fn write_text(text: &str, out: &mut Vec<u8>) {
    write_json(text, out);
}

pub(super) fn write_json(value: &(impl serde::Serialize + ?Sized), out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("invariant: a Vec has room");
}
