//! The command line, and the validated plan that it becomes.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::{Parser, ValueEnum};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use thiserror::Error;

use crate::framing::{Expectation, frame, sized_message};
use crate::schedule::Arrival;

/// Largest message that a frame's length field and this tool's buffers take: 1 GiB, arbitrary.
const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// Drive a gRPC server and report requests/s and latency as JSON.
///
/// Exit code: 0 when every counted answer was right, 1 when one was not, 2 for wrong usage.
#[derive(Debug, Clone, Parser)]
#[command(name = "pyserve-loadgen", version)]
pub struct Options {
    /// Server, as host:port
    #[arg(long)]
    pub target: String,
    /// Method, as /package.Service/Method, or a path of plain HTTP
    #[arg(long)]
    pub path: String,
    #[arg(long, value_enum, default_value_t = Protocol::Grpc)]
    pub protocol: Protocol,
    /// TLS: the PEM file with the root of the server's certificate, which must name its host
    #[arg(long)]
    pub tls_ca: Option<PathBuf>,
    /// HTTP/1.1: the body of each POST; without one, or a message, the calls are GETs
    #[arg(long, conflicts_with_all = ["payload_bytes", "request_hex"])]
    pub body: Option<String>,
    /// HTTP/1.1: every answer has status 200 and this body
    #[arg(long)]
    pub expect_body: Option<String>,
    #[arg(long, value_enum, default_value_t = Kind::Unary)]
    pub kind: Kind,
    /// Closed loop: calls in flight
    #[arg(long, default_value_t = 1)]
    pub in_flight: usize,
    #[arg(long, default_value_t = 1)]
    pub connections: usize,
    /// Open loop: calls a second, by a schedule that does not look at the answers
    #[arg(long)]
    pub rate: Option<f64>,
    #[arg(long, value_enum, default_value_t = Arrival::Poisson)]
    pub arrival: Arrival,
    /// Seed of the Poisson arrivals
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Open loop: calls that may wait for an answer at once; more are counted as not started
    #[arg(long, default_value_t = 20_000)]
    pub outstanding_max: usize,
    /// Measured time in seconds [default: 5, unless --requests is given]
    #[arg(long)]
    pub duration_s: Option<f64>,
    /// Closed loop: measured calls, in place of a time
    #[arg(long)]
    pub requests: Option<u64>,
    /// Driven but not measured, in seconds, before the measurement
    #[arg(long, default_value_t = 0.5)]
    pub warmup_s: f64,
    /// How long unanswered calls are waited for after the measurement, in seconds
    #[arg(long, default_value_t = 10.0)]
    pub drain_s: f64,
    /// Deadline of each call (grpc-timeout), in seconds; none by default
    #[arg(long)]
    pub timeout_s: Option<f64>,
    /// Request message: this many bytes in protobuf field 1; over HTTP/1.1 the body of each POST
    #[arg(long, default_value_t = 0, conflicts_with = "request_hex")]
    pub payload_bytes: usize,
    /// Request message, in hexadecimal
    #[arg(long)]
    pub request_hex: Option<String>,
    /// Request messages of one call (client-streaming, bidi)
    #[arg(long, default_value_t = 1)]
    pub messages: u64,
    /// Messages of one answer [default: 1 for unary and client-streaming, --messages for bidi]
    #[arg(long)]
    pub expect_messages: Option<u64>,
    /// Length of every message of an answer, in bytes
    #[arg(long)]
    pub expect_bytes: Option<usize>,
    /// Every message of an answer equals the request message, byte for byte
    #[arg(long, conflicts_with_all = ["expect_bytes", "expect_body"])]
    pub expect_echo: bool,
    /// Metadata of each call, as key:value; may be given several times
    #[arg(long = "header")]
    pub headers: Vec<String>,
    /// Largest HTTP/2 frame that the server may send [default: what grpcio's clients allow]
    #[arg(long, default_value_t = 4 << 20, hide_default_value = true)]
    pub max_frame_bytes: u32,
    /// Print a line of JSON when the measurement begins and ends, before the report
    #[arg(long)]
    pub announce: bool,
}

