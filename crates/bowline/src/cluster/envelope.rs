//! [`Envelope`]: seals the messages between replicas.
//!
//! ```text
//! to a group    sealed( kind ‖ sender ‖ body ),                          bound to the group
//! to a replica  sealed( sender ‖ nonce ‖ length of service ‖ service ‖ body ), bound to the replica
//! answer        status, and if it is `OK`: sealed( body ),                bound to the nonce
//! ```
//!
//! The engine cannot read a message, change it, or deliver it to another group or replica. It can repeat one until it
//! expires, so the receivers of messages are idempotent.

use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};

use super::{AskError, GroupId, MAX_MESSAGE_BYTES, ReplicaId, Unavailable};
use crate::random;
use crate::seal::{Binding, Purpose, SealError, Sealer};

/// Seals and opens messages of one replica.
#[derive(Clone, Debug)]
pub(super) struct Envelope {
    pub(super) replica: ReplicaId,
    pub(super) keys: Sealer,
}

/// A message to a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GroupMessage {
    Body(Bytes),
    /// The sender failed to send earlier messages.
    Lost,
}

/// A message to this replica.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) from: ReplicaId,
    pub(super) service: String,
    pub(super) body: Bytes,
    nonce: Nonce,
}

type Nonce = [u8; NONCE_LEN];

/// Why there is no answer, in its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    /// The message was not sealed with the keys of the replica.
    NotOpened,
    Busy,
    UnknownService,
    AnswerTooLarge,
}

impl Envelope {
    pub(super) fn seal_to_group(
        &self,
        group: &GroupId,
        message: &GroupMessage,
    ) -> Result<Bytes, SealError> {
        let (kind, body) = match message {
            GroupMessage::Body(body) => (BODY, &body[..]),
            GroupMessage::Lost => (LOST, &b""[..]),
        };
        let content = [&[kind][..], self.replica.as_bytes(), body].concat();
        self.seal(&group_binding(group), &content)
    }

    /// Opens a message to a group; returns it with its sender.
    pub(super) fn open_to_group(
        &self,
        group: &GroupId,
        sealed: &[u8],
    ) -> Result<(ReplicaId, GroupMessage), SealError> {
        let mut content = self.open(&group_binding(group), sealed)?;
        let kind = take::<1>(&mut content)?;
        let from = ReplicaId::from_bytes(take(&mut content)?);
        match kind {
            [BODY] => Ok((from, GroupMessage::Body(content))),
            [LOST] => Ok((from, GroupMessage::Lost)),
            // Of a later version.
            _ => Err(SealError::Foreign),
        }
    }

    /// Seals a message to a replica; returns it with what opens the answer.
    pub(super) fn seal_question(
        &self,
        to: ReplicaId,
        service: &str,
        body: &[u8],
    ) -> Result<(Bytes, Nonce), SealError> {
        let nonce: Nonce = random::bytes().map_err(SealError::Failed)?;
        let length = u8::try_from(service.len())
            .map_err(|_| SealError::Failed("the name of a service exceeds 255 bytes"))?;
        let content = [
            &self.replica.as_bytes()[..],
            &nonce,
            &[length],
            service.as_bytes(),
            body,
        ]
        .concat();
        Ok((self.seal(&question_binding(to), &content)?, nonce))
    }

    pub(super) fn open_question(&self, sealed: &[u8]) -> Result<Question, SealError> {
        let mut content = self.open(&question_binding(self.replica), sealed)?;
        let from = ReplicaId::from_bytes(take(&mut content)?);
        let nonce = take(&mut content)?;
        let [length] = take(&mut content)?;
        let length = usize::from(length);
        if content.len() < length {
            return Err(SealError::Foreign);
        }
        let service = content.split_to(length);
        let service = str::from_utf8(&service).map_err(|_| SealError::Foreign)?;
        Ok(Question {
            from,
            service: service.to_owned(),
            body: content,
            nonce,
        })
    }

    pub(super) fn seal_answer(&self, question: &Question, body: &[u8]) -> Bytes {
        if body.len() > MAX_BODY_BYTES {
            return Status::AnswerTooLarge.to_answer();
        }
        match self.seal(&answer_binding(&question.nonce), body) {
            Ok(sealed) => {
                let mut answer = BytesMut::with_capacity(1 + sealed.len());
                answer.put_u8(Status::Ok.code());
                answer.put_slice(&sealed);
                answer.freeze()
            }
            // Only for want of randomness: the asking replica may try again.
            Err(_) => Status::Busy.to_answer(),
        }
    }

    pub(super) fn open_answer(&self, nonce: &Nonce, mut answer: Bytes) -> Result<Bytes, AskError> {
        let [status] = take(&mut answer).map_err(|_| refused("it sent an empty answer"))?;
        match Status::from_code(status) {
            Some(Status::Ok) => {
                let opened = self.open(&answer_binding(nonce), &answer);
                opened.map_err(|_| refused("its answer was sealed with other keys"))
            }
            Some(Status::NotOpened) => Err(refused("it has other keys, or its clock is wrong")),
            Some(Status::Busy) => Err(refused("it answers too many messages already")),
            Some(Status::UnknownService) => Err(refused("it does not serve this kind of message")),
            Some(Status::AnswerTooLarge) => Err(AskError::TooLarge {
                bytes: MAX_BODY_BYTES + 1,
                limit: MAX_BODY_BYTES,
            }),
            None => Err(refused("its answer is of an unknown version")),
        }
    }

