//! Splits an input into values.

/// The rest of an input. At its end everything is zero or empty.
#[derive(Debug)]
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or_default()
    }

    pub(crate) fn number(&mut self) -> u32 {
        self.bytes(4).iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
    }

    pub(crate) fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// As many bytes as the next one says.
    pub(crate) fn piece(&mut self) -> &'a [u8] {
        let count = usize::from(self.byte());
        self.bytes(count)
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Up to a line feed, which is consumed too.
    pub(crate) fn line(&mut self) -> &'a [u8] {
        let end = self.rest.iter().position(|byte| *byte == b'\n');
        let line = self.bytes(end.unwrap_or(self.rest.len()));
        self.bytes(1);
        line
    }

    /// Like [`Input::line`], cut off at the first invalid UTF-8.
    pub(crate) fn text(&mut self) -> &'a str {
        let line = self.line();
        match std::str::from_utf8(line) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&line[..error.valid_up_to()]).unwrap_or_default(),
        }
    }
}