/// The four kinds of gRPC methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    Unary,
    ServerStreaming,
    ClientStreaming,
    /// Ping-pong: the next message is sent when the last one was answered
    Bidi,
}

/// The protocol of the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    Grpc,
    /// Kept connections, one call at a time on each
    Http1,
}

/// What starts the calls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loop {
    ClosedFor {
        in_flight: usize,
        duration: Duration,
    },
    ClosedCount {
        in_flight: usize,
        requests: u64,
    },
    Open {
        rate_per_s: f64,
        arrival: Arrival,
        seed: u64,
        outstanding_max: usize,
        duration: Duration,
    },
}

/// One call, ready to be sent any number of times.
#[derive(Debug, Clone)]
pub struct CallPlan {
    pub protocol: Protocol,
    pub kind: Kind,
    pub uri: Uri,
    pub headers: HeaderMap,
    /// The request message with its prefix.
    pub framed: Bytes,
    /// Of a POST over HTTP/1.1, and of its answer.
    pub body: Option<Bytes>,
    pub expected_body: Option<Bytes>,
    /// Request messages a call, at least 1.
    pub messages: u64,
    pub expectation: Expectation,
}

/// A whole run; every field has been checked.
#[derive(Debug, Clone)]
pub struct Plan {
    pub target: String,
    /// The PEM file with the roots; `None`: no TLS.
    pub tls_ca: Option<PathBuf>,
    pub connections: usize,
    pub max_frame_bytes: u32,
    pub drive: Loop,
    pub warmup: Duration,
    pub drain: Duration,
    pub announce: bool,
    pub call: CallPlan,
}

/// An option has a value that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("--{option}: {problem}")]
pub struct OptionError {
    pub option: &'static str,
    pub problem: String,
}

fn wrong(option: &'static str, problem: impl Into<String>) -> OptionError {
    OptionError { option, problem: problem.into() }
}

impl Options {
    /// Check the options as a whole.
    pub fn plan(&self) -> Result<Plan, OptionError> {
        if self.protocol == Protocol::Grpc && (self.body.is_some() || self.expect_body.is_some()) {
            return Err(wrong("body", "only with --protocol http1"));
        }
        if self.connections == 0 {
            return Err(wrong("connections", "must be at least 1"));
        }
        if !(16_384..=16_777_215).contains(&self.max_frame_bytes) {
            return Err(wrong("max-frame-bytes", "HTTP/2 allows 16384 to 16777215"));
        }
        Ok(Plan {
            target: self.target.clone(),
            tls_ca: self.tls_ca.clone(),
            connections: self.connections,
            max_frame_bytes: self.max_frame_bytes,
            drive: self.drive()?,
            warmup: seconds("warmup-s", self.warmup_s)?,
            drain: seconds("drain-s", self.drain_s)?,
            announce: self.announce,
            call: self.call()?,
        })
    }

    fn drive(&self) -> Result<Loop, OptionError> {
        let duration = seconds("duration-s", self.duration_s.unwrap_or(5.0))?;
        if duration.is_zero() {
            return Err(wrong("duration-s", "must be above 0"));
        }
        match (self.rate, self.requests) {
            (Some(_), Some(_)) => Err(wrong("requests", "only a closed loop runs for a count")),
            (Some(rate), None) if !(rate.is_finite() && rate > 0.0) => {
                Err(wrong("rate", "must be above 0"))
            }
            (Some(_), None) if self.outstanding_max == 0 => {
                Err(wrong("outstanding-max", "must be at least 1"))
            }
            (Some(rate_per_s), None) => Ok(Loop::Open {
                rate_per_s,
                arrival: self.arrival,
                seed: self.seed,
                outstanding_max: self.outstanding_max,
                duration,
            }),
            (None, _) if self.in_flight == 0 => Err(wrong("in-flight", "must be at least 1")),
            (None, Some(_)) if self.duration_s.is_some() => {
                Err(wrong("requests", "give a count or --duration-s, not both"))
            }
            (None, Some(requests)) => Ok(Loop::ClosedCount { in_flight: self.in_flight, requests }),
            (None, None) => Ok(Loop::ClosedFor { in_flight: self.in_flight, duration }),
        }
    }

