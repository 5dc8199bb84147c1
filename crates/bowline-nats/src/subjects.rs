//! [`Subjects`]: the names of subjects and of the stream.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bowline::cluster::{GroupId, ReplicaId};

/// The names of a cluster. A token of a subject cannot have dots, spaces or wildcards, so groups and keys are encoded.
#[derive(Clone, Debug)]
pub(crate) struct Subjects {
    prefix: String,
}

impl Subjects {
    pub(crate) fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
        }
    }

    /// Questions to a replica.
    pub(crate) fn replica(&self, replica: ReplicaId) -> String {
        format!("{}.replica.{replica}", self.prefix)
    }

    /// Messages of a replica to itself.
    pub(crate) fn echo(&self, replica: ReplicaId) -> String {
        format!("{}.echo.{replica}", self.prefix)
    }

    pub(crate) fn group(&self, group: &GroupId) -> String {
        format!(
            "{}.group.{}",
            self.prefix,
            encode(group.as_str().as_bytes())
        )
    }

    /// The empty key has a token too.
    pub(crate) fn mark(&self, key: &[u8]) -> String {
        format!("{}.mark.k{}", self.prefix, encode(key))
    }

    pub(crate) fn all_marks(&self) -> String {
        format!("{}.mark.*", self.prefix)
    }

    pub(crate) fn stream(&self) -> String {
        format!("{}_marks", self.prefix)
    }
}

fn encode(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}
