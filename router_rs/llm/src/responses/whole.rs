//! The answer of Responses as one object.

use bytes::BytesMut;
use router_protocol::grpc::Status;

use crate::events::put_json;
use crate::messages::Usage;
use crate::parts::Part;
use crate::turn::Ending;
use crate::turn_answers::WriteWholeTurn;

use super::response::Shape;

impl WriteWholeTurn for Shape {
    fn write(
        &self,
        out: &mut BytesMut,
        parts: &[Part],
        ending: &Ending,
        usage: &Usage,
    ) -> Result<(), Status> {
        put_json(out, &self.ended(parts, ending, usage));
        Ok(())
    }
}
