//! The parts of an answer, one after the other: reasoning, text, a refusal, calls of tools.
//!
//! Messages has content blocks and Responses has items; each of them ends before the next begins.
//! Engines may interleave them: the arguments of a second call may come before those of the first
//! are complete. The content of a later part waits here until the part before it has ended.

use std::fmt::Debug;

use bytes::BytesMut;
use router_protocol::grpc::{Code, Status};

use crate::call_json::CallJson;
use crate::messages::{TokenLogprob, Usage};

/// More parts than any model makes; arbitrary.
const PARTS_MAX: usize = 1024;

/// The limit for the content of one answer; arbitrary, a hundred times today's longest outputs.
const KEPT_BYTES_MAX: usize = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Reasoning,
    Text,
    Refusal,
    /// Calls are numbered from 0.
    Call(usize),
}

#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) kind: Kind,
    /// The content so far; of a call, its arguments.
    pub(crate) text: String,
    pub(crate) logprobs: Vec<TokenLogprob>,
    /// Of a call.
    pub(crate) id: String,
    /// Of a call.
    pub(crate) name: String,
    json: CallJson,
}

/// Writes parts as they begin, grow and end. Indexes count up by one.
pub(crate) trait WriteParts: Debug + Send {
    /// Before any part. The engine has counted so much by now.
    fn start(&mut self, out: &mut BytesMut, usage: &Usage);

    fn begin(&mut self, out: &mut BytesMut, index: usize, part: &Part);

    /// The logprobs are those of the piece's tokens; one of the two may be empty.
    fn piece(
        &mut self,
        out: &mut BytesMut,
        index: usize,
        part: &Part,
        piece: &str,
        logprobs: &[TokenLogprob],
    );

    /// `is_cut`: the engine has stopped inside of it.
    fn end(&mut self, out: &mut BytesMut, index: usize, part: &Part, is_cut: bool);
}

/// For an answer that is written as a whole, at its end.
impl WriteParts for () {
    fn start(&mut self, _: &mut BytesMut, _: &Usage) {}
    fn begin(&mut self, _: &mut BytesMut, _: usize, _: &Part) {}
    fn piece(&mut self, _: &mut BytesMut, _: usize, _: &Part, _: &str, _: &[TokenLogprob]) {}
    fn end(&mut self, _: &mut BytesMut, _: usize, _: &Part, _: bool) {}
}

/// All parts so far, and who writes them.
///
/// Those before `open` have ended, those after it wait; the one at `open` has begun if
/// `has_begun`.
#[derive(Debug)]
pub(crate) struct Parts<W> {
    writer: W,
    list: Vec<Part>,
    open: usize,
    has_begun: bool,
    kept_bytes: usize,
    forgets: bool,
}

impl Part {
    fn new(kind: Kind, id: &str, name: &str) -> Self {
        let (text, logprobs, json) = Default::default();
        Self { kind, text, logprobs, id: id.into(), name: name.into(), json }
    }

    pub(crate) fn is_call(&self) -> bool {
        matches!(self.kind, Kind::Call(_))
    }

    /// Another part may begin: no more of this one is to come.
    fn may_end(&self) -> bool {
        !self.is_call() || self.json.is_complete()
    }
}

impl<W: WriteParts> Parts<W> {
    pub(crate) fn new(writer: W) -> Self {
        Self { writer, list: Vec::new(), open: 0, has_begun: false, kept_bytes: 0, forgets: false }
    }

    /// Text that has been written is not kept. Arguments of calls are.
    pub(crate) fn forgetting(writer: W) -> Self {
        Self { forgets: true, ..Self::new(writer) }
    }

    pub(crate) fn writer(&mut self) -> &mut W {
        &mut self.writer
    }

    /// The writer, and all parts.
    pub(crate) fn all(&mut self) -> (&mut W, &[Part]) {
        (&mut self.writer, &self.list)
    }

    /// The writer, the parts that have begun, and how many of them have ended.
    pub(crate) fn shown(&mut self) -> (&mut W, &[Part], usize) {
        let count = self.open + usize::from(self.has_begun);
        (&mut self.writer, &self.list[..count], self.open)
    }

