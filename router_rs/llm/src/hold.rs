//! Holds back text that the client must not see yet: incomplete characters, and text that may turn
//! out to be the beginning of a stop sequence.
//!
//! Engines get the stop sequences too, but some of them compare tokens instead of text, and miss
//! some. The search is that of Knuth, Morris and Pratt, so that each byte of text is examined once
//! for each sequence, however the engine cuts the text.

use std::sync::Arc;

/// The stop sequences of a request.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    stops: Box<[Stop]>,
    /// The stop sequence is a part of the text (vLLM's `include_stop_str_in_output`).
    keeps_stop: bool,
}

#[derive(Debug)]
struct Stop {
    text: Box<str>,
    /// For each length of a matched prefix, that of the longest shorter one that ends there too.
    fallback: Box<[usize]>,
}

/// The text of one choice, on its way from the engine to the client.
#[derive(Debug)]
pub(crate) struct Hold {
    stops: Arc<Stops>,
    /// How many bytes of each sequence the text so far ends with.
    matched: Vec<usize>,
    /// The bytes that the engine has sent of a character.
    partial: Vec<u8>,
    /// Whole characters that have not been given; `held.len()` is the longest of `matched`.
    held: String,
    given: String,
    has_stopped: bool,
}

/// Text that may go to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given<'a> {
    pub text: &'a str,
    /// The sequence that has ended the choice; no text follows.
    pub stop: Option<&'a str>,
    /// More text has come from the engine than has been given.
    pub is_partial: bool,
}

// === impl Stops ===

impl Stops {
    /// None of the sequences is empty.
    pub(crate) fn new(stops: &[String], keeps_stop: bool) -> Arc<Self> {
        debug_assert!(stops.iter().all(|stop| !stop.is_empty()));
        Arc::new(Self { stops: stops.iter().map(|stop| Stop::new(stop)).collect(), keeps_stop })
    }
}

// === impl Stop ===

impl Stop {
    fn new(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut fallback = vec![0; bytes.len() + 1];
        let mut length = 0;
        for (at, byte) in bytes.iter().enumerate().skip(1) {
            while length > 0 && bytes[length] != *byte {
                length = fallback[length];
            }
            length += usize::from(bytes[length] == *byte);
            fallback[at + 1] = length;
        }
        Self { text: text.into(), fallback: fallback.into() }
    }

    /// How much of it is matched with the next byte.
    fn next(&self, mut matched: usize, byte: u8) -> usize {
        let bytes = self.text.as_bytes();
        while matched > 0 && bytes[matched] != byte {
            matched = self.fallback[matched];
        }
        matched + usize::from(bytes[matched] == byte)
    }
}

// === impl Hold ===

impl Hold {
    pub(crate) fn new(stops: Arc<Stops>) -> Self {
        let matched = vec![0; stops.stops.len()];
        let (partial, held, given) = Default::default();
        Self { stops, matched, partial, held, given, has_stopped: false }
    }

    /// Whether a stop sequence has come.
    pub(crate) fn has_stopped(&self) -> bool {
        self.has_stopped
    }

    /// Whether more text has come than has been given.
    pub(crate) fn is_holding(&self) -> bool {
        !self.held.is_empty() || !self.partial.is_empty()
    }

    /// The next text of the engine, or bytes of text. `is_last`: nothing follows, so that the text
    /// held back is given too.
    pub(crate) fn take<'a>(&'a mut self, text: &'a str, bytes: &[u8], is_last: bool) -> Given<'a> {
        if self.has_stopped() {
            return Given { text: "", stop: None, is_partial: false };
        }
        let is_plain = bytes.is_empty() && self.partial.is_empty();
        if is_plain && self.matched.is_empty() {
            return Given { text, stop: None, is_partial: false };
        }
        self.given.clear();
        if is_plain {
            return self.search(text, is_last);
        }
        let whole = self.join(text, bytes, is_last);
        if self.matched.is_empty() {
            self.given = whole;
            let is_partial = self.is_holding();
            return Given { text: &self.given, stop: None, is_partial };
        }
        self.search(&whole, is_last)
    }

    /// The whole characters of the pieces so far. Invalid UTF-8 is replaced.
    fn join(&mut self, text: &str, bytes: &[u8], is_last: bool) -> String {
        self.partial.extend_from_slice(bytes);
        let is_complete = is_last || !text.is_empty();
        let end = if is_complete { self.partial.len() } else { whole_characters(&self.partial) };
        let mut whole = String::from_utf8_lossy(&self.partial[..end]).into_owned();
        self.partial.drain(..end);
        whole.push_str(text);
        whole
    }

    fn search(&mut self, text: &str, is_last: bool) -> Given<'_> {
        for (at, byte) in text.bytes().enumerate() {
            if let Some(found) = self.advance(byte) {
                self.held.push_str(&text[..=at]);
                return self.stop(found);
            }
        }
        self.held.push_str(text);
        let longest = self.matched.iter().copied().max().unwrap_or(0);
        let kept = if is_last { 0 } else { longest };
        if is_last {
            self.matched.fill(0);
        }
        let end = self.held.len() - kept;
        self.given.push_str(&self.held[..end]);
        self.held.drain(..end);
        let is_partial = self.is_holding();
        Given { text: &self.given, stop: None, is_partial }
    }

    /// The index of a sequence that is complete with this byte: the longest, if there are several.
    fn advance(&mut self, byte: u8) -> Option<usize> {
        let mut found: Option<usize> = None;
        for (index, stop) in self.stops.stops.iter().enumerate() {
            let matched = stop.next(self.matched[index], byte);
            self.matched[index] = matched;
            let longest = found.map_or(0, |found| self.stops.stops[found].text.len());
            if matched == stop.text.len() && matched > longest {
                found = Some(index);
            }
        }
        found
    }

    /// The end of the choice; the text held ends with this sequence.
    fn stop(&mut self, index: usize) -> Given<'_> {
        self.has_stopped = true;
        let stop = &*self.stops.stops[index].text;
        let kept = if self.stops.keeps_stop { stop.len() } else { 0 };
        let end = self.held.len() - stop.len() + kept;
        self.given.push_str(&self.held[..end]);
        self.held.clear();
        self.partial.clear();
        Given { text: &self.given, stop: Some(stop), is_partial: false }
    }
}

