//! [`Frame`]: what is published to the channel of a replica.
//!
//! ```text
//! question = "Q" ‖ id (8 bytes) ‖ sender (8 bytes) ‖ message
//! answer   = "A" ‖ id (8 bytes) ‖ message
//! ```

use bowline::cluster::ReplicaId;
use bytes::Bytes;

/// A message to one replica.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Question {
        id: u64,
        from: ReplicaId,
        message: Bytes,
    },
    Answer {
        id: u64,
        message: Bytes,
    },
}

impl Frame {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Question { id, from, message } => {
                [&b"Q"[..], &id.to_be_bytes(), from.as_bytes(), message].concat()
            }
            Self::Answer { id, message } => [&b"A"[..], &id.to_be_bytes(), message].concat(),
        }
    }

    pub(crate) fn parse(mut bytes: Bytes) -> Option<Self> {
        let [kind] = take(&mut bytes)?;
        let id = u64::from_be_bytes(take(&mut bytes)?);
        match kind {
            b'Q' => {
                let from = ReplicaId::from_bytes(take(&mut bytes)?);
                Some(Self::Question {
                    id,
                    from,
                    message: bytes,
                })
            }
            b'A' => Some(Self::Answer { id, message: bytes }),
            _ => None,
        }
    }
}

fn take<const N: usize>(bytes: &mut Bytes) -> Option<[u8; N]> {
    let array = *bytes.first_chunk()?;
    drop(bytes.split_to(N));
    Some(array)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_parsed_as_it_was_written() {
        let question = Frame::Question {
            id: 7,
            from: ReplicaId::from_bytes([3; 8]),
            message: "hello".into(),
        };
        let answer = Frame::Answer {
            id: u64::MAX,
            message: Bytes::new(),
        };

        for frame in [question, answer] {
            assert_eq!(Frame::parse(frame.to_bytes().into()), Some(frame));
        }
    }

    #[test]
    fn other_bytes_are_no_frame() {
        let question = Frame::Question {
            id: 7,
            from: ReplicaId::from_bytes([3; 8]),
            message: Bytes::new(),
        };
        let bytes = Bytes::from(question.to_bytes());

        for length in 0..bytes.len() {
            assert_eq!(Frame::parse(bytes.slice(..length)), None);
        }
        assert_eq!(Frame::parse(Bytes::from_static(b"X1234567812345678")), None);
    }
}