    fn seal(&self, bound: &Binding, content: &[u8]) -> Result<Bytes, SealError> {
        let sealed = self
            .keys
            .seal_bytes(Purpose::OwnerMessage, bound, content, LIFETIME)?;
        Ok(sealed.into())
    }

    fn open(&self, bound: &Binding, sealed: &[u8]) -> Result<Bytes, SealError> {
        let content = self.keys.open_bytes(Purpose::OwnerMessage, bound, sealed)?;
        Ok(content.into())
    }
}

impl Status {
    const ALL: [Self; 5] = [
        Self::Ok,
        Self::NotOpened,
        Self::Busy,
        Self::UnknownService,
        Self::AnswerTooLarge,
    ];

    /// Returns the first byte of an answer. It must never change: replicas of different versions run at the same time.
    const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::NotOpened => 1,
            Self::Busy => 2,
            Self::UnknownService => 3,
            Self::AnswerTooLarge => 4,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.code() == code)
    }

    pub(super) fn to_answer(self) -> Bytes {
        vec![self.code()].into()
    }
}

fn refused(why: &'static str) -> AskError {
    Unavailable::new("the replica", why).into()
}

/// Splits off an array of fixed length.
fn take<const N: usize>(content: &mut Bytes) -> Result<[u8; N], SealError> {
    let array = content.first_chunk().ok_or(SealError::Foreign)?;
    let array = *array;
    drop(content.split_to(N));
    Ok(array)
}

fn group_binding(group: &GroupId) -> Binding {
    Binding::new().bytes(b"group").bytes(group.as_str())
}

fn question_binding(to: ReplicaId) -> Binding {
    Binding::new().bytes(b"replica").bytes(to.as_bytes())
}

fn answer_binding(nonce: &Nonce) -> Binding {
    Binding::new().bytes(b"answer").bytes(nonce)
}

const BODY: u8 = 1;
const LOST: u8 = 2;
const NONCE_LEN: usize = 16;
/// A message that is older is refused. The clocks of replicas may differ by this.
const LIFETIME: Duration = Duration::from_secs(5 * 60);
/// The maximum size of a body. The rest of [`MAX_MESSAGE_BYTES`] is for what the envelope adds.
pub(super) const MAX_BODY_BYTES: usize = MAX_MESSAGE_BYTES - 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn envelopes() -> [Envelope; 2] {
        let keys = Sealer::random();
        [1, 2].map(|n| Envelope {
            replica: ReplicaId::from_bytes([n; 8]),
            keys: keys.clone(),
        })
    }

    #[test]
    fn a_message_to_a_group_opens_for_that_group_only() {
        let [sender, receiver] = envelopes();
        let (group, other) = (GroupId::new("a", "1"), GroupId::new("a", "2"));
        let message = GroupMessage::Body("secret".into());

        let sealed = sender.seal_to_group(&group, &message).unwrap();

        assert!(!sealed.windows(6).any(|part| part == b"secret"));
        let opened = receiver.open_to_group(&group, &sealed).unwrap();
        assert_eq!(opened, (sender.replica, message));
        assert!(receiver.open_to_group(&other, &sealed).is_err());
        let lost = sender.seal_to_group(&group, &GroupMessage::Lost).unwrap();
        let opened = receiver.open_to_group(&group, &lost).unwrap();
        assert_eq!(opened.1, GroupMessage::Lost);
    }

    #[test]
    fn a_question_opens_at_its_replica_and_its_answer_with_its_nonce() {
        let [asking, answering] = envelopes();
        let (to, body) = (answering.replica, b"body");

        let (sealed, nonce) = asking.seal_question(to, "parked calls", body).unwrap();
        let (_, other_nonce) = asking.seal_question(to, "parked calls", body).unwrap();

        assert!(asking.open_question(&sealed).is_err());
        let question = answering.open_question(&sealed).unwrap();
        assert_eq!(question.from, asking.replica);
        assert_eq!(question.service, "parked calls");
        assert_eq!(&question.body[..], body);
        let answer = answering.seal_answer(&question, b"done");
        assert_eq!(asking.open_answer(&nonce, answer.clone()).unwrap(), "done");
        assert!(asking.open_answer(&other_nonce, answer).is_err());
    }

    #[test]
    fn every_truncation_of_a_message_is_an_error() {
        let [asking, answering] = envelopes();
        let group = GroupId::new("a", "1");
        let body = GroupMessage::Body("body".into());
        let to_group = asking.seal_to_group(&group, &body).unwrap();
        let sealed = asking
            .seal_question(answering.replica, "a", b"b")
            .unwrap()
            .0;

        for length in 0..to_group.len() {
            assert!(
                answering
                    .open_to_group(&group, &to_group[..length])
                    .is_err()
            );
        }
        for length in 0..sealed.len() {
            assert!(answering.open_question(&sealed[..length]).is_err());
        }
        assert!(asking.open_answer(&[0; 16], Bytes::new()).is_err());
    }

    #[test]
    fn the_largest_body_fits_into_a_message() {
        let [asking, answering] = envelopes();
        let (body, service) = (vec![0; MAX_BODY_BYTES], "s".repeat(255));
        let group = GroupId::new("kind", &"n".repeat(500));

        let (sealed, _) = asking
            .seal_question(answering.replica, &service, &body)
            .unwrap();
        let question = answering.open_question(&sealed).unwrap();
        let answer = answering.seal_answer(&question, &body);
        let told = asking.seal_to_group(&group, &GroupMessage::Body(body.into()));

        for message in [sealed, answer, told.unwrap()] {
            assert!(message.len() <= MAX_MESSAGE_BYTES, "{}", message.len());
        }
    }
}
