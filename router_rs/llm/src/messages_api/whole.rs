//! The answer of Messages as one object.

use bytes::BytesMut;
use router_protocol::grpc::Status;

use crate::events::put_json;
use crate::messages::Usage;
use crate::parts::Part;
use crate::turn::Ending;
use crate::turn_answers::WriteWholeTurn;

use super::message::Shape;

impl WriteWholeTurn for Shape {
    fn write(
        &self,
        out: &mut BytesMut,
        parts: &[Part],
        ending: &Ending,
        usage: &Usage,
    ) -> Result<(), Status> {
        let blocks = self.blocks(parts, ending)?;
        put_json(out, &self.message(blocks, self.end(ending, parts), usage));
        Ok(())
    }
}
