//! The seventeen status codes and the tables that map HTTP/2 facts to them.

use http::StatusCode;

/// A gRPC status code, numbered as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Code {
    Ok = 0,
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

const ALL: [Code; 17] = [
    Code::Ok,
    Code::Cancelled,
    Code::Unknown,
    Code::InvalidArgument,
    Code::DeadlineExceeded,
    Code::NotFound,
    Code::AlreadyExists,
    Code::PermissionDenied,
    Code::ResourceExhausted,
    Code::FailedPrecondition,
    Code::Aborted,
    Code::OutOfRange,
    Code::Unimplemented,
    Code::Internal,
    Code::Unavailable,
    Code::DataLoss,
    Code::Unauthenticated,
];

/// Some of the codes, a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeSet(u32);

impl CodeSet {
    pub const NONE: Self = Self(0);

    pub const fn of(codes: &[Code]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < codes.len() {
            bits |= 1 << codes[index] as u32;
            index += 1;
        }
        Self(bits)
    }

    pub fn has(self, code: Code) -> bool {
        self.0 & (1 << code as u32) != 0
    }

    pub fn bits(self) -> u32 {
        self.0
    }

    /// From [`CodeSet::bits`]; bits without a code are ignored.
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

impl Code {
    /// The code of a wire number; unassigned numbers mean `Unknown` (gRPC specification).
    pub fn from_number(number: u32) -> Self {
        ALL.get(number as usize).copied().unwrap_or(Code::Unknown)
    }

    /// Parses the value of a `grpc-status` header.
    pub fn from_header(value: &[u8]) -> Self {
        std::str::from_utf8(value)
            .ok()
            .and_then(|text| text.parse().ok())
            .map_or(Code::Unknown, Code::from_number)
    }

    pub fn number(self) -> u8 {
        self as u8
    }

    /// The decimal number as a header value, without allocation.
    pub fn as_str(self) -> &'static str {
        const NUMBERS: [&str; 17] = [
            "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15",
            "16",
        ];
        NUMBERS[self as usize]
    }

    /// The code of a response without `grpc-status`, by its HTTP status
    /// (grpc/doc/http-grpc-status-mapping.md).
    pub fn from_http(status: StatusCode) -> Self {
        match status.as_u16() {
            400 => Code::Internal,
            401 => Code::Unauthenticated,
            403 => Code::PermissionDenied,
            404 => Code::Unimplemented,
            429 | 502 | 503 | 504 => Code::Unavailable,
            _ => Code::Unknown,
        }
    }

    /// The code of a reset stream (gRPC over HTTP/2, section Errors).
    pub fn from_reset(reason: h2::Reason) -> Self {
        match reason {
            h2::Reason::REFUSED_STREAM => Code::Unavailable,
            h2::Reason::CANCEL => Code::Cancelled,
            h2::Reason::ENHANCE_YOUR_CALM => Code::ResourceExhausted,
            h2::Reason::INADEQUATE_SECURITY => Code::PermissionDenied,
            _ => Code::Internal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip_and_strangers_are_unknown() {
        for (number, code) in ALL.iter().enumerate() {
            assert_eq!(*code, Code::from_number(number as u32));
            assert_eq!(*code, Code::from_header(code.as_str().as_bytes()));
        }
        assert_eq!(Code::Unknown, Code::from_number(17));
        assert_eq!(Code::Unknown, Code::from_header(b"x"));
    }
}