    fn call(&self) -> Result<CallPlan, OptionError> {
        if !self.path.starts_with('/') {
            return Err(wrong("path", format!("{:?} must begin with '/'", self.path)));
        }
        let scheme = if self.tls_ca.is_some() { "https" } else { "http" };
        let uri = format!("{scheme}://{}{}", self.target, self.path).parse().map_err(|error| {
            wrong("target", format!("{:?} with {:?}: {error}", self.target, self.path))
        })?;
        if self.messages == 0 {
            return Err(wrong("messages", "must be at least 1"));
        }
        let streams_requests = matches!(self.kind, Kind::ClientStreaming | Kind::Bidi);
        if self.messages > 1 && !streams_requests {
            return Err(wrong("messages", "only client-streaming and bidi send more than one"));
        }
        let message = self.message()?;
        let expected_by_kind = match self.kind {
            Kind::Unary | Kind::ClientStreaming => Some(1),
            Kind::Bidi => Some(self.messages),
            Kind::ServerStreaming => None,
        };
        let text = |text: &Option<String>| text.clone().map(Bytes::from);
        let body = text(&self.body).or_else(|| Some(message.clone()).filter(|it| !it.is_empty()));
        let echoed = body.clone().filter(|_| self.expect_echo);
        Ok(CallPlan {
            protocol: self.protocol,
            body,
            expected_body: text(&self.expect_body).or(echoed),
            kind: self.kind,
            uri,
            headers: self.headers()?,
            framed: frame(&message),
            messages: self.messages,
            expectation: Expectation {
                messages: self.expect_messages.or(expected_by_kind),
                message_bytes: self.expect_bytes,
                content: self.expect_echo.then_some(message),
            },
        })
    }

    fn message(&self) -> Result<Bytes, OptionError> {
        match &self.request_hex {
            Some(hex) => decode_hex(hex).map(Bytes::from),
            None if self.payload_bytes > MESSAGE_BYTES_MAX => {
                Err(wrong("payload-bytes", format!("at most {MESSAGE_BYTES_MAX}")))
            }
            None => Ok(sized_message(self.payload_bytes)),
        }
    }

    fn headers(&self) -> Result<HeaderMap, OptionError> {
        let mut headers = HeaderMap::new();
        if self.protocol == Protocol::Grpc {
            headers.insert("te", HeaderValue::from_static("trailers"));
            headers.insert("content-type", HeaderValue::from_static("application/grpc"));
        } else {
            let host = HeaderValue::from_str(&self.target);
            headers.insert("host", host.map_err(|error| wrong("target", error.to_string()))?);
            headers.insert("content-type", HeaderValue::from_static("application/json"));
        }
        headers.insert("user-agent", HeaderValue::from_static("pyserve-loadgen"));
        if let Some(timeout_s) = self.timeout_s {
            headers.insert("grpc-timeout", grpc_timeout(seconds("timeout-s", timeout_s)?)?);
        }
        for header in &self.headers {
            let (key, value) = header
                .split_once(':')
                .ok_or_else(|| wrong("header", format!("{header:?} is not key:value")))?;
            let key: HeaderName =
                key.parse().map_err(|error| wrong("header", format!("{key:?}: {error}")))?;
            let value = HeaderValue::from_str(value)
                .map_err(|error| wrong("header", format!("{value:?}: {error}")))?;
            headers.append(key, value);
        }
        Ok(headers)
    }
}

fn seconds(option: &'static str, value: f64) -> Result<Duration, OptionError> {
    Duration::try_from_secs_f64(value).map_err(|error| wrong(option, format!("{value}: {error}")))
}