/// The length without a character at the end of which bytes are missing.
fn whole_characters(bytes: &[u8]) -> usize {
    let mut start = 0;
    loop {
        match std::str::from_utf8(&bytes[start..]) {
            Ok(_) => return bytes.len(),
            Err(error) => match error.error_len() {
                Some(length) => start += error.valid_up_to() + length,
                None => return start + error.valid_up_to(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hold(stops: &[&str]) -> Hold {
        let stops: Vec<String> = stops.iter().map(ToString::to_string).collect();
        Hold::new(Stops::new(&stops, false))
    }

    fn all(hold: &mut Hold, pieces: &[&[u8]]) -> (String, Option<String>) {
        let (mut text, mut stop) = (String::new(), None);
        for (index, piece) in pieces.iter().enumerate() {
            let given = hold.take("", piece, index + 1 == pieces.len());
            text.push_str(given.text);
            stop = stop.or(given.stop.map(str::to_owned));
        }
        (text, stop)
    }

    #[test]
    fn the_beginning_of_a_stop_sequence_is_held_until_it_is_known() {
        let mut hold = hold(&["END", "<|x|>"]);
        for (text, is_last, given, stop) in [
            ("a E", false, "a ", None),
            ("N", false, "", None),
            ("E", false, "EN", None),
            ("EN", false, "E", None),
            ("<|", false, "EN", None),
            ("x|> after", false, "", Some("<|x|>")),
            ("more", true, "", None),
        ] {
            let actual = hold.take(text, b"", is_last);
            assert_eq!((given, stop), (actual.text, actual.stop), "{text}");
        }
    }

    #[test]
    fn what_was_held_is_given_at_the_end() {
        let mut hold = hold(&["END"]);
        let expected = Given { text: "a ", stop: None, is_partial: true };
        assert_eq!(expected, hold.take("a EN", b"", false));
        let expected = Given { text: "EN", stop: None, is_partial: false };
        assert_eq!(expected, hold.take("", b"", true));
    }

    #[test]
    fn after_what_was_held_a_new_search_begins() {
        let mut hold = hold(&["END"]);
        assert_eq!("EN", hold.take("EN", b"", true).text);
        assert_eq!("D", hold.take("D", b"", false).text);
        assert_eq!(Some("END"), hold.take("END", b"", false).stop);
    }

    #[test]
    fn the_sequence_that_is_complete_first_stops_and_the_longest_of_two() {
        for (stops, text, expected) in [
            (&["bcd", "c"][..], "abcd", ("ab", "c")),
            (&["d", "bcd"], "abcd", ("a", "bcd")),
            (&["aab"], "aaab", ("a", "aab")),
            (&["abab", "bb"], "abbab", ("a", "bb")),
        ] {
            let expected = (expected.0.into(), Some(expected.1.into()));
            assert_eq!(expected, all(&mut hold(stops), &[text.as_bytes()]), "{stops:?}");
        }
    }

    #[test]
    fn a_stop_sequence_that_is_wanted_is_given() {
        let mut hold = Hold::new(Stops::new(&["END".into()], true));
        assert_eq!("", hold.take("EN", b"", false).text);
        let given = hold.take("D.", b"", false);
        assert_eq!(("END", Some("END")), (given.text, given.stop));
    }

    #[test]
    fn text_is_not_copied_without_need() {
        let (mut hold, text) = (hold(&[]), String::from("text"));
        assert!(std::ptr::eq(&raw const *text, hold.take(&text, b"", false).text));
    }

    #[test]
    fn characters_are_joined_and_what_is_none_is_replaced() {
        let mut hold = hold(&[]);
        for (bytes, is_last, expected) in [
            (&b"a\xe2"[..], false, "a"),
            (b"\x98", false, ""),
            (b"\x83\xff\xf0\x9f", false, "\u{2603}\u{fffd}"),
            (b"\x98\x88\xc3", false, "\u{1f608}"),
            (b"", true, "\u{fffd}"),
        ] {
            assert_eq!(expected, hold.take("", bytes, is_last).text, "{bytes:?}");
        }
        hold.take("", b"\xc3", false);
        assert_eq!("\u{fffd}text", hold.take("text", b"", false).text);
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(
            text in "[ab\u{e9}\u{1f608}]{0,24}",
            stops in prop::collection::vec("[ab\u{e9}]{1,4}", 0..4),
            cuts in prop::collection::vec(0_usize..64, 0..8),
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let whole = all(&mut hold(&stops), &[text.as_bytes()]);
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> =
                cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]).collect();
            prop_assert_eq!(&whole, &all(&mut hold(&stops), &pieces));
            prop_assert!(stops.iter().all(|stop| !whole.0.contains(stop)));
            prop_assert_eq!(whole.1.is_some(), stops.iter().any(|stop| text.contains(stop)));
        }
    }
}
