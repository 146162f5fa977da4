//! The arguments of a tool call: JSON that arrives in pieces and may be cut off.

use serde_json::value::RawValue;

/// Follows an object through pieces with any boundaries, as far as is needed to know its end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallJson {
    depth: usize,
    has_begun: bool,
    is_in_string: bool,
    is_escaped: bool,
}

impl CallJson {
    pub(crate) fn follow(&mut self, piece: &str) {
        for byte in piece.bytes() {
            self.step(byte);
        }
    }

    /// All that was opened is closed.
    pub(crate) fn is_complete(self) -> bool {
        self.has_begun && self.depth == 0 && !self.is_in_string
    }

    fn step(&mut self, byte: u8) {
        if self.is_in_string {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.is_in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => self.is_in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.has_begun |= self.depth > 0;
    }
}

/// The arguments as an object, `None` if they are anything else. Models write nothing, or null, for
/// a tool without parameters.
pub(crate) fn object_of(arguments: &str) -> Option<&RawValue> {
    let arguments = match arguments.trim() {
        "" | "null" => "{}",
        arguments => arguments,
    };
    let object: &RawValue = serde_json::from_str(arguments).ok()?;
    object.get().starts_with('{').then_some(object)
}

/// The readable part of arguments that end too early: without the value that was cut off, and with
/// all brackets closed. Clients that read a stream parse it in the same way.
pub(crate) fn closed(arguments: &str) -> String {
    let (mut json, mut safe_end) = (CallJson::default(), 0);
    for (at, byte) in arguments.bytes().enumerate() {
        let was_in_string = json.is_in_string;
        json.step(byte);
        match byte {
            _ if was_in_string => {}
            b'{' | b'[' | b'}' | b']' => safe_end = at + 1,
            b',' => safe_end = at,
            _ => {}
        }
    }
    let safe = &arguments[..safe_end];
    safe.chars().chain(closers_of(safe).into_iter().rev()).collect()
}

/// The closing brackets for all that is open, the outermost first.
fn closers_of(text: &str) -> Vec<char> {
    let (mut json, mut closers) = (CallJson::default(), Vec::new());
    for byte in text.bytes() {
        let was_in_string = json.is_in_string;
        json.step(byte);
        match byte {
            _ if was_in_string => {}
            b'{' => closers.push('}'),
            b'[' => closers.push(']'),
            b'}' | b']' => drop(closers.pop()),
            _ => {}
        }
    }
    closers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_object_is_found() {
        for (text, is_complete) in [
            ("", false),
            ("{", false),
            ("{}", true),
            (" {\"a\": [1, {}]}\n", true),
            ("{\"a\": \"}", false),
            ("{\"a\": \"\\\"}", false),
            ("{\"a\": \"\\\\\"}", true),
            ("}", false),
        ] {
            let mut json = CallJson::default();
            json.follow(text);
            assert_eq!(is_complete, json.is_complete(), "{text}");
        }
    }

    #[test]
    fn cut_arguments_keep_their_whole_values() {
        let whole = "{\"a\": 1, \"b\": [true, {\"c\": \"}\"}], \"d\": {}}";
        for (end, expected) in [
            (0, ""),
            (1, "{}"),
            (7, "{}"),
            (8, "{\"a\": 1}"),
            (15, "{\"a\": 1, \"b\": []}"),
            (23, "{\"a\": 1, \"b\": [true, {}]}"),
            (31, "{\"a\": 1, \"b\": [true, {\"c\": \"}\"}]}"),
            (whole.len(), whole),
        ] {
            assert_eq!(expected, closed(&whole[..end]), "{}", &whole[..end]);
        }
        for end in 0..=whole.len() {
            assert!(object_of(&closed(&whole[..end])).is_some(), "{end}");
        }
    }

    #[test]
    fn arguments_are_objects() {
        for (text, is_object) in
            [("", true), (" ", true), ("null", true), ("{}", true), ("[]", false), ("{'a'", false)]
        {
            assert_eq!(is_object, object_of(text).is_some(), "{text}");
        }
    }
}
