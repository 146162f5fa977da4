//! Path templates of `google.api.http` (google/api/http.proto).
//!
//! ```text
//! template = "/" segments [ ":" verb ]
//! segments = segment { "/" segment }
//! segment  = "*" | "**" | literal | "{" field path [ "=" segments ] "}"
//! ```

use percent_encoding::percent_decode_str;

/// A parsed template: variables are ranges of its segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pub segments: Vec<Segment>,
    pub verb: Option<Box<str>>,
    pub variables: Vec<Variable>,
}

/// The pattern for one segment of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    Literal(Box<str>),
    /// `*`: any segment that is not empty.
    One,
    /// `**`: the rest, which may be empty. The last segment of its template.
    Rest,
}

/// A field in the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Names with dots between them.
    pub field_path: Box<str>,
    /// Segments `start..end`, or all from `start` if the last of them is [`Segment::Rest`].
    pub start: usize,
    pub end: usize,
}

impl Variable {
    /// Whether its value can have several segments: slashes in it separate them.
    pub fn is_single(&self, template: &Template) -> bool {
        self.end == self.start + 1 && template.segments[self.start] == Segment::One
    }
}

impl Template {
    /// # Errors
    /// A sentence with the error and its place.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { text, rest: text, template: Template::empty() };
        parser.expect('/')?;
        if parser.rest.is_empty() {
            // The root, whose path is one empty segment.
            parser.template.segments.push(Segment::Literal("".into()));
            return Ok(parser.template);
        }
        parser.segments(false)?;
        if let Some(verb) = parser.rest.strip_prefix(':') {
            if verb.is_empty() || verb.contains(['/', ':', '{', '}', '*']) {
                return Err(parser.error("the verb after ':' is no name"));
            }
            parser.template.verb = Some(verb.into());
            parser.rest = "";
        }
        if !parser.rest.is_empty() {
            return Err(parser.error("something follows the template"));
        }
        let segments = &parser.template.segments;
        if segments.iter().rev().skip(1).any(|segment| *segment == Segment::Rest) {
            return Err(parser.error("'**' has to be the last segment"));
        }
        Ok(parser.template)
    }

    fn empty() -> Self {
        Self { segments: Vec::new(), verb: None, variables: Vec::new() }
    }
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    template: Template,
}

impl Parser<'_> {
    fn error(&self, what: &str) -> String {
        let at = self.text.len() - self.rest.len();
        format!("malformed path template {:?}: {what} (at {at})", self.text)
    }

    fn expect(&mut self, character: char) -> Result<(), String> {
        let rest = self.rest.strip_prefix(character);
        self.rest = rest.ok_or_else(|| self.error(&format!("there is no {character:?}")))?;
        Ok(())
    }

    fn segments(&mut self, in_variable: bool) -> Result<(), String> {
        self.segment(in_variable)?;
        while let Some(rest) = self.rest.strip_prefix('/') {
            self.rest = rest;
            self.segment(in_variable)?;
        }
        Ok(())
    }

    fn segment(&mut self, in_variable: bool) -> Result<(), String> {
        if let Some(rest) = self.rest.strip_prefix('{') {
            if in_variable {
                return Err(self.error("a variable is inside of another"));
            }
            self.rest = rest;
            return self.variable();
        }
        let end = self.rest.find(['/', '{', '}']).unwrap_or(self.rest.len());
        // Only behind the last segment a colon begins the verb.
        let is_last = !self.rest[end..].contains('/');
        let end = self.rest[..end].find(':').filter(|_| is_last).unwrap_or(end);
        let (text, rest) = self.rest.split_at(end);
        let segment = match text {
            "" => return Err(self.error("a segment is empty")),
            "*" => Segment::One,
            "**" => Segment::Rest,
            literal if literal.contains(['*', '=']) => {
                return Err(self.error("a segment is neither a name nor a wildcard"));
            }
            literal => Segment::Literal(percent_decode_str(literal).decode_utf8_lossy().into()),
        };
        self.rest = rest;
        self.template.segments.push(segment);
        Ok(())
    }

    fn variable(&mut self) -> Result<(), String> {
        let end = self.rest.find(['=', '}']).ok_or_else(|| self.error("'{' is not closed"))?;
        let (field_path, rest) = self.rest.split_at(end);
        let is_name = |name: &str| {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        if !field_path.split('.').all(is_name) {
            return Err(self.error("a variable has no field's name"));
        }
        let start = self.template.segments.len();
        self.rest = rest;
        if let Some(rest) = rest.strip_prefix('=') {
            self.rest = rest;
            self.segments(true)?;
        } else {
            self.template.segments.push(Segment::One);
        }
        self.expect('}')?;
        let end = self.template.segments.len();
        let field_path = field_path.into();
        self.template.variables.push(Variable { field_path, start, end });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let template = Template::parse(text).unwrap();
        let segments: Vec<&str> = template
            .segments
            .iter()
            .map(|segment| match segment {
                Segment::Literal(literal) => literal,
                Segment::One => "*",
                Segment::Rest => "**",
            })
            .collect();
        let variables: Vec<String> = template
            .variables
            .iter()
            .map(|variable| format!("{}={}..{}", variable.field_path, variable.start, variable.end))
            .collect();
        let verb = template.verb.as_deref().unwrap_or("-");
        format!("{} | {verb} | {}", segments.join(" "), variables.join(" "))
    }

    #[test]
    fn templates_are_taken_apart() {
        for (text, expected) in [
            ("/v1/things", "v1 things | - | "),
            ("/v1/things/{id}", "v1 things * | - | id=2..3"),
            ("/v1/{name=shelves/*}/x", "v1 shelves * x | - | name=1..3"),
            ("/v1/{a.b_c=**}", "v1 ** | - | a.b_c=1..2"),
            ("/v1/{name=a/**}:cancel", "v1 a ** | cancel | name=1..3"),
            ("/{a}/{b}:do-it", "* * | do-it | a=0..1 b=1..2"),
            ("/v1/*/x", "v1 * x | - | "),
            ("/", " | - | "),
            ("/v1:a/{b=c:d/*}/x%20y:z", "v1:a c:d * x y | z | b=1..3"),
        ] {
            assert_eq!(expected, shown(text), "{text}");
        }
    }

    #[test]
    fn malformed_templates_are_refused_and_the_place_is_named() {
        for text in [
            "",
            "v1",
            "/v1/",
            "//",
            "/v1/{",
            "/v1/{}",
            "/v1/{a",
            "/v1/{a=}",
            "/{a={b}}",
            "/v1/**/x",
            "/{a=**}/{b}",
            "/v1:",
            "/v1:{a}",
            "/v1:a:b",
            "/a*b",
            "/{a-b}",
            "/{a..b}",
            "/v1}",
            "/{a}b",
            "/***",
        ] {
            let error = Template::parse(text).unwrap_err();
            assert!(error.contains("(at ") && error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