/// At most eight digits and a unit, by gRPC over HTTP/2.
fn grpc_timeout(timeout: Duration) -> Result<HeaderValue, OptionError> {
    let (value, unit) = match timeout.as_micros() {
        micros if micros < 100_000_000 => (micros, 'u'),
        micros => (micros / 1_000, 'm'),
    };
    if value == 0 || value > 99_999_999 {
        return Err(wrong("timeout-s", "must be between 1 microsecond and 99999 seconds"));
    }
    Ok(HeaderValue::from_str(&format!("{value}{unit}")).expect("invariant: digits and a letter"))
}

fn decode_hex(hex: &str) -> Result<Vec<u8>, OptionError> {
    let digits = hex
        .chars()
        .map(|digit| digit.to_digit(16).map(|value| value as u8))
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(|| {
            wrong("request-hex", format!("{hex:?} has other than hexadecimal digits"))
        })?;
    if digits.len() % 2 != 0 {
        return Err(wrong("request-hex", "the number of digits is odd"));
    }
    Ok(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(arguments: &str) -> Result<Plan, OptionError> {
        let base = "pyserve-loadgen --target 127.0.0.1:1 --path /a.B/C";
        let words = base.split_whitespace().chain(arguments.split_whitespace());
        Options::try_parse_from(words).expect("clap takes the arguments").plan()
    }

    #[test]
    fn the_defaults_are_a_closed_loop_of_unary_calls() {
        let plan = plan("").unwrap();
        let duration = Duration::from_secs(5);
        assert_eq!(Loop::ClosedFor { in_flight: 1, duration }, plan.drive);
        assert_eq!(Some(1), plan.call.expectation.messages);
        assert_eq!(&[0, 0, 0, 0, 0][..], plan.call.framed);
        assert_eq!("http://127.0.0.1:1/a.B/C", plan.call.uri.to_string());
    }

    #[test]
    fn an_echo_is_expected_byte_for_byte() {
        let plan = plan("--request-hex 0a01Ff --expect-echo").unwrap();
        assert_eq!(Some(Bytes::from_static(&[10, 1, 255])), plan.call.expectation.content);
        assert_eq!(&[0, 0, 0, 0, 3, 10, 1, 255][..], plan.call.framed);
    }

    #[test]
    fn deadlines_are_written_in_at_most_eight_digits() {
        for (timeout_s, expected) in
            [("0.25", "250000u"), ("99.5", "99500000u"), ("600", "600000m")]
        {
            let plan = plan(&format!("--timeout-s {timeout_s}")).unwrap();
            assert_eq!(expected, plan.call.headers["grpc-timeout"]);
        }
    }

    #[test]
    fn metadata_is_added() {
        let plan = plan("--header application:two --header x-a:1 --header x-a:2").unwrap();
        assert_eq!("two", plan.call.headers["application"]);
        assert_eq!(2, plan.call.headers.get_all("x-a").iter().count());
    }

    #[test]
    fn wrong_values_name_their_option() {
        for (arguments, option) in [
            ("--connections 0", "connections"),
            ("--in-flight 0", "in-flight"),
            ("--rate 0", "rate"),
            ("--rate 5 --requests 7", "requests"),
            ("--requests 7 --duration-s 1", "requests"),
            ("--rate 5 --outstanding-max 0", "outstanding-max"),
            ("--duration-s 0", "duration-s"),
            ("--warmup-s=-1", "warmup-s"),
            ("--timeout-s 0", "timeout-s"),
            ("--messages 0", "messages"),
            ("--messages 2", "messages"),
            ("--request-hex 0", "request-hex"),
            ("--request-hex zz", "request-hex"),
            ("--payload-bytes 1073741825", "payload-bytes"),
            ("--header nocolon", "header"),
            ("--max-frame-bytes 1", "max-frame-bytes"),
            ("--body x", "body"),
        ] {
            assert_eq!(option, plan(arguments).unwrap_err().option, "{arguments}");
        }
    }
}
