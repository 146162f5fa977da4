//! How large one message may be, and which option allows more.

use super::{Code, Status};

/// The options of a deployment that limit its requests, and its answers.
pub const DEPLOYMENT_RECEIVES: &str = "max_receive_message_bytes of the deployment";
pub const DEPLOYMENT_SENDS: &str = "max_send_message_bytes of the deployment";

/// The options of a server that is not a replica, by their names in gRPC.
pub const SERVER_RECEIVES: &str = "grpc.max_receive_message_length of the server";
pub const SERVER_SENDS: &str = "grpc.max_send_message_length of the server";

/// The same for a channel.
pub const CHANNEL_RECEIVES: &str = "grpc.max_receive_message_length of the channel";
pub const CHANNEL_SENDS: &str = "grpc.max_send_message_length of the channel";

/// For messages that an ingress transcodes.
pub const INGRESS_TRANSCODES: &str = "PYSERVE_INGRESS_MAX_MESSAGE_BYTES of the ingress";

/// The most bytes of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeLimit {
    pub bytes_max: usize,
    /// The option to raise for more; empty: the limit is fixed.
    pub option: &'static str,
}

impl From<usize> for SizeLimit {
    fn from(bytes_max: usize) -> Self {
        Self { bytes_max, option: "" }
    }
}

impl SizeLimit {
    /// Checks a message; `verb` describes the operation on it.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` naming the size, the limit, and the option that allows more.
    pub fn check(self, verb: &str, size: usize) -> Result<(), Status> {
        if size <= self.bytes_max { Ok(()) } else { Err(self.exceeded(verb, size)) }
    }

    #[cold]
    fn exceeded(self, verb: &str, size: usize) -> Status {
        let Self { bytes_max, option } = self;
        let mut text =
            format!("{verb} message of {size} bytes is larger than the limit of {bytes_max} bytes");
        if !option.is_empty() {
            text.push_str("; to allow more, raise ");
            text.push_str(option);
        }
        Status::new(Code::ResourceExhausted, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_is_told_with_the_option_that_allows_more() {
        let limit = SizeLimit { bytes_max: 4, option: CHANNEL_RECEIVES };
        assert_eq!(Ok(()), limit.check("received", 4));
        let status = limit.check("received", 5).unwrap_err();
        let expected = "received message of 5 bytes is larger than the limit of 4 bytes; to allow \
                        more, raise grpc.max_receive_message_length of the channel";
        assert_eq!((Code::ResourceExhausted, expected), (status.code, status.message.as_str()));
    }

    #[test]
    fn nobody_is_told_to_raise_a_limit_of_ours() {
        let status = SizeLimit::from(4).check("sent", 5).unwrap_err();
        assert_eq!("sent message of 5 bytes is larger than the limit of 4 bytes", status.message);
    }
}