    /// More reasoning, text or refusal.
    ///
    /// # Errors
    /// `INTERNAL`: the answer is too long, or in too many parts.
    pub(crate) fn add(
        &mut self,
        kind: Kind,
        piece: &str,
        logprobs: &[TokenLogprob],
        out: &mut BytesMut,
    ) -> Result<(), Status> {
        if self.list.last().is_none_or(|last| last.kind != kind) {
            self.push(Part::new(kind, "", ""))?;
        }
        self.grow(self.list.len() - 1, piece, logprobs, out)
    }

    /// Another call of a tool.
    ///
    /// # Errors
    /// `INTERNAL`: the answer is in too many parts.
    pub(crate) fn add_call(
        &mut self,
        call: usize,
        id: &str,
        name: &str,
        out: &mut BytesMut,
    ) -> Result<(), Status> {
        self.push(Part::new(Kind::Call(call), id, name))?;
        self.go_on(out);
        Ok(())
    }

    /// More arguments of a call.
    ///
    /// # Errors
    /// `INTERNAL`: the answer is too long, or the call has ended, as its arguments were complete.
    pub(crate) fn add_arguments(
        &mut self,
        call: usize,
        piece: &str,
        out: &mut BytesMut,
    ) -> Result<(), Status> {
        let at = self.list.iter().rposition(|part| part.kind == Kind::Call(call));
        let at = at.expect("invariant: a call begins before its arguments");
        if at >= self.open {
            self.list[at].json.follow(piece);
            return self.grow(at, piece, &[], out);
        }
        if piece.trim().is_empty() {
            return Ok(());
        }
        let name = &self.list[at].name;
        let text = format!("the engine has sent more arguments after the end of those of {name:?}");
        Err(Status::new(Code::Internal, text))
    }

    /// All parts end; `is_cut` is the last one.
    pub(crate) fn finish(&mut self, is_cut: bool, out: &mut BytesMut) {
        while self.open < self.list.len() {
            let is_last = self.open + 1 == self.list.len();
            self.end_open(is_cut && is_last, out);
        }
    }

    fn push(&mut self, part: Part) -> Result<(), Status> {
        if self.list.len() == PARTS_MAX {
            let text = format!("the engine's answer has more than {PARTS_MAX} parts");
            return Err(Status::new(Code::Internal, text));
        }
        self.list.push(part);
        Ok(())
    }

    fn grow(
        &mut self,
        at: usize,
        piece: &str,
        logprobs: &[TokenLogprob],
        out: &mut BytesMut,
    ) -> Result<(), Status> {
        let is_shown = at == self.open && self.has_begun;
        if is_shown {
            self.writer.piece(out, at, &self.list[at], piece, logprobs);
        }
        let part = &mut self.list[at];
        if !(is_shown && self.forgets && !part.is_call()) {
            self.kept_bytes += piece.len() + size_of_val(logprobs);
            if self.kept_bytes > KEPT_BYTES_MAX {
                let text = format!("the engine's answer is longer than {KEPT_BYTES_MAX} bytes");
                return Err(Status::new(Code::Internal, text));
            }
            part.text.push_str(piece);
            part.logprobs.extend_from_slice(logprobs);
        }
        self.go_on(out);
        Ok(())
    }

    /// Writes what had to wait, as far as its turn has come.
    fn go_on(&mut self, out: &mut BytesMut) {
        while self.open < self.list.len() {
            self.begin_open(out);
            let is_last = self.open + 1 == self.list.len();
            if is_last || !self.list[self.open].may_end() {
                return;
            }
            self.end_open(false, out);
        }
    }

    fn begin_open(&mut self, out: &mut BytesMut) {
        if self.has_begun {
            return;
        }
        self.has_begun = true;
        let part = &mut self.list[self.open];
        self.writer.begin(out, self.open, part);
        if !part.text.is_empty() || !part.logprobs.is_empty() {
            self.writer.piece(out, self.open, part, &part.text, &part.logprobs);
        }
        if self.forgets && !part.is_call() {
            part.text = String::new();
            part.logprobs = Vec::new();
        }
    }

