//! The common interface of a message's fields and its extensions.

use prost::encoding::WireType;
use prost_reflect::OneofDescriptor;

use super::raw::Raw;
use super::scalars::wire_type;
use crate::presence::{has_number, has_presence, is_message_set};
use prost_reflect::{ExtensionDescriptor, FieldDescriptor, Kind, MessageDescriptor};

/// The field or extension for a name or a number in a message.
#[derive(Clone)]
pub(super) enum Field {
    Own(FieldDescriptor),
    Extension(ExtensionDescriptor),
}

/// The form in which a single value of a field is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame {
    Plain,
    Group,
    /// The item of a message set.
    Item,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Single,
    List,
    Map,
}

/// Calls the same method of either descriptor.
macro_rules! ask {
    ($field:expr, $question:ident) => {
        match $field {
            Field::Own(field) => field.$question(),
            Field::Extension(extension) => extension.$question(),
        }
    };
}

impl Field {
    /// The field for a name in JSON, a name in the `.proto`, or `[extension.name]`.
    pub(super) fn named(descriptor: &MessageDescriptor, name: &str) -> Option<Self> {
        let own =
            descriptor.get_field_by_json_name(name).or_else(|| descriptor.get_field_by_name(name));
        let of_extension = || descriptor.get_extension_by_json_name(name).map(Self::Extension);
        own.map(Self::Own).or_else(of_extension)
    }

    pub(super) fn numbered(descriptor: &MessageDescriptor, number: u32) -> Option<Self> {
        let of_extension = || descriptor.get_extension(number).map(Self::Extension);
        descriptor.get_field(number).map(Self::Own).or_else(of_extension)
    }

    pub(super) fn json_name(&self) -> &str {
        ask!(self, json_name)
    }

    pub(super) fn number(&self) -> u32 {
        ask!(self, number)
    }

    pub(super) fn kind(&self) -> Kind {
        ask!(self, kind)
    }

    pub(super) fn shape(&self) -> Shape {
        match (ask!(self, is_list), ask!(self, is_map)) {
            (true, _) => Shape::List,
            (_, true) => Shape::Map,
            _ => Shape::Single,
        }
    }

    pub(super) fn is_packed(&self) -> bool {
        ask!(self, is_packed)
    }

    pub(super) fn frame(&self) -> Frame {
        match ask!(self, is_group) {
            true => Frame::Group,
            false if self.is_item() => Frame::Item,
            false => Frame::Plain,
        }
    }

    /// Whether its default is a value, not the absence of one.
    pub(super) fn supports_presence(&self) -> bool {
        match self {
            Self::Own(field) => has_presence(field),
            Self::Extension(extension) => extension.supports_presence(),
        }
    }

    /// Whether a value in this form may be one of it. Else it is of another version of the message,
    /// where the number means something else or an enum has more values, and unknown here.
    pub(super) fn takes(&self, value: Raw<'_>) -> bool {
        let kind = self.kind();
        let element_type = wire_type(&kind);
        let is_whole = match value {
            Raw::Varint(number) => element_type == WireType::Varint && is_known(&kind, number),
            Raw::SixtyFourBit(_) => element_type == WireType::SixtyFourBit,
            Raw::ThirtyTwoBit(_) => element_type == WireType::ThirtyTwoBit,
            Raw::Bytes(_) => element_type == WireType::LengthDelimited,
            Raw::Group(_) => kind.as_message().is_some() && self.shape() != Shape::Map,
        };
        // Packed; either form is good for either declaration.
        is_whole || (self.shape() == Shape::List && matches!(value, Raw::Bytes(_)))
    }

    /// Whether it is an item of a message set.
    fn is_item(&self) -> bool {
        let Self::Extension(extension) = self else { return false };
        self.shape() == Shape::Single
            && self.kind().as_message().is_some()
            && is_message_set(&extension.containing_message())
    }

    pub(super) fn oneof(&self) -> Option<OneofDescriptor> {
        match self {
            Self::Own(field) => field.containing_oneof(),
            Self::Extension(_) => None,
        }
    }
}

/// Whether it is not the number of an enum that has other numbers only.
pub(super) fn is_known(kind: &Kind, number: u64) -> bool {
    kind.as_enum().is_none_or(|names| has_number(names, number as i32))
}
