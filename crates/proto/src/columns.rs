//! The columns of a sample: tens of thousands of numbers of each of eight ranks, at a moment when
//! the whole node waits. So they are read here, in one pass into memory of the right size; all
//! other fields are prost's.

use litd_units::Nanos;
use prost::Message as _;

use crate::error::WireError;
use crate::from_hook::{Class, Kernels};
use crate::walk::{Fields, Value, varint, varints};
use crate::wire;

/// The columns of one sample as they are on the wire, except that classes have meaning.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    name: Vec<u32>,
    stream: Vec<u32>,
    class: Vec<Class>,
    start_delta: Vec<i64>,
    duration: Vec<u64>,
}

impl Columns {
    /// Takes the columns out of a message; what is left is for prost. The message has been
    /// bounded: memory is taken for as many numbers as are in it.
    ///
    /// # Errors
    /// [`WireError::Malformed`], also for columns of something else than numbers.
    pub(crate) fn split(message: &[u8]) -> Result<(Self, wire::Kernels), WireError> {
        let (columns, rest) = Self::take(message)?;
        columns.check()?;
        Ok((columns, wire::Kernels::decode(rest.as_slice())?))
    }

    /// The columns, and the bytes of all other fields.
    fn take(message: &[u8]) -> Result<(Self, Vec<u8>), WireError> {
        let (mut columns, mut rest) = (Self::default(), Vec::new());
        let mut fields = Fields(message);
        let mut before = message;
        while let Some(field) = fields.next() {
            let (number, value) = field?;
            let (raw, after) = before.split_at(before.len() - fields.0.len());
            before = after;
            match number {
                4 => extend(&mut columns.name, value, |number| number as u32)?,
                5 => extend(&mut columns.stream, value, |number| number as u32)?,
                6 => extend(&mut columns.class, value, |number| {
                    Class::of_wire(number as i32)
                })?,
                7 => extend(&mut columns.start_delta, value, zigzag)?,
                8 => extend(&mut columns.duration, value, |number| number)?,
                _ => rest.extend_from_slice(raw),
            }
        }
        Ok((columns, rest))
    }

    fn check(&self) -> Result<(), WireError> {
        let kernels = self.name.len();
        let columns = [
            ("stream", self.stream.len()),
            ("kernel_class", self.class.len()),
            ("start_delta_ns", self.start_delta.len()),
            ("kernel_duration_ns", self.duration.len()),
        ];
        match columns.into_iter().find(|&(_, found)| found != kernels) {
            Some((column, found)) => Err(WireError::Columns {
                column,
                found,
                kernels,
            }),
            None => Ok(()),
        }
    }

    /// The columns as they are used.
    ///
    /// # Errors
    /// [`WireError::KernelTime`]
    pub(crate) fn read(self, kernels: &mut Kernels) -> Result<(), WireError> {
        kernels.start = starts(self.start_delta)?;
        kernels.duration_of = durations(self.duration, &kernels.start)?;
        (kernels.name, kernels.stream, kernels.class) = (self.name, self.stream, self.class);
        Ok(())
    }
}

/// Adds the numbers of a column, packed or not, as `of` makes them of a varint: protobuf cuts a
/// number off that is too long for its type.
fn extend<T>(
    column: &mut Vec<T>,
    value: Value<'_>,
    of: impl Fn(u64) -> T,
) -> Result<(), WireError> {
    match value {
        Value::Varint(number) => column.push(of(number)),
        Value::Bytes(mut packed) => {
            let numbers = varints(packed);
            column.reserve(numbers);
            if numbers == packed.len() {
                // Streams, classes and the ids of few names: one byte each.
                column.extend(packed.iter().map(|&byte| of(byte.into())));
                return Ok(());
            }
            while !packed.is_empty() {
                let (number, length) = varint(packed)?;
                column.push(of(number));
                packed = &packed[length..];
            }
        }
        Value::Fixed => return Err(WireError::Malformed("a column of another type")),
    }
    Ok(())
}

/// A signed number: the lowest bit is its sign.
fn zigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Times from differences. (Collected in place: no second column.)
fn starts(deltas: Vec<i64>) -> Result<Vec<Nanos>, WireError> {
    let mut time = 0_i64;
    let start = |(kernel, delta)| {
        time = time
            .checked_add(delta)
            .filter(|&time| time >= 0)
            .ok_or(WireError::KernelTime { kernel })?;
        Ok(Nanos(time))
    };
    deltas.into_iter().enumerate().map(start).collect()
}

fn durations(wire: Vec<u64>, starts: &[Nanos]) -> Result<Vec<Nanos>, WireError> {
    let duration = |(kernel, (nanos, start)): (usize, (u64, &Nanos))| {
        i64::try_from(nanos)
            .ok()
            .filter(|&nanos| start.0.checked_add(nanos).is_some())
            .map(Nanos)
            .ok_or(WireError::KernelTime { kernel })
    };
    let pairs = wire.into_iter().zip(starts);
    pairs.enumerate().map(duration).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::encoding::{WireType, encode_key, encode_varint};

    use super::*;

    /// A column in pieces, packed or not.
    fn piece() -> impl Strategy<Value = Vec<u8>> {
        let number =
            (0_u32..65).prop_flat_map(|bits| 0..=u64::MAX.checked_shr(64 - bits).unwrap_or(0));
        let numbers = prop::collection::vec(number, 0..6);
        (4_u32..9, numbers, any::<bool>()).prop_map(|(field, numbers, packed)| {
            let (mut piece, mut all) = (Vec::new(), Vec::new());
            for &number in &numbers {
                if !packed {
                    encode_key(field, WireType::Varint, &mut piece);
                    encode_varint(number, &mut piece);
                }
                encode_varint(number, &mut all);
            }
            if packed {
                encode_key(field, WireType::LengthDelimited, &mut piece);
                encode_varint(all.len() as u64, &mut piece);
                piece.extend(all);
            }
            piece
        })
    }

    proptest! {
        #[test]
        fn columns_are_what_prost_makes_of_them(pieces in prop::collection::vec(piece(), 0..12)) {
            let message = pieces.concat();
            let theirs = wire::Kernels::decode(message.as_slice()).unwrap();
            let ours = Columns::take(&message).unwrap().0;
            prop_assert_eq!(ours.name, theirs.name);
            prop_assert_eq!(ours.stream, theirs.stream);
            prop_assert_eq!(ours.start_delta, theirs.start_delta_ns);
            prop_assert_eq!(ours.duration, theirs.kernel_duration_ns);
            let classes = theirs.kernel_class.into_iter().map(Class::of_wire);
            prop_assert_eq!(ours.class, Vec::from_iter(classes));
        }
    }
}