    fn end_open(&mut self, is_cut: bool, out: &mut BytesMut) {
        self.begin_open(out);
        self.writer.end(out, self.open, &self.list[self.open], is_cut);
        self.open += 1;
        self.has_begun = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calls of the writer, a line for each.
    #[derive(Debug, Default)]
    struct Script(Vec<String>);

    impl WriteParts for Script {
        fn start(&mut self, _: &mut BytesMut, _: &Usage) {}

        fn begin(&mut self, _: &mut BytesMut, index: usize, part: &Part) {
            self.0.push(format!("{index} begins: {:?} {}", part.kind, part.name));
        }

        fn piece(
            &mut self,
            _: &mut BytesMut,
            index: usize,
            _: &Part,
            piece: &str,
            _: &[TokenLogprob],
        ) {
            self.0.push(format!("{index} + {piece}"));
        }

        fn end(&mut self, _: &mut BytesMut, index: usize, _: &Part, is_cut: bool) {
            self.0.push(format!("{index} {}", if is_cut { "is cut" } else { "ends" }));
        }
    }

    /// A name begins a call, and what is in braces are arguments; else it is text.
    fn check(pieces: &[(usize, &str)], is_cut: bool, expected: &[&str]) {
        let (mut parts, mut out) = (Parts::new(Script::default()), BytesMut::new());
        for (call, piece) in pieces {
            match *piece {
                "a" | "b" => parts.add_call(*call, "", piece, &mut out),
                text if text.starts_with(char::is_uppercase) => {
                    parts.add(Kind::Text, text, &[], &mut out)
                }
                arguments => parts.add_arguments(*call, arguments, &mut out),
            }
            .unwrap();
        }
        parts.finish(is_cut, &mut out);
        assert_eq!(expected, parts.writer.0);
    }

    #[test]
    fn a_call_ends_when_another_begins() {
        check(
            &[(0, "a"), (0, "{}"), (1, "b"), (1, "{"), (1, "}")],
            false,
            &[
                "0 begins: Call(0) a",
                "0 + {}",
                "0 ends",
                "1 begins: Call(1) b",
                "1 + {",
                "1 + }",
                "1 ends",
            ],
        );
    }

    #[test]
    fn calls_that_interleave_come_one_after_the_other() {
        check(
            &[(0, "a"), (0, "{\"x"), (1, "b"), (1, "{"), (0, "\":1}"), (1, "}")],
            false,
            &[
                "0 begins: Call(0) a",
                "0 + {\"x",
                "0 + \":1}",
                "0 ends",
                "1 begins: Call(1) b",
                "1 + {",
                "1 + }",
                "1 ends",
            ],
        );
    }

    #[test]
    fn text_waits_for_the_end_of_a_call() {
        check(
            &[(0, "A"), (0, "a"), (0, "{"), (0, "B"), (0, "}"), (0, "C")],
            false,
            &[
                "0 begins: Text ",
                "0 + A",
                "0 ends",
                "1 begins: Call(0) a",
                "1 + {",
                "1 + }",
                "1 ends",
                "2 begins: Text ",
                "2 + B",
                "2 + C",
                "2 ends",
            ],
        );
    }

    #[test]
    fn only_the_last_part_is_cut() {
        check(
            &[(0, "a"), (0, "{"), (1, "b")],
            true,
            &["0 begins: Call(0) a", "0 + {", "0 ends", "1 begins: Call(1) b", "1 is cut"],
        );
    }

    #[test]
    fn nonsense_of_an_engine_is_an_error() {
        let (mut parts, mut out) = (Parts::new(()), BytesMut::new());
        parts.add_call(0, "", "a", &mut out).unwrap();
        parts.add_arguments(0, "{}", &mut out).unwrap();
        parts.add_call(1, "", "b", &mut out).unwrap();
        parts.add_arguments(0, " \n", &mut out).unwrap();
        let error = parts.add_arguments(0, "{}", &mut out).unwrap_err();
        assert_eq!(Code::Internal, error.code);

        let mut parts = Parts::new(());
        let results = (0..2000).map(|call| parts.add_call(call, "", "a", &mut out));
        assert_eq!(PARTS_MAX, results.flatten().count());
    }
}
